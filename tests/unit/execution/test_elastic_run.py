"""Runs whose workers come and go: settings, the log in the result, suspended threads, nodes."""

from __future__ import annotations

import gc
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.errors import JobError
from plait.execution.local_run import start
from plait.graph.explain import explain
from plait.model.settings import Settings, usable_cores
from plait.testing.nodes import run_on_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.node_runtime.native._engine import NativeEngine

ROWS = [{"k": n % 7, "v": n} for n in range(3000)]
ELASTIC: dict[str, Any] = {
    "workers": "elastic",
    "max_workers": 4,
    "elastic_period_ms": 1,
    "epoch_records": 16,
}
HANGS_S = 30.0


def until(happened: Callable[[], bool]) -> None:
    """Waits for a condition; what takes this long hangs."""
    deadline = time.monotonic() + HANGS_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.001)


def counted() -> plait.Job:
    job = plait.Job("counted")
    stream = job.source(plait.Items(ROWS)).map(lambda r: {"k": r.k, "v": r.v + 1})
    stream.key_by("k").sum("v").sink(plait.Collect(), name="sums")
    return job


def endless() -> plait.Job:
    job = plait.Job("endless")
    stream = job.source(plait.Rate(1e6)).with_columns(n=col("seq") % 97)
    stream.key_by("n").count().sink(plait.Discard())
    return job


def test_the_result_has_the_levels_and_why() -> None:
    found = plait.run(counted(), **ELASTIC)
    plain = plait.run(counted(), workers=1, epoch_records=16)
    assert found.outputs["sums"].equals(plain.outputs["sums"])
    assert found.account == plain.account
    assert plain.levels == ()
    for before, after in zip(found.levels, found.levels[1:], strict=False):
        assert before.at_s <= after.at_s
        assert before.next_level == after.level
    assert all(1 <= step.level <= 4 and step.reason for step in found.levels)


def test_the_level_falls_where_more_workers_gain_nothing() -> None:
    """A source with a rate: any level keeps up, so the least one is enough."""
    running = start(endless(), workers="elastic", max_workers=3, elastic_period_ms=20)
    watch = running.elastic
    assert watch is not None
    until(lambda: any(step.level == 1 for step in tuple(watch.levels)))
    running.stop()
    result = running.wait()
    assert result.levels[0].level == 3
    assert result.account.difference == 0


def active_are(engine: NativeEngine, level: int) -> bool:
    return engine.load()[2] == level


def reads_past(engine: NativeEngine, records: int) -> bool:
    read: int = engine.records_read()
    return read > records


def test_suspended_workers_sleep_and_come_back() -> None:
    running = start(endless(), workers=4)
    engine = running.engine
    for level in (1, 4, 2, 3, 1):
        engine.set_level(level)
        until(partial(active_are, engine, level))
        until(partial(reads_past, engine, engine.records_read()))  # the others go on
    engine.set_level(0)
    until(lambda: engine.load()[2] == 1)
    engine.set_level(99)
    until(lambda: engine.load()[2] == 4)
    engine.set_level(1)
    running.stop()
    assert running.wait().account.difference == 0


def test_a_suspended_worker_uses_no_processor_time() -> None:
    running = start(endless(), workers=3)
    running.engine.set_level(1)
    until(lambda: running.engine.load()[2] == 1)
    used = {
        task: ticks for task, ticks in worker_ticks().items() if not task.startswith("plait-w0")
    }
    read = running.engine.records_read()
    until(partial(reads_past, running.engine, read + 300_000))
    after = worker_ticks()
    assert all(after[task] - ticks <= 1 for task, ticks in used.items())  # a tick of the kernel
    running.abort()
    with pytest.raises(plait.Interrupted):
        running.wait()


def worker_ticks() -> dict[str, int]:
    """Processor time of each worker's thread, from the kernel."""
    import psutil

    found: dict[str, int] = {}
    for task in psutil.Process().threads():
        with open(f"/proc/self/task/{task.id}/stat") as stat:
            name, rest = stat.read().split("(", 1)[1].rsplit(")", 1)
        if name.startswith("plait-w"):
            fields = rest.split()
            found[name] = int(fields[11]) + int(fields[12])
    return found


