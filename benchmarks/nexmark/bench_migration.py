"""NEXMark's Q3 to Q8 over two nodes while half of the state moves to one of them and back.

Input comes at a fixed rate that does not slow down when the system does, and latency runs from the
time a record was due. Each run has two migrations by one strategy: a quarter of the bins from node
0 to node 1, then back. The timelines are those of Fig. 7 to 12 of the published work; `max_ms` is
the worst latency from the first move on, `noise_ms` that of as long a stretch without any.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import plait
from benchmarks.nexmark.native import tables
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.schema import Shape
from benchmarks.support.common import CheckFailed, Options, budget_of, progress
from benchmarks.support.migrating import (
    between,
    joined,
    max_ms,
    migrate,
    percentile_ms,
    sizes_of,
    windows,
)
from benchmarks.support.nodes import Nodes, Recipe
from plait.migration.bins import initial
from plait.migration.plan import STRATEGIES

if TYPE_CHECKING:
    from plait.migration.plan import Strategy

NODES = 2
NAMES = ("q3", "q4", "q5", "q6", "q7", "q8")
BIN_BITS = 8
EPOCH = 4096
RATE_PER_S = 400_000.0
"""Events of all three streams together."""
WARM_S, BETWEEN_S, AFTER_S = 1.5, 0.6, 0.6
WINDOW_S = 0.05
SECONDS = 12.0
QUICK: tuple[Strategy, ...] = ("all_at_once", "fluid")


def query(name: str, rate: float, seconds: float) -> Any:
    """The job, made in the process that runs it."""
    made = tables(Shape(events=int(rate * seconds), events_per_s=int(rate / 10)))
    job = plait.Job(name)
    streams = {}
    for stream in QUERIES[name].streams:
        table = made[stream]
        pace = rate * table.num_rows / (rate * seconds)
        source = plait.Table(table, rate_per_s=pace)
        streams[stream] = job.source(source, name=stream, event_time="ts", out_of_order="100ms")
    QUERIES[name].over(streams).sink(plait.Discard())
    return job


def owners(moved: bool) -> tuple[int, ...]:
    """Bins in turn; `moved`: every second one of node 0 is at node 1."""
    bins = list(initial(1 << BIN_BITS, range(NODES)).owners)
    if moved:
        own = [bin for bin, owner in enumerate(bins) if owner == 0]
        for bin in own[::2]:
            bins[bin] = 1
    return tuple(bins)


def one(nodes: Nodes, name: str, strategy: Strategy | None) -> dict[str, Any]:
    settings = {"workers": 1, "epoch_records": EPOCH, "bin_bits": BIN_BITS}
    nodes.begin(Recipe(query, (name, RATE_PER_S, SECONDS), settings), owners(False))
    time.sleep(WARM_S)
    nodes.all("watch")
    time.sleep(BETWEEN_S)
    began = time.monotonic()
    moved = 0
    epochs_per_s = RATE_PER_S / EPOCH
    for turn in (True, False):
        if strategy is not None:
            change = migrate(nodes, owners(turn), strategy, sizes_of(nodes), epochs_per_s)
            if not change.bins:
                raise CheckFailed(f"{name}, {strategy}: nothing moved")
            moved += change.size_bytes
        time.sleep(BETWEEN_S)
    time.sleep(AFTER_S)
    readings = joined(nodes.all("watched"))
    nodes.stop()
    first = max((r for r in readings if r.at <= began), key=lambda r: r.at, default=readings[0])
    during = between(first, readings[-1])
    return {
        "max_ms": round(max_ms(during), 3),
        "p99_ms": round(percentile_ms(during, 99.0), 3),
        "moved_mb": round(moved / 1e6, 3),
        "timeline": windows(readings, WINDOW_S, began),
    }


def run(options: Options) -> dict[str, Any]:
    budget = budget_of(options)
    names = NAMES[:2] if options.quick else NAMES
    strategies = QUICK if options.quick else tuple(STRATEGIES)
    found: dict[str, dict[str, Any]] = {}
    with Nodes(NODES) as nodes:
        for name in names:
            found[name] = {}
            for strategy in (None, *strategies):
                if budget.left < 0 and found[name]:
                    break
                progress(f"{name} {strategy or 'none'}")
                found[name][strategy or "none"] = one(nodes, name, strategy)
    return {
        "max_latency_ms": {
            name: {strategy: given["max_ms"] for strategy, given in by.items()}
            for name, by in found.items()
        },
        "rate_m_per_s": RATE_PER_S / 1e6,
        "queries": found,
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import timelines

    timelines(
        file,
        {
            name: {strategy: given["timeline"] for strategy, given in by.items()}
            for name, by in figures["queries"].items()
        },
    )
