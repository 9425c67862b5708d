"""A job on several nodes against the oracle: random jobs, random settings, random changes.

Whatever the nodes and whatever happens to them while the job runs (bins move in every way, nodes
join and leave, connections break, the job is stopped): the outputs, the counts, the dead letters
and the failure are those of the plain loop, bit for bit.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.errors import RecordError
from plait.execution.local_run import run
from plait.testing.check import capturing, place
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.nodes import run_on_nodes
from plait.testing.random_jobs import graphs
from tests.property.live_jobs import Live, pushing, row_by_row, with_feeds

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph.operators import Graph

TIMEOUT_S = 60.0
"""A run that takes longer hangs."""

slow = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from([2, 3, 1, 4])


@st.composite
def run_settings(draw: Any) -> dict[str, Any]:
    """Settings of each node, all of which must give the same answer."""
    found = {
        "workers": draw(st.integers(1, 3)),
        "lanes": draw(st.sampled_from([None, 1, 2, 4])),
        "bin_bits": draw(st.sampled_from([4, 0, 1, 2, 3, 6])),
        "epoch_records": draw(st.sampled_from([1, 2, 3, 7, 64])),
        "scheduler": draw(st.sampled_from(["ct", "lru"])),
        "threading": draw(st.sampled_from(["dynamic", "dynamic", "dedicated", "manual"])),
        "fuse": draw(st.booleans()),
        "timeout": TIMEOUT_S,
    }
    if draw(st.integers(0, 3)) == 0:
        found |= {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    if draw(st.integers(0, 4)) == 0:
        found["limit"] = draw(st.integers(0, 20))
    return found


def going_on(graph: Graph) -> Graph:
    """The graph without the policy "fail"."""
    nodes = [
        dataclasses.replace(node, on_error="skip") if node.on_error == "fail" else node
        for node in graph.operators
    ]
    return dataclasses.replace(graph, operators=tuple(nodes))


@slow
@given(graph=graphs(max_rows=60).map(row_by_row), count=counts, seed=seeds, chosen=run_settings())
def test_any_job_on_any_nodes(graph: Graph, count: int, seed: int, chosen: dict[str, Any]) -> None:
    assert_same_on_nodes(graph, chosen, nodes=count, seed=seed)


def failure_of(run: Callable[[], Any]) -> RecordError | None:
    try:
        run()
    except RecordError as error:
        return error
    return None


@slow
@given(
    graph=graphs(max_rows=30, max_steps=3).map(row_by_row),
    count=counts,
    seed=seeds,
    chosen=run_settings(),
)
def test_a_failure_is_told_as_on_one_node(
    graph: Graph, count: int, seed: int, chosen: dict[str, Any]
) -> None:
    """The same words. A job with several sinks may end by the failure of either."""
    one = failure_of(lambda: run(capturing(graph)[0], **chosen))
    if one is None:
        return
    several = failure_of(lambda: run_on_nodes(capturing(graph)[0], count, seed=seed, **chosen))
    if several is not None and place(several) == place(one):
        assert words(several) == words(one)


def words(error: RecordError) -> str:
    """What is said whether or not the exception itself came with it."""
    return str(error).replace(" raised ", " failed: ", 1)


@slow
@given(
    graph=graphs(max_rows=150, max_steps=4).map(row_by_row).map(going_on),
    count=counts,
    seed=seeds,
    chosen=run_settings(),
)
def test_many_small_epochs(graph: Graph, count: int, seed: int, chosen: dict[str, Any]) -> None:
    """More epochs than any window is wide, and the changes in the middle of them."""
    assert_same_on_nodes(graph, {**chosen, "epoch_records": 1}, nodes=count, seed=seed)


@slow
@given(
    graph=graphs(max_rows=60).map(row_by_row).map(going_on),
    count=counts,
    seed=seeds,
    chosen=run_settings(),
)
def test_order_by_key(graph: Graph, count: int, seed: int, chosen: dict[str, Any]) -> None:
    assert_same_on_nodes(graph, {**chosen, "order": "key"}, nodes=count, seed=seed)


@slow
@given(
    graph=graphs(max_rows=60, max_steps=4).map(row_by_row).map(going_on).map(with_feeds),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    count=counts,
    seed=seeds,
    chosen=run_settings(),
)
def test_live_sources(
    graph: Live,
    sizes: list[int],
    count: int,
    seed: int,
    chosen: dict[str, Any],
) -> None:
    """Rows come while the nodes change; the epochs are those that the run had."""
    live, rows = graph
    chosen.pop("limit", None)
    with pushing(rows, sizes):
        assert_same_on_nodes(live, chosen, nodes=count, seed=seed)
