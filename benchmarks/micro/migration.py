"""State that moves between two nodes while records flow: worst latency and duration by strategy.

A running count by key, after the published set-up: one record of each key is counted first, then
keys come at random at a fixed rate that does not slow down when the system does, and latency runs
from the time a record was due. A quarter of the state is first moved from node 0 to node 1 (not
measured), then moved back (measured). `hash` has random 64-bit keys, `key` the keys 0, 1, 2, ...;
a `cold` case measures the first move, to memory that was never used. `none` is a stretch of time
without any migration: its worst latency is the machine's own, `noise_ms`. Sizes are 16 bytes for
every key and its count. Runs in which the whole machine stood still
(`benchmarks/support/stalls.py`) are marked and left out of the medians as long as others are left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.common import (
    BUILD,
    Budget,
    CheckFailed,
    Options,
    budget_of,
    check_equal,
    progress,
    ratio,
)
from benchmarks.support.migrating import (
    between,
    joined,
    max_ms,
    migrate,
    percentile_ms,
    settle,
    sizes_of,
    windows,
)
from benchmarks.support.nodes import Nodes, Recipe
from benchmarks.support.stalls import Stalls
from plait.migration.bins import initial
from plait.migration.plan import STRATEGIES, Strategy

if TYPE_CHECKING:
    from pathlib import Path

NODES = 2
RATE_PER_S = 10_000_000.0
"""Or a part of what the nodes can do, where that is less."""
LOAD = 0.35
EPOCH = 4096
"""Records a node."""
KEY_BYTES = 16
RANDOM_ROWS = 8_000_000
LEAD_S = 0.25
"""Watched before a migration begins, and at least behind it."""
QUIET_S = 1.0
"""How long `none` lasts."""
WINDOW_S = 0.05
NONE = "none"
STALL_MS = 5.0
"""A run in which the machine stood still for longer is disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One state that is moved by every strategy in turn."""

    kind: str
    state_mb: int
    bin_bits: int
    share: float = 0.25
    """Of the state, what moves."""
    cold: bool = False

    @property
    def keys(self) -> int:
        return self.state_mb * 1_000_000 // KEY_BYTES

    @property
    def name(self) -> str:
        cold = ", cold" if self.cold else ""
        share = "" if self.share == 0.25 else f", {self.share:.0%} moves"
        return f"{self.kind} {self.state_mb} MB, 2^{self.bin_bits} bins{share}{cold}"

    @property
    def balanced(self) -> tuple[int, ...]:
        return initial(1 << self.bin_bits, range(NODES)).owners

    @property
    def unbalanced(self) -> tuple[int, ...]:
        """Some bins of node 0, spread over all it has, are at node 1."""
        owners = list(self.balanced)
        own = [bin for bin, owner in enumerate(owners) if owner == 0]
        moving = int(len(owners) * self.share)
        for i in range(moving):
            owners[own[i * len(own) // moving]] = 1
        return tuple(owners)


def scattered(numbers: Any) -> Any:
    """A 64-bit key for each number, no two alike (a mixer that can be undone)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).view(np.int64)


def write_keys(case: Case, path: Path) -> None:
    """Every key once, then random ones."""
    drawn = np.random.default_rng(7).integers(0, case.keys, RANDOM_ROWS, dtype=np.int64)
    every = np.arange(case.keys, dtype=np.int64)
    with path.open("wb") as file:
        for numbers in (every, drawn):
            (scattered(numbers) if case.kind == "hash" else numbers).tofile(file)


def counting(path: str, keys: int, rows: int, rate: float | None, collect: bool) -> Any:
    """The job, made in the process that runs it: the random part of the file over and over."""
    import pyarrow as pa

    mapped = np.memmap(path, np.int64, mode="r")
    first = pa.table({"key": pa.array(mapped[:keys])})
    rest = pa.table({"key": pa.array(np.array(mapped[keys:]))})
    times = max(0, rows - keys) // rest.num_rows + 1
    table = pa.concat_tables([first, *[rest] * times]).slice(0, rows)
    sink = plait.Collect(label="out") if collect else plait.Discard()
    return plait.stream(plait.Table(table, rate_per_s=rate)).key_by("key").count().sink(sink)


