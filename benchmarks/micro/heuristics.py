"""The four schedulers on a pipeline of five stages with state: rate and latency (Fig. 8).

Stages differ in cost (0.2 to 4 us a record) and the second one lets half of the records pass, so
a scheduler that favours the wrong stage leaves workers without work or fills queues. Throughput
is measured flat out on one and two workers; latency at the same load for all: half of the lowest
rate on two workers. Batches of 64 are near the paper's single tuples, batches of 1,024 near
plait's defaults.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.burn import burn, burnt, rounds_for
from benchmarks.support.common import (
    Options,
    budget_of,
    check_equal,
    interleave,
    millions,
    progress,
    ratio,
    replayed,
)
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULERS = ("ct", "et", "lp", "qst")
EPOCHS = (64, 1024)
WORKERS = (1, 2)
COSTS_US = (0.2, 1.0, 0.5, 4.0, 0.2)
KEYS = 10_000
ONCE = 100_000


def pipeline(
    table: Any, sink: plait.Sink, costs: tuple[int, ...], rate: float | None = None
) -> Any:
    """Five stages: some work, then a running count by key; `last` hands the value on."""
    made = plait.stream(plait.Table(table, rate_per_s=rate))
    for number, rounds in enumerate(costs):
        spun = made.with_columns(v=burn(col("v"), rounds))
        made = spun.key_by("key").aggregate(v=plait.last("v"), n=plait.count())
        if number == 1:
            made = made.filter(col("n") % 2 == 0)
    return made.sink(sink)


def columns() -> dict[str, Any]:
    return {"key": np.random.default_rng(7).integers(0, KEYS, ONCE), "v": np.arange(ONCE)}


def check(given: dict[str, Any]) -> None:
    rows, costs = 20_000, (1, 2, 3, 4, 5)
    seen: dict[int, int] = {}
    keys, counts, passed = [], [], []
    for row, key in enumerate(given["key"][:rows].tolist()):
        seen[key] = seen.get(key, 0) + 1
        if seen[key] % 2 == 0:
            keys.append(key)
            counts.append(seen[key] // 2)
            passed.append(row)
    wanted = burnt(given["v"][passed], sum(costs))
    for scheduler in SCHEDULERS:
        job = pipeline(replayed(given, rows), plait.Collect(label="out"), costs)
        out = plait.run(job, workers=2, scheduler=scheduler, epoch_records=64).outputs["out"]
        check_equal(f"{scheduler}: keys", out["key"], keys)
        check_equal(f"{scheduler}: counts", out["n"], counts)
        check_equal(f"{scheduler}: values", out["v"], wanted)


def run(options: Options) -> dict[str, Any]:
    progress("checking all variants")
    given = columns()
    check(given)
    costs = tuple(rounds_for(cost) for cost in COSTS_US)
    table = replayed(given, options.pick(120_000, 600_000))

    def rate(scheduler: str, epoch: int, workers: int) -> float:
        return plait.run(
            pipeline(table, plait.Discard(), costs),
            workers=workers,
            scheduler=scheduler,
            epoch_records=epoch,
            progress=False,
        ).records_per_s

    variants: dict[str, Callable[[], float]] = {
        f"{s}_{epoch}_{n}": partial(rate, s, epoch, n)
        for epoch in EPOCHS
        for n in WORKERS
        for s in SCHEDULERS
    }
    budget = budget_of(options)
    budget.seconds -= 8 if options.quick else 0  # for the latencies
    found = interleave(variants, options.repeat(3, 9), budget, "heuristics")
    middle = {name: sample.median for name, sample in found.items()}
    figures: dict[str, Any] = {}
    for epoch in EPOCHS:
        load = min(middle[f"{s}_{epoch}_2"] for s in SCHEDULERS) / 2
        seconds = 0.7 if options.quick else 3
        batch: dict[str, Any] = {"load_m_per_s": millions(load)}
        best = max(middle[f"{s}_{epoch}_2"] for s in SCHEDULERS)
        for s in SCHEDULERS:
            progress(f"heuristics latency, batches of {epoch}, {s}")
            paced = pipeline(replayed(given, int(load * seconds)), plait.Discard(), costs, load)
            done = plait.run(paced, workers=2, scheduler=s, epoch_records=epoch, progress=False)
            one, two = (middle[f"{s}_{epoch}_{n}"] for n in WORKERS)
            batch[s] = {
                "rate_1": millions(one),
                "rate_2": millions(two),
                "speedup_2": ratio(two, one),
                "vs_best": ratio(two, best),
                "p50_ms": round(done.latency.p50_ms, 3),
                "p99_ms": round(done.latency.p99_ms, 3),
            }
        figures[f"batch_{epoch}"] = batch
    return {
        **figures,
        "costs_us": list(COSTS_US),
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "rounds": min(len(sample.values) for sample in found.values()),
        "unit": "million records a second",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    rates, waits = {}, {}
    for epoch in EPOCHS:
        given = figures[f"batch_{epoch}"]
        rates[f"batches of {epoch}"] = {s: given[s]["rate_2"] for s in SCHEDULERS}
        waits[f"batches of {epoch}"] = {s: given[s]["p99_ms"] for s in SCHEDULERS}
    bars(
        file,
        [
            ("Rate on 2 workers", "million records a second", rates),
            ("p99 latency at the same load", "milliseconds", waits),
        ],
    )
