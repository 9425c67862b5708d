"""`plait.Checkpoint`: what it takes, what it refuses, and what it shows."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.checkpoints.config import to_checkpoint
from plait.cluster.submit import checkpoint_spec
from plait.errors import JobError


def test_the_defaults() -> None:
    saved = plait.Checkpoint("ckpt")
    assert (saved.every_s, saved.keep, saved.max_age_s) == (10.0, 3, 100.0)
    assert repr(saved) == "Checkpoint('ckpt', every='10s', keep=3)"


def test_a_path_a_url_or_a_checkpoint_is_taken() -> None:
    assert to_checkpoint("ckpt") == plait.Checkpoint("ckpt")
    assert to_checkpoint(Path("a/b")) == plait.Checkpoint("a/b")
    given = plait.Checkpoint("s3://b/x", every=datetime.timedelta(seconds=1), max_age="5s")
    assert to_checkpoint(given) is given
    assert (given.every_s, given.max_age_s) == (1.0, 5.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": ""}, "is empty"),
        ({"url": 7}, "is not text"),
        ({"url": "x", "keep": 0}, "above 0"),
        ({"url": "x", "keep": True}, "above 0"),
        ({"url": "x", "restarts": -1}, "must not be below 0"),
        ({"url": "x", "restarts": 1.5}, "a whole number"),
        ({"url": "x", "every": 10}, "is not a duration"),
        ({"url": "x", "every": "0s"}, "above zero"),
        ({"url": "x", "every": "10s", "max_age": "9s"}, "less than every"),
    ],
)
def test_what_is_wrong_is_told(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=words):
        plait.Checkpoint(**arguments)


@pytest.mark.parametrize("given", [None, 3, b"x", True])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(JobError, match="give a folder"):
        to_checkpoint(given)


def test_restarts_go_with_the_job() -> None:
    saved = plait.Checkpoint("ckpt", restarts=0)
    assert repr(saved) == "Checkpoint('ckpt', every='10s', keep=3, restarts=0)"
    spec = checkpoint_spec(saved, "")
    assert spec is not None
    assert spec.restarts == 0


def test_secrets_of_a_url_are_not_shown() -> None:
    saved = plait.Checkpoint("s3://name:secret@bucket/x?secret_key=hush")
    assert repr(saved) == "Checkpoint('s3://bucket/x', every='10s', keep=3)"


def test_a_short_every_leaves_time_for_a_way_back() -> None:
    assert plait.Checkpoint("ckpt", every="1s").max_age_s == 60.0