def settings(case: Case) -> dict[str, Any]:
    return {"workers": 1, "epoch_records": EPOCH * NODES, "bin_bits": case.bin_bits}


def check(nodes: Nodes, path: Path) -> None:
    """All strategies in one short run, row by row beside the run in one process."""
    case = Case(kind="hash", state_mb=1, bin_bits=6)
    write_keys(case, path)
    rate, rows = 500_000.0, 1_000_000
    given = (str(path), case.keys, rows, rate, True)
    wanted = plait.run(counting(str(path), case.keys, rows, 1e9, True), workers=1).outputs["out"]
    chosen = settings(case) | {"epoch_records": 512}
    nodes.begin(Recipe(counting, given, chosen), case.balanced)
    for strategy in STRATEGIES:
        for owners in (case.unbalanced, case.balanced):
            moved = migrate(nodes, owners, strategy, sizes_of(nodes), rate / 512)
            if not moved.bins:
                raise CheckFailed(f"{strategy}: nothing moved")
    found = nodes.finish().outputs["out"]
    for column in ("key", "count"):
        check_equal(f"after migrations: {column}", found[column], wanted[column])


def rate_for(nodes: Nodes, path: Path) -> float:
    """What the nodes are to carry, from a run without pace."""
    case = Case(kind="hash", state_mb=32, bin_bits=10)
    write_keys(case, path)
    nodes.begin(
        Recipe(counting, (str(path), case.keys, 16_000_000, None, False), settings(case)),
        case.balanced,
    )
    return min(RATE_PER_S, round(nodes.finish().records_per_s * LOAD, -5))


def start(nodes: Nodes, case: Case, path: Path, rate: float, patience_s: float) -> None:
    """Begins, and waits until every key is counted and nothing is behind."""
    owners = case.unbalanced if case.cold else case.balanced
    given = (str(path), case.keys, int(rate * 900), rate, False)
    nodes.begin(Recipe(counting, given, settings(case)), owners)
    while sum(report.delivered for report in nodes.reports()) < case.keys:
        time.sleep(0.05)
    settle(nodes, patience_s)


def one(
    nodes: Nodes,
    stalls: Stalls,
    case: Case,
    strategy: str,
    epochs_per_s: float,
    patience_s: float,
) -> dict[str, Any]:
    """One measured migration, or a quiet stretch."""
    nodes.all("watch")
    time.sleep(LEAD_S)
    began = time.monotonic()
    figures: dict[str, Any] = {}
    if strategy == NONE:
        time.sleep(QUIET_S)
    else:
        given: Any = strategy
        moved = migrate(nodes, case.balanced, given, sizes_of(nodes), epochs_per_s)
        began = moved.asked
        figures = {
            "ready_s": round(moved.ready_s, 4),
            "duration_s": round(moved.seconds, 4),
            "moved_mb": round(moved.size_bytes / 1e6, 1),
            "mb_per_s": round(moved.size_bytes / 1e6 / moved.seconds, 1),
            "chunks": moved.rounds,
            "agreed_ms": round(moved.agreed_s * 1e3, 2),
        }
    time.sleep(LEAD_S)
    readings = joined(nodes.all("watched"))
    stall_ms = stalls.longest_ms(began, time.monotonic())
    # What is behind at the end of the watch is late by at least as much: it must have come, too.
    if strategy != NONE and not settle(nodes, patience_s):
        figures["backlog"] = True
    first = max((r for r in readings if r.at <= began), key=lambda r: r.at, default=readings[0])
    during = between(first, readings[-1])
    return {
        "max_latency_ms": round(max_ms(during), 3),
        "p99_ms": round(percentile_ms(during, 99.0), 3),
        "before_p99_ms": round(percentile_ms(between(readings[0], first), 99.0), 3),
        "stall_ms": round(stall_ms, 1),
        **figures,
        "timeline": windows(readings, WINDOW_S, began),
    }


