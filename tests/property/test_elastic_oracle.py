"""Workers that come and go, and stages that take more or fewer of them, against the oracle.

While random jobs run, a thread sets the level of workers and the limits of stages at random, as
fast as it can: on one node and on several, the answer is that of the plain loop, bit for bit.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.execution.local_run import LocalRun
from plait.node_runtime.host import agent
from plait.testing import assert_same
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.random_jobs import graphs
from tests.property.live_jobs import row_by_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.graph.operators import Graph
    from plait.node_runtime.native._engine import NativeEngine
    from plait.results.result import DegreeStep, LevelStep

TIMEOUT_S = 60.0
MOST = 4
slow = settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
seeds = st.integers(0, 2**32 - 1)


class RandomLevels:
    """In place of what adapts a run: changes everything at random."""

    def __init__(self, engine: NativeEngine, seed: int) -> None:
        self.engine = engine
        self.chance = random.Random(seed)
        self.stages = len(engine.stage_loads())
        self.levels: tuple[LevelStep, ...] = ()
        self.degrees: tuple[DegreeStep, ...] = ()
        self.over = threading.Event()
        for stage in range(self.stages):
            engine.set_stage_limit(stage, self.chance.randint(1, MOST))
        engine.set_level(self.chance.randint(1, MOST))
        self.thread = threading.Thread(target=self.change, name="plait-random-levels")
        self.thread.start()

    def change(self) -> None:
        while not self.over.wait(0.0002):
            self.engine.set_level(self.chance.randint(0, MOST + 1))
            self.engine.set_stage_limit(
                self.chance.randrange(self.stages), self.chance.randint(0, MOST)
            )
            assert 1 <= self.engine.load()[2] <= MOST

    def stop(self) -> None:
        self.over.set()
        self.thread.join()


@contextmanager
def random_levels(seed: int) -> Iterator[None]:
    numbers = itertools.count(seed)

    def changed(engine: NativeEngine, settings: Any) -> RandomLevels:
        return RandomLevels(engine, next(numbers))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[LocalRun.__module__], "start_watch", changed)
        patch.setattr(agent, "start_watch", changed)
        yield


@st.composite
def run_settings(draw: Any) -> dict[str, Any]:
    found = {
        "workers": MOST,
        "queue": draw(st.sampled_from(["lanes", "hybrid", "partitioned", "shared"])),
        "scheduler": draw(st.sampled_from(["ct", "qst", "lru", "max_queue"])),
        "reorder": draw(st.sampled_from(["nonblocking", "locked"])),
        "lanes": draw(st.sampled_from([None, 1, 2, 8])),
        "bin_bits": draw(st.sampled_from([4, 0, 1, 10])),
        "epoch_records": draw(st.sampled_from([1, 2, 7])),
        "slice_us": draw(st.sampled_from([1, 200])),
        "timeout": TIMEOUT_S,
    }
    if draw(st.booleans()):
        found |= {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    return found


@slow
@given(graph=graphs(max_rows=150, max_steps=5), chosen=run_settings(), seed=seeds)
def test_any_job_while_workers_come_and_go(graph: Graph, chosen: dict[str, Any], seed: int) -> None:
    with random_levels(seed):
        assert_same(graph, chosen)


@slow
@given(graph=graphs(max_rows=60).map(row_by_row), seed=seeds, chosen=run_settings())
def test_any_job_on_nodes_while_workers_come_and_go(
    graph: Graph, seed: int, chosen: dict[str, Any]
) -> None:
    del chosen["queue"], chosen["reorder"]
    with random_levels(seed):
        assert_same_on_nodes(graph, chosen, nodes=2, seed=seed)


@slow
@given(
    graph=graphs(max_rows=150, max_steps=4),
    rule=st.sampled_from(["trend", "utilisation"]),
    least=st.integers(1, 2),
    stages=st.sampled_from(["free", "elastic"]),
)
def test_any_job_with_elastic_workers(graph: Graph, rule: str, least: int, stages: str) -> None:
    chosen = {
        "workers": "elastic",
        "min_workers": least,
        "max_workers": MOST,
        "elastic_rule": rule,
        "elastic_period_ms": 1,
        "stage_parallelism": stages,
        "epoch_records": 1,
        "timeout": TIMEOUT_S,
    }
    assert_same(graph, chosen)