def test_nothing_is_left_of_a_run_that_nobody_waits_for() -> None:
    running = start(endless(), **{**ELASTIC, "stage_parallelism": "elastic"})
    assert any(thread.name == "plait-elastic" for thread in threading.enumerate())
    running.abort()
    del running
    gc.collect()
    until(lambda: all(thread.name != "plait-elastic" for thread in threading.enumerate()))


def test_every_node_has_a_level_of_its_own() -> None:
    found = run_on_nodes(counted(), 2, stage_parallelism="elastic", **ELASTIC)
    plain = plait.run(counted(), workers=1, epoch_records=16)
    assert found.outputs["sums"].equals(plain.outputs["sums"])
    assert {step.node for step in found.levels} <= {0, 1}


def test_stages_begin_with_one_worker() -> None:
    running = start(endless(), workers=4, stage_parallelism="elastic", elastic_period_ms=3_600_000)
    loads = running.engine.stage_loads()
    assert {degree for _, _, degree, _, _ in loads} == {1}
    assert {most for _, _, _, most, _ in loads} == {1, 4}
    assert [after for *_, after in loads] == [[1], [2], []]
    running.stop()
    assert running.wait().degrees == ()


def test_stages_with_a_fixed_degree() -> None:
    running = start(endless(), workers=4, stage_parallelism=3)
    assert [degree for _, _, degree, _, _ in running.engine.stage_loads()] == [1, 3, 1]
    running.stop()
    assert running.wait().account.difference == 0


def test_a_full_worklist_counts_as_blocked() -> None:
    """A slow sink: the stages before it wait, and it is the one whose worklist is full."""
    gate = threading.Semaphore(0)
    job = plait.Job("blocked")
    stream = job.source(plait.Table(pa.Table.from_pylist(ROWS))).filter(col("v") >= 0)
    stream.sink(plait.Call(lambda row: gate.acquire()))
    running = start(job, workers=2, epoch_records=1, queue_batches=4)
    engine = running.engine

    def blocked() -> list[int]:
        return [full for _, full, *_ in engine.stage_loads()]

    until(lambda: min(blocked()[1:]) > 0)
    before = blocked()
    until(lambda: min(blocked()[1:]) > max(before[1:]))  # it goes on while nothing moves
    gate.release(len(ROWS))
    assert running.wait().account.delivered == len(ROWS)
    before = blocked()
    assert blocked() == before  # and ends when there is room


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": "many"}, "workers is 'many'; it must be a number or \"elastic\""),
        ({"workers": 2, "max_workers": 4}, 'need workers="elastic"'),
        ({"min_workers": 2}, 'need workers="elastic"'),
        ({"workers": "elastic", "min_workers": 3, "max_workers": 2}, "max_workers is 2"),
        ({"workers": "elastic", "min_workers": 0}, "min_workers is 0"),
        ({"workers": "elastic", "elastic_rule": "luck"}, "elastic_rule is 'luck'"),
        ({"workers": "elastic", "elastic_period_ms": 0}, "elastic_period_ms is 0"),
        ({"workers": "elastic", "threading": "dedicated"}, 'needs threading="dynamic"'),
        ({"stage_parallelism": "some"}, 'stage_parallelism \\(or "free", "elastic"\\) is \'some\''),
        ({"stage_parallelism": 0}, "it must be a whole number from 1"),
    ],
)
def test_settings_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message):
        Settings(**given)


def test_threads_are_the_most_workers() -> None:
    assert Settings(workers=3).threads == 3
    assert Settings(workers="elastic", max_workers=5).threads == 5
    assert Settings(workers="elastic").threads == usable_cores()
    assert Settings(workers="elastic", min_workers=64).threads == 64


def test_explain_says_so() -> None:
    chosen = Settings(workers="elastic", max_workers=4, stage_parallelism="elastic")
    text = explain(counted().graph(), chosen)
    assert "1 to 4 workers by throughput, those of each stage by its worklist" in text
