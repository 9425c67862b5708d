"""Operators with their own loop: the engine against the oracle, on random jobs.

What they wait for, pop and emit is random, with one input or two, one output or two, among windows,
joins and operators of every other kind, with sources that end one after the other. Whatever the
settings, and on nodes whatever moves around them: rows, order, counts and failure are those of the
plain loop, bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.testing import assert_same
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.random_jobs.loops import loop_graphs
from tests.property.live_jobs import Live, pushing, row_by_row, with_feeds

if TYPE_CHECKING:
    from plait.graph.operators import Graph

TIMEOUT_S = 60.0
"""A run that takes longer hangs."""

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
fewer = settings(slow, max_examples=max(1, settings().max_examples // 2))
seeds = st.integers(0, 2**32 - 1)


@st.composite
def run_settings(draw: Any) -> dict[str, Any]:
    """Settings of a run, all of which must give the same answer."""
    found = {
        "workers": draw(st.sampled_from([1, 2, 4])),
        "lanes": draw(st.sampled_from([None, 1, 4])),
        "bin_bits": draw(st.sampled_from([10, 3, 4])),
        "epoch_records": draw(st.sampled_from([1, 2, 3, 7, 64, 4096])),
        "timeout": TIMEOUT_S,
    }
    if draw(st.integers(0, 3)) == 0:
        found |= {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    if draw(st.integers(0, 5)) == 0:
        found["limit"] = draw(st.integers(0, 20))
    return found


@slow
@given(
    graph=loop_graphs(),
    chosen=run_settings(),
    threading=st.sampled_from(["dynamic", "dynamic", "dedicated", "manual"]),
    scheduler=st.sampled_from(["ct", "lru", "max_queue", "min_latency"]),
)
def test_any_job_with_loops(
    graph: Graph, chosen: dict[str, Any], threading: str, scheduler: str
) -> None:
    assert_same(graph, {**chosen, "threading": threading, "scheduler": scheduler})


@slow
@given(
    graph=loop_graphs(max_rows=30).map(row_by_row),
    count=st.sampled_from([2, 3, 1]),
    seed=seeds,
    chosen=run_settings(),
)
def test_any_job_with_loops_on_any_nodes(
    graph: Graph, count: int, seed: int, chosen: dict[str, Any]
) -> None:
    """Bins move, nodes join and leave around the node on which the loops are."""
    assert_same_on_nodes(graph, {**chosen, "bin_bits": 4}, nodes=count, seed=seed)


@fewer
@given(
    graph=loop_graphs(max_rows=30).map(row_by_row),
    count=st.sampled_from([2, 3]),
    seed=seeds,
    chosen=run_settings(),
)
def test_loops_with_order_by_key(
    graph: Graph, count: int, seed: int, chosen: dict[str, Any]
) -> None:
    """The sinks are on every node, the loops still on one."""
    given = {**chosen, "bin_bits": 4, "order": "key"}
    assert_same_on_nodes(graph, given, nodes=count, seed=seed)


@fewer
@given(
    found=loop_graphs(sources=(1,)).map(with_feeds),
    size=st.integers(1, 9),
    chosen=run_settings(),
)
def test_a_live_source(found: Live, size: int, chosen: dict[str, Any]) -> None:
    """Rows come while the job runs; the epochs are those that the run had."""
    graph, rows = found
    chosen.pop("limit", None)
    with pushing(rows, [size]):
        assert_same(graph, chosen)
