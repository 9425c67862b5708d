"""Sub-pipelines in what a client submits: made from the graph, and checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import plait
from plait.cluster.submit import spec_of
from plait.coordinator.messages.request_checks import objection_to
from plait.coordinator.messages.requests import Submit
from plait.coordinator.messages.spec import JobSpec, PartSpec
from plait.model.settings import Settings

PART = PartSpec(name="in", kind="rows", sources=(0,), queries=("out",))


def submitted(**settings: Any) -> JobSpec:
    job = plait.Job("job")
    counts = job.source([{"k": 1}], name="in").key_by("k").count()
    counts.sink(plait.Discard(), name="out")
    return spec_of(job.graph(), Settings(**settings), nodes=1, name=None, prefer=(), silence=None)


def test_a_submitted_job_names_its_sub_pipelines() -> None:
    spec = submitted()
    assert spec.parts == (
        PART,
        PartSpec(name="out", kind="keys", inputs=(0,), queries=("out",)),
        PartSpec(name="sinks", kind="sinks", inputs=(1,), queries=("out",)),
    )
    assert objection_to(Submit(spec=spec)) == ""
    assert [part.name for part in submitted(order="key").parts] == ["in", "out"]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["in"], "parts must be a tuple"),
        (("in",), "must be a PartSpec"),
        ((replace(PART, kind="lines"),), "kind"),  # type: ignore[arg-type]
        ((replace(PART, inputs=(0,)),), "inputs must be whole numbers"),
        ((PART, replace(PART, inputs=(1,))), "inputs must be whole numbers from 0 to 0, got (1,)"),
        ((replace(PART, sources=(1,)),), "sources must be whole numbers from 0 to 0, got (1,)"),
        ((replace(PART, queries=("a", 3)),), "queries must be labels"),  # type: ignore[arg-type]
        ((replace(PART, pinned=1),), "pinned"),  # type: ignore[arg-type]
        ((replace(PART, region=None),), "region"),  # type: ignore[arg-type]
    ],
)
def test_parts_that_cannot_be_are_refused(parts: Any, words: str) -> None:
    assert words in objection_to(Submit(spec=replace(submitted(), parts=parts)))
