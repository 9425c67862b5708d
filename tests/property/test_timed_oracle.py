"""Windows, joins, timers and late records: the engine against the oracle, on random jobs.

Times come out of order, several at once, with gaps, and now and then wild; sources are several,
united or joined; windows stand behind windows. Whatever the workers, lanes and size of epochs, and
on nodes whatever happens to these: the rows, their order, the counts (late records among them), the
dead letters and the failure are those of the plain loop, bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.testing import assert_same, sequential
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.random_jobs import timed_graphs
from tests.property.live_jobs import Live, pushing, row_by_row, with_feeds

if TYPE_CHECKING:
    from plait.graph.operators import Graph

TIMEOUT_S = 60.0
"""A run that takes longer hangs."""
WORKERS = (1, 2, 4)
EPOCHS = (1, 2, 3, 7, 64, 4096)
MORE = 2
"""How many times the examples of other properties: this is the test that all of time is under."""

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
more = settings(slow, max_examples=MORE * settings().max_examples)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def run_settings(draw: Any) -> dict[str, Any]:
    """Settings of a run, all of which must give the same answer."""
    found = {
        "workers": draw(st.sampled_from(WORKERS)),
        "lanes": draw(st.sampled_from([None, 1, 2, 4, 8])),
        "bin_bits": draw(st.sampled_from([10, 3, 4, 6])),
        "epoch_records": draw(st.sampled_from(EPOCHS)),
        "scheduler": draw(st.sampled_from(["ct", "lru"])),
        "threading": draw(st.sampled_from(["dynamic", "dynamic", "dedicated", "manual"])),
        "fuse": draw(st.booleans()),
        "timeout": TIMEOUT_S,
    }
    if draw(st.integers(0, 3)) == 0:
        found |= {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    if draw(st.integers(0, 5)) == 0:
        found["limit"] = draw(st.integers(0, 20))
    return found


@more
@given(graph=timed_graphs(), chosen=run_settings())
def test_any_timed_job(graph: Graph, chosen: dict[str, Any]) -> None:
    assert_same(graph, chosen)


@slow
@given(graph=timed_graphs(max_rows=25), epoch_records=st.sampled_from(EPOCHS))
def test_the_same_at_any_number_of_workers(graph: Graph, epoch_records: int) -> None:
    for workers in WORKERS:
        chosen = {"workers": workers, "epoch_records": epoch_records, "timeout": TIMEOUT_S}
        assert_same(graph, chosen)


@slow
@given(graph=timed_graphs(max_rows=120, max_steps=2), chosen=run_settings())
def test_many_small_epochs(graph: Graph, chosen: dict[str, Any]) -> None:
    """More epochs than any ring has slots, at the most workers."""
    assert_same(graph, {**chosen, "epoch_records": 1, "workers": 4})


def on_nodes(chosen: dict[str, Any]) -> dict[str, Any]:
    """Settings with few workers and bins, so that bins that move have something in them."""
    return {**chosen, "workers": min(chosen["workers"], 2), "bin_bits": 4}


@slow
@given(
    graph=timed_graphs(max_rows=40).map(row_by_row),
    count=st.sampled_from([2, 3, 1]),
    seed=seeds,
    chosen=run_settings().map(on_nodes),
)
def test_any_timed_job_on_any_nodes(
    graph: Graph, count: int, seed: int, chosen: dict[str, Any]
) -> None:
    """Bins move in every way, nodes join and leave, connections break, the job is stopped."""
    assert_same_on_nodes(graph, chosen, nodes=count, seed=seed)


@slow
@given(
    graph=timed_graphs(max_rows=100, max_steps=2).map(row_by_row),
    count=st.sampled_from([2, 3]),
    seed=seeds,
    chosen=run_settings().map(on_nodes),
)
def test_state_moves_in_the_middle(
    graph: Graph, count: int, seed: int, chosen: dict[str, Any]
) -> None:
    """An epoch is one record, so that windows are open and timers set whenever bins move."""
    assert_same_on_nodes(graph, {**chosen, "epoch_records": 1}, nodes=count, seed=seed)


@slow
@given(
    found=timed_graphs(max_rows=40, sources=(1,)).map(with_feeds),
    size=st.integers(1, 9),
    chosen=run_settings(),
)
def test_a_live_source(found: Live, size: int, chosen: dict[str, Any]) -> None:
    """Rows come while the job runs; the epochs are those that the run had."""
    graph, rows = found
    chosen.pop("limit", None)
    with pushing(rows, [size]):
        assert_same(graph, chosen)


@slow
@given(graph=timed_graphs(max_rows=25), epoch_records=st.sampled_from(EPOCHS))
def test_the_laws_of_the_plain_loop(graph: Graph, epoch_records: int) -> None:
    """Every record is accounted for, at each operator and in all; cuts repeat a run."""
    one = sequential(graph, epoch_records=epoch_records)
    if one.failure is None:
        assert one.account.difference == 0
        assert all(counts.difference == 0 for counts in one.operators)
    again = sequential(graph, epoch_records=4096, cuts=one.cuts)
    assert again.operators == one.operators
    assert again.beyond.keys() == one.beyond.keys()