def measure(
    nodes: Nodes, stalls: Stalls, case: Case, rate: float, options: Options, budget: Budget
) -> dict[str, Any]:
    path = BUILD / f"migration_{case.kind}.bin"
    patience_s = 3.0 if options.quick else 15.0
    write_keys(case, path)
    epochs_per_s = rate / (EPOCH * NODES)
    names = [*STRATEGIES, NONE]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    started = False
    for turn in range(options.repeat(3, 5)):
        began = time.monotonic()
        for name in names[:: 1 if turn % 2 == 0 else -1]:
            progress(f"{case.name} {turn + 1} {name}")
            if case.cold or not started:
                start(nodes, case, path, rate, patience_s)
                started = True
            if not case.cold and name != NONE:
                unbalance: Strategy = "all_at_once"
                migrate(nodes, case.unbalanced, unbalance, sizes_of(nodes), epochs_per_s)
                settle(nodes, patience_s)
            found[name].append(one(nodes, stalls, case, name, epochs_per_s, patience_s))
            if case.cold:
                nodes.stop()
        if budget.left < time.monotonic() - began:
            break
    if not case.cold:
        nodes.stop()
    path.unlink()
    return {name: summed(runs) for name, runs in found.items()}


def summed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of the runs; the timeline is that of the run in the middle. Disturbed runs count
    only if there is no other."""
    every, calm = runs, [run for run in runs if run["stall_ms"] <= STALL_MS]
    runs = calm or runs
    middle = sorted(runs, key=lambda run: float(run["max_latency_ms"]))[len(runs) // 2]
    made: dict[str, Any] = {
        name: round(median(float(run[name]) for run in runs), 4)
        for name in runs[0]
        if name not in ("timeline", "backlog")
    }
    if any(run.get("backlog") for run in runs):
        made["backlog"] = True
    made["max_latency_all_ms"] = [run["max_latency_ms"] for run in every]
    made["stall_all_ms"] = [run["stall_ms"] for run in every]
    made["timeline"] = middle["timeline"]
    return made


def cases(options: Options) -> list[Case]:
    """The first one gives the figures at the top."""
    if options.quick:
        return [
            Case(kind="hash", state_mb=128, bin_bits=10),
            Case(kind="key", state_mb=32, bin_bits=12),
        ]
    sizes = [Case(kind="hash", state_mb=mb, bin_bits=12) for mb in (1024, 64, 256)]
    bins = [Case(kind="hash", state_mb=256, bin_bits=bits) for bits in (4, 8, 16)]
    return [
        *sizes,
        *[Case(kind="key", state_mb=mb, bin_bits=12) for mb in (64, 256, 1024)],
        *bins,
        Case(kind="hash", state_mb=256, bin_bits=12, cold=True),
        Case(kind="hash", state_mb=2048, bin_bits=12, share=0.5),
    ]


def run(options: Options) -> dict[str, Any]:
    budget = budget_of(options)
    BUILD.mkdir(parents=True, exist_ok=True)
    chosen = cases(options)
    found: dict[str, dict[str, Any]] = {}
    with Nodes(NODES) as nodes, Stalls() as stalls:
        loopback = round(nodes.loopback_mb_per_s(), 1)
        progress("a check of all strategies")
        path = BUILD / "migration_check.bin"
        check(nodes, path)
        rate = rate_for(nodes, path)
        path.unlink()
        for i, case in enumerate(chosen):
            # The first case is the one that the figures at the top are of.
            share = Budget(budget.left * 0.7) if i == 0 else budget.part(len(chosen) - i)
            found[case.name] = measure(nodes, stalls, case, rate, options, share)
    main = found[chosen[0].name]
    worst = {name: float(main[name]["max_latency_ms"]) for name in STRATEGIES}
    # All records wait while the state moves, so the worst latency is the time of the move.
    speed = round(float(main["all_at_once"]["moved_mb"]) / worst["all_at_once"] * 1e3, 1)
    return {
        "max_latency_ms": worst,
        "duration_s": {name: main[name]["duration_s"] for name in STRATEGIES},
        "fluid_vs_all_at_once": ratio(worst["all_at_once"], worst["fluid"]),
        "optimised_vs_all_at_once": ratio(worst["all_at_once"], worst["optimised"]),
        "state_mb_per_s": speed,
        "loopback_mb_per_s": loopback,
        "vs_loopback": ratio(speed, loopback),
        "noise_ms": main[NONE]["max_latency_ms"],
        "case": chosen[0].name,
        "rate_m_per_s": rate / 1e6,
        "cases": found,
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import timelines

    panels = {
        name: {label: given["timeline"] for label, given in found.items()}
        for name, found in figures["cases"].items()
    }
    timelines(file, panels)
