"""Random jobs with floors, shed by random plans from random epochs on, against the plain loop.

Outputs, counts (what was shed among them), dead letters and failures are those of the plain loop
with the plans of the run, on any number of workers and nodes, while bins move and nodes join.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plait
from plait.errors import InternalError
from plait.execution.local_run import LocalRun
from plait.graph.operators import ShedOp
from plait.node_runtime.host.agent import NodeAgent
from plait.protocol.keeps import KEEP_ALL
from plait.testing.changes import Join, Keep
from plait.testing.check import assert_same
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.oracle import shedding
from plait.testing.random_jobs import graphs, timed_graphs
from plait.testing.random_jobs.shed_jobs import plans, shed_graphs
from tests.property.live_jobs import row_by_row

if TYPE_CHECKING:
    from plait.graph.operators import Graph
    from plait.protocol.messages import Answer

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ANY = st.one_of(graphs(max_rows=60), timed_graphs())


def going_on(graph: Graph) -> Graph:
    """No record ends it: in order of time only a run that came to its end says all its epochs."""
    operators = [
        replace(op, on_error="skip") if op.on_error == "fail" else op for op in graph.operators
    ]
    return replace(graph, operators=tuple(operators))


@slow
@given(data=st.data(), graph=shed_graphs(ANY), workers=st.integers(1, 4))
def test_any_job_with_any_plans(data: Any, graph: Graph, workers: int) -> None:
    keeps = data.draw(plans(len(graph.sinks)))
    records = data.draw(st.sampled_from([1, 3, 7, 64]))
    chosen = {"workers": workers, "epoch_records": records, "timeout": 60.0}
    graph, order = data.draw(st.sampled_from([(graph, "total"), (going_on(graph), None)]))
    assert_same(graph, {**chosen, "order": order, "fuse": data.draw(st.booleans())}, keeps=keeps)


@slow
@given(
    data=st.data(),
    graph=shed_graphs(ANY.map(row_by_row)),
    count=st.sampled_from([2, 3, 1]),
    seed=st.integers(0, 2**32 - 1),
    records=st.sampled_from([1, 2, 7]),
)
def test_any_job_on_any_nodes(data: Any, graph: Graph, count: int, seed: int, records: int) -> None:
    chosen = {"workers": 2, "bin_bits": 3, "epoch_records": records, "timeout": 60.0}
    graph, order = data.draw(st.sampled_from([(graph, "total"), (going_on(graph), None)]))
    assert_same_on_nodes(graph, {**chosen, "order": order}, nodes=count, seed=seed)


HALF = (1 << 63,)
QUARTER = (1 << 62,)


def keyed_job() -> Graph:
    job = plait.Job("shed")
    rows = [{"key": n % 97, "value": n} for n in range(400)]
    job.source(rows, name="in").key_by("key").max("value").sink(
        plait.Discard(), name="out", min_accuracy=0
    )
    return job.graph()


def run_on_two() -> None:
    """What is kept changes twice, and a node joins between."""
    changes = (
        Keep(thresholds=HALF, at=4),
        Join(bins=(0, 3, 5), at=8),
        Keep(thresholds=QUARTER, at=12),
    )
    chosen = {"workers": 1, "bin_bits": 3, "epoch_records": 10}
    assert_same_on_nodes(keyed_job(), chosen, nodes=2, changes=changes)


def test_the_job_of_the_mistakes_is_right() -> None:
    run_on_two()
    assert_same(keyed_job(), {"epoch_records": 10}, keeps=[(3, HALF), (9, QUARTER), (20, ())])


def test_a_threshold_one_epoch_late_on_one_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = NodeAgent.commit

    def late(agent: NodeAgent, command: Any) -> Answer:
        if agent.rank == 1 and len(command.layouts) == 1 and command.layouts[0].keep == HALF:
            (layout,) = command.layouts
            then = replace(layout, epoch=layout.epoch + 1)
            command = replace(command, layouts=(replace(layout, keep=()), then))
        return right(agent, command)

    monkeypatch.setattr(NodeAgent, "commit", late)
    with pytest.raises((AssertionError, InternalError)):
        run_on_two()


def test_a_key_that_is_not_mixed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shedding, "key_sample", lambda seed, key: key)
    with pytest.raises(AssertionError):
        assert_same(keyed_job(), keeps=[(0, HALF)])


def test_records_that_are_shed_and_not_counted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account of the run does not add up, before anything is compared."""
    monkeypatch.setattr(LocalRun, "counts_of", lambda run, op: [*run.engine.counts(op)[:-1], 0])
    with pytest.raises(InternalError, match="lost or doubled"):
        assert_same(keyed_job(), keeps=[(0, HALF)])


def test_a_shedder_lets_all_through_without_a_plan() -> None:
    graph = keyed_job()
    assert any(isinstance(op, ShedOp) for op in graph.operators)
    wanted = assert_same(graph, keeps=[(5, (KEEP_ALL,))])
    assert (wanted.account.shed, wanted.account.read) == (0, 400)
