"""Operators with their own loop: the engine against the oracle, on random jobs.

What they wait for, pop and emit is random, with one input or two, one output or two, among windows,
joins and operators of every other kind, with sources that end one after the other. Whatever the
settings, and on nodes whatever moves around them: rows, order, counts and failure are those of the
plain loop, bit for bit.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.graph import CallNode, Graph
from plait.testing import assert_same
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.strategies_loops import loop_graphs

TIMEOUT_S = 60.0
"""A run that takes longer hangs."""

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
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


@dataclasses.dataclass(frozen=True, slots=True)
class Same:
    """map_batches: the batch as it is; on nodes a batch is a node's part of an epoch."""

    def __call__(self, table: Any) -> Any:
        return table


def row_by_row(graph: Graph) -> Graph:
    """The graph with functions of batches that do not depend on how rows are batched."""
    nodes = [
        dataclasses.replace(node, function=Same())
        if isinstance(node, CallNode) and node.mode == "batches"
        else node
        for node in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes))


@slow
@given(graph=loop_graphs(), chosen=run_settings())
def test_any_job_with_loops(graph: Graph, chosen: dict[str, Any]) -> None:
    assert_same(graph, chosen)


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
