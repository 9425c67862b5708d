"""Random jobs with their plain Python functions in worker processes, against the plain loop.

Every function, with and without state, is forced through the pool, one or two of the worker
processes are killed at random moments, and the answer is the same: outputs, counts, dead letters
and the failure that ends a run. On several nodes each has a pool of its own, and bins move between
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from plait.graph.operators import CallOp
from plait.testing import assert_same
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.random_jobs import graphs, timed_graphs
from tests.property.pooled_jobs import has_state, killing, pooled, run_settings

if TYPE_CHECKING:
    from plait.graph.operators import Graph

# Every case starts processes, so there are fewer of them.
slow = settings(
    max_examples=max(1, settings().max_examples // 4),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
slower = settings(slow, max_examples=max(1, settings().max_examples // 10))
seeds = st.integers(0, 2**32 - 1)


@slow
@given(graph=graphs(max_rows=60), chosen=run_settings())
def test_any_job_through_the_pool(graph: Graph, chosen: dict[str, Any]) -> None:
    assert_same(pooled(graph), chosen)


@slow
@given(graph=graphs(max_rows=150, max_steps=4), chosen=run_settings(), seed=seeds)
def test_worker_processes_die_meanwhile(graph: Graph, chosen: dict[str, Any], seed: int) -> None:
    with killing(seed):
        assert_same(pooled(graph), {**chosen, "epoch_records": 1})


@slower
@given(graph=graphs(max_rows=40), seed=seeds)
def test_nodes_with_pools_of_their_own(graph: Graph, seed: int) -> None:
    chosen = {"workers": 1, "pool": 1, "epoch_records": 7, "bin_bits": 3, "timeout": 60.0}
    found = pooled(graph)
    assume(not any(isinstance(n, CallOp) and n.mode == "batches" for n in found.operators))
    assert_same_on_nodes(found, chosen, nodes=2, seed=seed)


@slow
@given(graph=graphs(max_rows=60).filter(has_state), chosen=run_settings())
def test_any_state_in_the_pool(graph: Graph, chosen: dict[str, Any]) -> None:
    assert_same(pooled(graph), chosen)


@slow
@given(graph=timed_graphs(max_rows=40).filter(has_state), chosen=run_settings())
def test_any_process_with_timers_in_the_pool(graph: Graph, chosen: dict[str, Any]) -> None:
    assert_same(pooled(graph), chosen)


@slow
@given(
    graph=st.one_of(
        graphs(max_rows=150, max_steps=4).filter(has_state),
        timed_graphs(max_rows=80, max_steps=2).filter(has_state),
    ),
    chosen=run_settings(),
    seed=seeds,
)
def test_processes_with_state_die_meanwhile(
    graph: Graph, chosen: dict[str, Any], seed: int
) -> None:
    with killing(seed):
        assert_same(pooled(graph), {**chosen, "epoch_records": 1})


@slower
@given(
    graph=st.one_of(
        graphs(max_rows=40).filter(has_state), timed_graphs(max_rows=40).filter(has_state)
    ),
    count=st.sampled_from([2, 3]),
    processes=st.integers(1, 2),
    seed=seeds,
    kills=st.integers(0, 2),
)
def test_state_moves_between_the_pools_of_nodes(
    graph: Graph, count: int, processes: int, seed: int, kills: int
) -> None:
    chosen = {"workers": 1, "pool": processes, "epoch_records": 3, "bin_bits": 3, "timeout": 60.0}
    found = pooled(graph)
    assume(not any(isinstance(n, CallOp) and n.mode == "batches" for n in found.operators))
    with killing(seed, kills):
        assert_same_on_nodes(found, chosen, nodes=count, seed=seed)
