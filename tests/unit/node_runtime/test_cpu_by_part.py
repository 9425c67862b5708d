"""Processor time by sub-pipeline, on every entry point: measured against functions that use a
known amount of it, and against what the whole process has used."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.testing.nodes import run_on_nodes

if TYPE_CHECKING:
    from plait.execution.local_run import LocalRun
    from plait.node_runtime.assembly.task_loads import CpuUse
    from plait.protocol.part_use import PartUse
    from plait.results.result import Result

RECORDS, EACH_S = 60, 0.005
BURNT_S = RECORDS * EACH_S
ROWS = 20_000_000


def burn(record: Any) -> Any:
    """Uses so much processor time, however busy the machine is."""
    until = time.thread_time() + EACH_S
    while time.thread_time() < until:
        pass
    return record


async def burn_async(record: Any) -> Any:
    return burn(record)


def burning(function: Any = burn) -> plait.Job:
    """One branch burns, the other one does nearly nothing."""
    job = plait.Job("burning")
    table = pa.table({"k": [n % 7 for n in range(RECORDS)], "v": list(range(RECORDS))})
    rows = job.source(plait.Table(table), name="in")
    rows.key_by("k").count().sink(plait.Discard(), name="counts")
    verb = rows.map_async if function is burn_async else rows.map
    verb(function).sink(plait.Discard(), name="slow")
    return job


def by_name(result: Result | LocalRun) -> dict[str, PartUse]:
    tasks = result.tasks() if callable(result.tasks) else result.tasks
    return {part.name: part for part in tasks}


def check_burnt(result: Result) -> None:
    parts = by_name(result)
    assert list(parts) == ["in", "counts", "slow", "sinks"]
    assert parts["slow"].cpu_s == pytest.approx(BURNT_S, rel=0.25)
    assert parts["slow"].cpu_s >= 0.98 * BURNT_S
    others = sum(part.cpu_s for name, part in parts.items() if name != "slow")
    assert others < 0.25 * BURNT_S
    assert [part.taken for part in parts.values()] == [RECORDS, RECORDS, RECORDS, 2 * RECORDS]
    assert all(part.offered == part.taken and not part.waiting for part in parts.values())


@pytest.mark.parametrize(
    ("function", "settings"),
    [
        (burn, {"workers": 1, "pool": 0}),
        (burn, {"workers": 2, "pool": 0}),
        (burn, {"workers": 2, "pool": 2}),
        (burn, {"threading": "dedicated", "pool": 0}),
        (burn_async, {"workers": 2}),
    ],
)
def test_what_a_function_uses_is_its_sub_pipelines(function: Any, settings: Any) -> None:
    check_burnt(plait.run(burning(function), epoch_records=2, progress=False, **settings))


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_a_function_uses_on_nodes(nodes: int) -> None:
    check_burnt(run_on_nodes(burning(), nodes, epoch_records=2, workers=1, pool=0))


def counting() -> plait.Job:
    """Native work alone."""
    job = plait.Job("counting")
    rows = job.source(plait.Rate(1e9, total=ROWS), name="in").with_columns(k=col("seq") % 1000)
    rows.key_by("k").aggregate(n=plait.count(), s=plait.sum("seq")).sink(
        plait.Discard(), name="out"
    )
    return job


def holds(cpu: CpuUse) -> bool:
    """The sum law: sub-pipelines, and workers outside of them, are what the process uses."""
    return 0.9 * cpu.total_s <= cpu.tasks_s + cpu.rest_s <= 1.02 * cpu.total_s


@pytest.mark.parametrize("workers", [1, 2])
def test_all_sub_pipelines_together_use_what_the_process_uses(workers: int) -> None:
    running = plait.start(counting(), workers=workers)
    assert running.engine.wait(60.0)
    loads = running.task_loads
    cpu = loads.cpu(loads.reports())
    running.wait(progress=False)
    assert holds(cpu), cpu
    assert cpu.tasks_s > 0.5 * cpu.total_s
    # A stage that is forgotten is found: the one with the most.
    times = loads.engine_parts.engine.stage_times()
    most_s = max(ns for ns, *_ in times) / 1e9
    assert not holds(replace(cpu, tasks_s=cpu.tasks_s - most_s)), times
