"""The first paragraph of the README, to the letter.

"A job produces exactly what a plain `for` loop over the same input would: same rows, same order,
byte for byte, on any number of cores and nodes." The loop reads its input in one piece and knows
nothing of epochs; the runs cut it into epochs of any size, whatever a reader's polls give, and
share the work in any way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import plait
from plait.graph.operators import CallOp
from plait.graph.source_order import is_in_time
from plait.node_runtime.assembly.build import looks_at_clock
from plait.testing import sequential
from plait.testing.check import capturing, compare_outputs, rows_of
from plait.testing.nodes import run_on_nodes
from plait.testing.random_jobs import graphs, timed_graphs
from tests.property.pooled_jobs import pooled
from tests.property.promise.polls import in_pieces
from tests.property.test_time_laws import named_behind_sources

if TYPE_CHECKING:
    from plait.graph.operators import Graph

EPOCHS = (1, 2, 3, 5, 17, 4096)
TIMEOUT_S = 60.0

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
# Every case starts processes, so there are fewer of them.
few = settings(slow, max_examples=max(1, settings().max_examples // 4))
seeds = st.integers(0, 2**32 - 1)


def sees_cuts(graph: Graph) -> bool:
    """Whether a function of the job is given batches, and so sees where epochs are cut, or an
    operator goes by the wall clock."""
    return any(
        looks_at_clock(op) or (isinstance(op, CallOp) and op.mode == "batches")
        for op in graph.operators
    )


@st.composite
def ways(draw: Any) -> dict[str, Any]:
    """One way to run a job."""
    return {
        "epoch_records": draw(st.sampled_from(EPOCHS)),
        "workers": draw(st.sampled_from([1, 2, 4])),
        "lanes": draw(st.sampled_from([None, 1, 4])),
        "bin_bits": draw(st.sampled_from([3, 6])),
        "scheduler": draw(st.sampled_from(["ct", "lru"])),
        "threading": draw(st.sampled_from(["dynamic", "dedicated", "manual"])),
        "fuse": draw(st.booleans()),
        "timeout": TIMEOUT_S,
    }


def assert_exactly(graph: Graph, chosen: dict[str, Any], nodes: int) -> None:
    """What a run gives to its sinks is what the plain loop over the whole input gives."""
    wanted = sequential(graph, epoch_records=10**6, order=chosen.get("order"))
    captured, sinks = capturing(graph)
    failure = None
    try:
        if nodes:
            run_on_nodes(captured, nodes, **chosen)
        else:
            plait.run(captured, **chosen)
    except plait.RecordError as error:
        failure = error
    assert (failure is None) == (wanted.failure is None)
    outputs = {label: rows_of(sink, wanted.schemas[label]) for label, sink in sinks.items()}
    compare_outputs(f"{nodes} nodes, {chosen}", outputs, wanted, failure)


def has_an_order(graph: Graph) -> bool:
    """Whether the order is that of the records alone: of one source, or of several by time."""
    return len(graph.sources) == 1 or is_in_time(graph, None)


jobs = st.one_of(timed_graphs(), timed_graphs(sources=(2, 3)), graphs()).filter(has_an_order)


@slow
@given(graph=jobs, first=ways(), second=ways(), seed=seeds)
def test_exactly_what_a_plain_loop_gives(
    graph: Graph, first: dict[str, Any], second: dict[str, Any], seed: int
) -> None:
    assume(not sees_cuts(graph))
    assert_exactly(graph, first, 0)
    assert_exactly(in_pieces(graph, seed), second, 0)


@slow
@given(graph=jobs, chosen=ways(), nodes=st.sampled_from([1, 2, 3]), seed=st.none() | seeds)
def test_on_any_number_of_nodes(
    graph: Graph, chosen: dict[str, Any], nodes: int, seed: int | None
) -> None:
    assume(not sees_cuts(graph))
    assert_exactly(graph if seed is None else in_pieces(graph, seed), chosen, nodes)


@slow
@given(
    graph=timed_graphs(sources=(2, 3)).filter(has_an_order),
    chosen=ways(),
    nodes=st.sampled_from([0, 0, 2]),
    seed=st.none() | seeds,
)
def test_sources_with_computed_times(
    graph: Graph, chosen: dict[str, Any], nodes: int, seed: int | None
) -> None:
    assume(not sees_cuts(graph))
    named = named_behind_sources(graph)
    assert_exactly(named if seed is None else in_pieces(named, seed), chosen, nodes)


@few
@given(
    graph=jobs,
    chosen=ways(),
    pool=st.integers(1, 3),
    nodes=st.sampled_from([0, 0, 0, 2]),
    seed=seeds,
)
def test_with_functions_in_worker_processes(
    graph: Graph, chosen: dict[str, Any], pool: int, nodes: int, seed: int
) -> None:
    assume(not sees_cuts(graph))
    away = in_pieces(pooled(graph), seed)
    assert_exactly(away, {**chosen, "pool": 1 if nodes else pool}, nodes)
