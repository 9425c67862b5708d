"""All schedulers on four topologies: rate and latency by the number of workers (Fig. 4, 5).

As in the paper on C-Stream: a chain and a data-parallel fan of 12 busy operators, a tree and a
reverse tree of depth 6 with two branches each, 63 busy operators. A busy operator spins for 2 us on
each record; batches are of 64 records. In the fan and the tree an operator passes to each branch
its share of the records; the reverse tree has 32 sources whose streams are united two by two. In
plait several workers may be in one operator at once, so no topology is bound by its widest place.
Latency is that at half of the lowest rate of the topology on two workers, the same for all.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.burn import burn, burnt, rounds_for
from benchmarks.support.common import (
    Budget,
    Options,
    budget_of,
    check_equal,
    interleave,
    progress,
    ratio,
    replayed,
)
from plait import col
from plait.model.settings import SCHEDULERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.graph.operators import Graph

WORKERS = (1, 2, 4)
COST_US = 2.0
EPOCH = 64
WIDTH = 12
DEPTH = 6
LEAVES = 1 << (DEPTH - 1)


def source(rows: int, rate: float | None, first: int = 0, step: int = 1) -> plait.Stream:
    numbers = np.arange(first, rows, step)
    table = replayed({"row": numbers, "v": numbers}, len(numbers))
    return plait.stream(plait.Table(table, rate_per_s=None if rate is None else rate / step))


def busy(stream: plait.Stream, rounds: int) -> plait.Stream:
    return stream.with_columns(v=burn(col("v"), rounds))


def chain(rows: int, rounds: int, rate: float | None) -> Iterator[plait.Stream]:
    made = source(rows, rate)
    for _ in range(WIDTH):
        made = busy(made, rounds)
    yield made


def data_parallel(rows: int, rounds: int, rate: float | None) -> Iterator[plait.Stream]:
    split = source(rows, rate)
    yield plait.union(*[busy(split.filter(col("row") % WIDTH == i), rounds) for i in range(WIDTH)])


def tree(rows: int, rounds: int, rate: float | None) -> Iterator[plait.Stream]:
    level = [busy(source(rows, rate), rounds)]
    for depth in range(1, DEPTH):
        halves = [
            above.filter((col("row") // (1 << (depth - 1))) % 2 == side)
            for above in level
            for side in (0, 1)
        ]
        level = [busy(half, rounds) for half in halves]
    yield from level


def reverse_tree(rows: int, rounds: int, rate: float | None) -> Iterator[plait.Stream]:
    level = [busy(source(rows, rate, i, LEAVES), rounds) for i in range(LEAVES)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [busy(left.union(right), rounds) for left, right in pairs]
    yield from level


SHAPES: dict[str, Callable[[int, int, float | None], Iterator[plait.Stream]]] = {
    "chain": chain,
    "data_parallel": data_parallel,
    "tree": tree,
    "reverse_tree": reverse_tree,
}
BUSY = {"chain": WIDTH, "data_parallel": 1, "tree": DEPTH, "reverse_tree": DEPTH}
"""Busy operators that a record passes."""


def graph_of(name: str, rows: int, rounds: int, collect: bool, rate: float | None = None) -> Graph:
    job: plait.Job | None = None
    for number, end in enumerate(SHAPES[name](rows, rounds, rate)):
        sink = plait.Collect(label=f"out{number}") if collect else plait.Discard()
        job = end.sink(sink).job
    assert job is not None
    return job.graph()


def check() -> None:
    rows, rounds = 640, 2
    for name in SHAPES:
        wanted = burnt(np.arange(rows), rounds * BUSY[name])
        for scheduler in SCHEDULERS:
            graph = graph_of(name, rows, rounds, True)
            done = plait.run(graph, workers=2, scheduler=scheduler, epoch_records=8, fuse=False)
            seen = np.concatenate([np.asarray(out["row"]) for out in done.outputs.values()])
            values = np.concatenate([np.asarray(out["v"]) for out in done.outputs.values()])
            check_equal(f"{name}, {scheduler}: rows", np.sort(seen), np.arange(rows))
            check_equal(f"{name}, {scheduler}: values", values, wanted[seen])


def run(options: Options) -> dict[str, Any]:
    progress("checking all variants")
    check()
    rounds = rounds_for(COST_US)
    budget = budget_of(options)
    figures: dict[str, Any] = {}
    spread: dict[str, float] = {}
    least = []
    for number, name in enumerate(SHAPES):
        part = budget.part(len(SHAPES) - number)
        found, taken = measured(name, rounds, options, part)
        figures[name] = found
        spread |= {f"{name}_{one}": value for one, value in taken.items()}
        least.append(found.pop("rounds"))
    return {
        **figures,
        "cost_us": COST_US,
        "epoch_records": EPOCH,
        "spread": spread,
        "rounds": min(least),
        "unit": "thousand records a second",
    }


def measured(
    name: str, rounds: int, options: Options, budget: Budget
) -> tuple[dict[str, Any], dict[str, float]]:
    seconds = 0.1 if options.quick else 0.5
    rows = max(32 * EPOCH, int(seconds / (COST_US * 1e-6 * BUSY[name])))
    graph = graph_of(name, rows, rounds, False)

    def rate(scheduler: str, workers: int) -> float:
        return plait.run(
            graph,
            workers=workers,
            scheduler=scheduler,
            epoch_records=EPOCH,
            fuse=False,
            progress=False,
        ).records_per_s

    timed: dict[str, Callable[[], float]] = {
        f"{scheduler}_{workers}": partial(rate, scheduler, workers)
        for workers in WORKERS
        for scheduler in SCHEDULERS
    }
    rates = Budget(budget.seconds * 0.6)
    found = interleave(timed, options.repeat(1, 5), rates, f"topologies {name}")
    middle = {one: sample.median for one, sample in found.items()}
    load = min(middle[f"{scheduler}_2"] for scheduler in SCHEDULERS) / 2
    best = max(middle[f"{scheduler}_2"] for scheduler in SCHEDULERS)
    made: dict[str, Any] = {"load_k_per_s": round(load / 1e3, 2)}
    for scheduler in SCHEDULERS:
        progress(f"topologies {name} latency {scheduler}")
        paced = graph_of(name, int(load * (0.2 if options.quick else 1.5)), rounds, False, load)
        done = plait.run(
            paced, workers=2, scheduler=scheduler, epoch_records=EPOCH, fuse=False, progress=False
        )
        made[scheduler] = {
            **{f"rate_{n}": round(middle[f"{scheduler}_{n}"] / 1e3, 2) for n in WORKERS},
            "vs_best": ratio(middle[f"{scheduler}_2"], best),
            "p50_ms": round(done.latency.p50_ms, 3),
            "p99_ms": round(done.latency.p99_ms, 3),
        }
    made["rounds"] = min(len(sample.values) for sample in found.values())
    return made, {one: round(sample.spread, 3) for one, sample in found.items()}


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    names = {name.replace("_", " "): figures[name] for name in SHAPES}
    bars(
        file,
        [
            (
                title,
                unit,
                {
                    name: {scheduler: given[scheduler][key] for scheduler in SCHEDULERS}
                    for name, given in names.items()
                },
            )
            for title, unit, key in (
                ("Rate on 2 workers", "thousand records a second", "rate_2"),
                ("p50 latency at the same load", "milliseconds", "p50_ms"),
                ("p99 latency at the same load", "milliseconds", "p99_ms"),
            )
        ],
    )
