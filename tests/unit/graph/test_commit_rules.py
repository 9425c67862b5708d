"""Which jobs may have sinks that commit between checkpoints, and what `explain` says of them."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait.errors import JobError
from plait.graph.checkpoint_rules import (
    committers,
    deciders,
    refuse_unsaveable,
    repeats,
    sources_before,
)
from plait.model.settings import Settings
from plait.testing.crashes import Durable


async def same(record: Any) -> Any:
    return record


def job_with(*sinks: Durable, through: Any = lambda rows: rows) -> plait.Job:
    job = plait.Job("rules")
    rows = through(job.source([{"n": 1}], "numbers"))
    for number, sink in enumerate(sinks):
        rows.sink(sink, f"sink {number}")
    return job


def awaited(repeatable: bool) -> Any:
    return lambda rows: rows.map_async(same, schema={"n": int}, repeatable=repeatable)


def test_several_deciders_are_taken() -> None:
    graph = job_with(Durable("a", "decider"), Durable("b", "decider")).graph()
    refuse_unsaveable(graph, Settings())
    assert len(deciders(graph)) == 2
    assert repeats(graph)
    assert committers(graph) == []
    assert sources_before(graph, deciders(graph)[0]) == list(graph.sources)


def test_one_decider_repeats_nothing() -> None:
    assert not repeats(job_with(Durable("a", "decider"), Durable("b")).graph())


def test_a_function_that_may_differ_is_refused() -> None:
    graph = job_with(Durable("a", "decider", "100ms"), through=awaited(False)).graph()
    with pytest.raises(JobError, match=r"map_async .* write repeatable=True"):
        refuse_unsaveable(graph, Settings())
    refuse_unsaveable(
        job_with(Durable("a", "decider", "100ms"), through=awaited(True)).graph(), Settings()
    )
    refuse_unsaveable(job_with(Durable("a", "decider"), through=awaited(False)).graph(), Settings())


@pytest.mark.parametrize("repeatable", [True, False])
def test_batches_may_differ_on_nodes(repeatable: bool) -> None:
    graph = job_with(
        Durable("a", "decider", "100ms"),
        through=lambda rows: rows.map_batches(lambda table: table, repeatable=repeatable),
    ).graph()
    refuse_unsaveable(graph, Settings())
    if repeatable:
        refuse_unsaveable(graph, Settings(), on_nodes=True)
    else:
        with pytest.raises(JobError, match="map_batches"):
            refuse_unsaveable(graph, Settings(), on_nodes=True)


@pytest.mark.parametrize(
    ("sink", "settings", "words"),
    [
        (Durable("a", "follower", "100ms"), {}, "commit= is for sinks that keep the boundary"),
        (Durable("a", "decider", "soon"), {}, "not a duration"),
        (Durable("a", "decider", "0s"), {}, "above zero"),
        (Durable("a", "decider", "1s"), {"order": "key"}, 'order="key"'),
    ],
)
def test_what_cannot_commit_is_refused(sink: Durable, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=words):
        refuse_unsaveable(job_with(sink).graph(), Settings(**settings))


def test_explain_says_when_functions_must_be_repeatable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job_with(Durable("a", "decider", "100ms")).explain(checkpoint="x")
    told = capsys.readouterr().out
    assert "visible after 100ms; functions before it must give the same again" in told
    job_with(Durable("a", "decider"), Durable("b", "decider")).explain(checkpoint="x")
    assert capsys.readouterr().out.count("commit one after the other") == 2


def test_what_may_be_shed_is_not_repeated() -> None:
    """Of an epoch that is repeated it would not be known what was kept."""

    def graph_of(*sinks: Durable) -> Any:
        job = plait.Job("rules")
        rows = job.source([{"n": 1}], "numbers")
        for number, sink in enumerate(sinks):
            rows.sink(sink, f"sink {number}", min_accuracy=0.5)
        return job.graph()

    with pytest.raises(JobError, match=r"min_accuracy= cannot be combined with checkpoint="):
        refuse_unsaveable(graph_of(Durable("a", "decider"), Durable("b", "decider")), Settings())
    refuse_unsaveable(graph_of(Durable("a", "decider"), Durable("b")), Settings())
