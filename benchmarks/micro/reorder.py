"""The non-blocking and the lock-based reorder buffer (Fig. 12 and 13).

`light` is a stateless operator with one record a batch, so that every record passes the buffer:
with no work of its own (the buffer's own price), and with 2 and 10 us. `pipeline` is a stateless
operator followed by one with state by key, in batches of 50: the 50 outputs of one input that the
paper's operator has. Speed-ups are over the same variant on one worker. Workers beyond the cores
show what happens when a worker is taken off its core between two records: a lock holder stops all
others.
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
from benchmarks.support.machine import usable_cores
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMES = ("nonblocking", "locked")
COSTS_US = {"light_0us": 0.0, "light_2us": 2.0, "light_10us": 10.0}
PIPELINE = "pipeline_100us"
BATCH = 50
KEYS = 1000


def stateless(table: Any, rounds: int, sink: plait.Sink) -> Any:
    spun = burn(col("v"), rounds) if rounds else col("v") + 1
    return plait.stream(plait.Table(table)).select(v=spun).sink(sink)


def pipeline(table: Any, rounds: int, sink: plait.Sink) -> Any:
    """Two stages: the second branch ends the first stage, which would be fused with the next."""
    first = plait.stream(plait.Table(table)).select("key", v=burn(col("v"), rounds))
    first.sink(plait.Discard())
    spun = first.with_columns(v=burn(col("v"), rounds))
    return spun.key_by("key").sum(col("v") % 1000).sink(sink)


def columns(rows: int) -> dict[str, Any]:
    random = np.random.default_rng(7)
    return {"key": random.integers(0, KEYS, rows), "v": np.arange(rows)}


def check() -> None:
    rows = 3000
    given = columns(rows)
    table = replayed(given, rows)
    sums: dict[int, int] = {}
    running: list[int] = []
    for key, value in zip(given["key"].tolist(), burnt(given["v"], 10).tolist(), strict=True):
        sums[key] = sums.get(key, 0) + value % 1000
        running.append(sums[key])
    for scheme in SCHEMES:
        for workers in (1, 2, 4):
            settings: dict[str, Any] = {"reorder": scheme, "workers": workers}
            done = plait.run(
                stateless(table, 5, plait.Collect(label="out")), epoch_records=1, **settings
            )
            check_equal(f"{scheme}, {workers}", done.outputs["out"]["v"], burnt(given["v"], 5))
            done = plait.run(
                pipeline(table, 5, plait.Collect(label="out")), epoch_records=BATCH, **settings
            )
            check_equal(f"pipeline, {scheme}, {workers}", done.outputs["out"]["sum"], running)


def run(options: Options) -> dict[str, Any]:
    progress("checking all variants")
    check()
    workers = sorted({1, 2, usable_cores(), 2 * usable_cores()})
    seconds = 0.3 if options.quick else 1.0

    def rate(shape: str, scheme: str, count: int) -> float:
        cost_us = COSTS_US.get(shape, 2 * 100.0 / BATCH)
        rows = int(seconds * 1e6 / (cost_us + (1.0 if shape in COSTS_US else 0.1)))
        table = replayed(columns(min(rows, 100_000)), rows)
        if shape in COSTS_US:
            job = stateless(table, rounds_for(cost_us) if cost_us else 0, plait.Discard())
        else:
            job = pipeline(table, rounds_for(cost_us / 2), plait.Discard())
        epoch = 1 if shape in COSTS_US else BATCH
        done = plait.run(job, workers=count, reorder=scheme, epoch_records=epoch, progress=False)
        return rows / done.seconds

    shapes = [*COSTS_US, PIPELINE]
    variants: dict[str, Callable[[], float]] = {
        f"{shape}_{scheme}_{count}": partial(rate, shape, scheme, count)
        for shape in shapes
        for count in workers
        for scheme in SCHEMES
    }
    found = interleave(variants, options.repeat(3, 9), budget_of(options), "reorder")
    middle = {name: sample.median for name, sample in found.items()}
    figures: dict[str, Any] = {}
    for shape in shapes:
        rates = {s: {n: middle[f"{shape}_{s}_{n}"] for n in workers} for s in SCHEMES}
        figures[shape] = {
            **{
                f"nonblocking_over_locked_{n}": ratio(rates["nonblocking"][n], rates["locked"][n])
                for n in workers
            },
            **{
                scheme: {
                    **{f"rate_{n}": millions(rates[scheme][n]) for n in workers},
                    **{
                        f"speedup_{n}": ratio(rates[scheme][n], rates[scheme][1])
                        for n in workers[1:]
                    },
                    **{
                        # Worker time for a record: Fig. 12b and 13b. Workers share the cores.
                        f"cost_us_{n}": round(min(n, usable_cores()) * 1e6 / rates[scheme][n], 3)
                        for n in workers
                    },
                }
                for scheme in SCHEMES
            },
        }
    return {
        **figures,
        "workers": workers,
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "rounds": min(len(sample.values) for sample in found.values()),
        "unit": "million records a second",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    panels = []
    for shape in (*COSTS_US, PIPELINE):
        groups = {
            f"{n} workers": {s: figures[shape][s][f"rate_{n}"] for s in SCHEMES}
            for n in figures["workers"]
        }
        panels.append((shape.replace("_", " "), "million records a second", groups))
    bars(file, panels)
