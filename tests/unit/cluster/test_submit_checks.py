"""What submit refuses before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.cluster.submit import check_sinks, settings_for_nodes
from plait.errors import JobError
from plait.execution.local_run import graph_of

if TYPE_CHECKING:
    from pathlib import Path


def job_into(sink: plait.Sink, dead_letters: plait.Sink | None = None) -> plait.Job:
    job = plait.Job("into", dead_letters=dead_letters)
    job.source(plait.Items([{"n": 1}])).sink(sink)
    return job


def test_order_by_key_refuses_sinks_that_can_be_only_once(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="every node would write the same files"):
        check_sinks(graph_of(job_into(plait.Files(str(tmp_path / "out.csv")))))
    with pytest.raises(JobError, match='a limit needs order="total"'):
        check_sinks(graph_of(job_into(plait.Collect(limit=3))))
    letters = plait.Files(str(tmp_path / "letters.jsonl"))
    with pytest.raises(JobError, match="the same file of dead letters"):
        check_sinks(graph_of(job_into(plait.Collect(), letters)))
    with pytest.raises(JobError, match="the same file of dead letters"):
        plait.submit(job_into(plait.Collect()), order="key", dead_letters=letters)
    check_sinks(graph_of(job_into(plait.Collect())))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"queue": "hybrid"}, 'use "lanes" on nodes'),
        ({"order": "none"}, 'use "total" or "key"'),
        ({"timeout_s": 1.0}, "handle.result"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_settings_that_are_of_one_process_are_refused(
    settings: dict[str, object], words: str
) -> None:
    with pytest.raises(JobError, match=words):
        settings_for_nodes(settings)


def test_a_job_is_saved_under_its_name_on_the_cluster(tmp_path: Path) -> None:
    """A job that has no name of its own may be given one when it is submitted."""
    stream = plait.stream(plait.Items([{"n": 1}])).sink(plait.Collect())
    with pytest.raises(JobError, match="needs a name under which it is found again"):
        plait.submit(stream.job, checkpoint=tmp_path)
    with pytest.raises(JobError, match="wait is 'nonsense'"):
        plait.submit(stream.job, name="carts", checkpoint=tmp_path, wait="nonsense")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prefer": None}, "prefer must be names of hosts, got None"),
        ({"prefer": "host-a"}, "prefer must be names of hosts, got 'host-a'"),
        ({"prefer": 3}, "prefer must be names of hosts, got 3"),
        ({"prefer": ["a", 3]}, "prefer must be names of hosts"),
        ({"start": 0}, "start is 0; it must be text"),
        ({"start": []}, "start is "),
    ],
)
def test_arguments_of_another_type_are_refused_in_words(given: Any, words: str) -> None:
    with pytest.raises(JobError, match=words):
        plait.submit(job_into(plait.Collect()), **given)
