"""Random jobs with their plain Python functions in worker processes, against the plain loop.

Every function is forced through the pool, one or two of the worker processes are killed at random
moments, and the answer is the same: outputs, counts, dead letters and the failure that ends a run.
On several nodes each has a pool of its own.
"""

from __future__ import annotations

import dataclasses
import random
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from plait.graph import CallNode
from plait.testing import assert_same
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.strategies import graphs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.graph import Graph

# Every case starts processes, so there are fewer of them.
slow = settings(
    max_examples=max(1, settings().max_examples // 4),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
slower = settings(slow, max_examples=max(1, settings().max_examples // 10))
seeds = st.integers(0, 2**32 - 1)


def pooled(graph: Graph) -> Graph:
    """The job with every function on its way to the pool, if it has any."""
    assume(any(isinstance(node, CallNode) for node in graph.nodes))
    nodes = tuple(
        dataclasses.replace(node, route="pool") if isinstance(node, CallNode) else node
        for node in graph.nodes
    )
    return dataclasses.replace(graph, nodes=nodes)


@st.composite
def run_settings(draw: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "workers": draw(st.integers(1, 3)),
        "pool": draw(st.integers(1, 3)),
        "epoch_records": draw(st.sampled_from([1, 3, 7, 64])),
        "timeout": 60.0,
    }
    if draw(st.booleans()):
        found |= {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    if draw(st.booleans()):
        found |= {"reorder": "locked"}
    return found


def zygotes() -> list[psutil.Process]:
    """Those of the pools: a Ray or a Java process of other tests may be there, too."""
    children = psutil.Process().children()
    return [child for child in children if any("pool_zygote" in word for word in child.cmdline())]


@contextmanager
def killing(seed: int, most: int = 2) -> Iterator[None]:
    """Kills up to `most` worker processes (a third death could be a batch's end) meanwhile."""
    over = threading.Event()
    dice = random.Random(seed)

    def kill() -> None:
        left = most
        while left and not over.wait(dice.random() * 0.01):
            with suppress(psutil.Error):
                workers = [worker for zygote in zygotes() for worker in zygote.children()]
                if workers and dice.random() < 0.3:
                    dice.choice(workers).kill()
                    left -= 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
    assume(not any(isinstance(n, CallNode) and n.mode == "batches" for n in found.nodes))
    assert_same_on_nodes(found, chosen, nodes=2, seed=seed)
