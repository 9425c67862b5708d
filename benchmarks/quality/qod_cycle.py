"""One cycle of the quality-of-data controller on clusters of 10 to 100,000 tasks.

Every job has a source and three queries of drawn priority and floor, four tasks each; together they
need 1.6 times what the hosts have, so that every step is taken: costs are learnt, the CPU is shared
by priority, moves are looked for, reasons are written. The paper's controller needs 115 ms (median)
for 2,000 tasks on two hosts.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from time import perf_counter, process_time
from typing import Any

from benchmarks.quality.clusters import many
from benchmarks.support.common import CheckFailed, Options
from plait.shedding.controller import decide
from plait.shedding.view import Memory
from plait.shedding.words import QualityPolicy

SIZES = ((10, 2), (100, 2), (1000, 2), (2000, 2), (2000, 200), (10_000, 100), (100_000, 1000))
"""Tasks and hosts."""
PAPER_MS = 115.0


def cycles(tasks: int, hosts: int, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of wall and processor time of every cycle after the first three."""
    view, memory, policy = many(tasks=tasks, hosts=hosts), Memory(), QualityPolicy()
    wall: list[float] = []
    cpu: list[float] = []
    for at in range(rounds + 3):
        # The load swings, so that ratios change.
        load = 1.0 + 0.3 * (at % 3)
        injected = view.parts.injected * load
        seen = replace(view, at=float(at), parts=replace(view.parts, injected=injected))
        began, used = perf_counter(), process_time()
        decision, memory = decide(seen, policy, memory, seen.at)
        wall.append((perf_counter() - began) * 1e3)
        cpu.append((process_time() - used) * 1e3)
        broken = (decision.keep < view.queries.floor - 1e-9).sum()
        if broken:
            raise CheckFailed(f"{broken} queries are below their floors")
    return wall[3:], cpu[3:]


def run(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tasks, hosts in SIZES:
        wall, cpu = cycles(tasks, hosts, options.repeat(9, 51))
        found[f"{tasks} tasks, {hosts} hosts"] = {
            "ms": round(median(wall), 2),
            "worst_ms": round(max(wall), 2),
            "cpu_ms": round(median(cpu), 2),
        }
    at_2000 = found["2000 tasks, 2 hosts"]["ms"]
    return {"cycles": found, "paper_over_ours_at_2000": round(PAPER_MS / at_2000, 1)}


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    groups = {name: {"ms": one["ms"]} for name, one in figures["cycles"].items()}
    bars(file, [("One cycle of the controller", "milliseconds", groups)])
