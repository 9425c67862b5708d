"""Elastic workers beside every fixed number of them: rate, and level and throughput over time.

Three loads: `parallel` (2 us of work a record: more workers help), `light` (batches of 64 records
with almost no work: handing over costs more than it gains) and `changing` (light in the first half
of the run, 2 us in the second: no fixed number is best for both). Levels go to twice the number of
cores, so the fixed ones show what too many workers cost. Elastic runs begin at the highest level
and pay for their search, which is in `rate`; `settled` is the throughput of the last third of the
periods (the figures of the paper, PLDI 2017, are of the last 25 seconds). The period is 50 ms here,
so that short runs have many.
"""

from __future__ import annotations

import statistics
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
from plait.model.settings import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait import Result

LOADS = ("parallel", "light", "changing")
COST_US = 2.0
ONCE = 50_000
PERIOD_MS = 50
LIGHTER = 48
ELASTIC = "elastic"


def levels() -> list[int]:
    return sorted({1, usable_cores(), 2 * usable_cores()})


def table_of(load: str, rows: int, rounds: int) -> Any:
    """Values, and how many rounds of work each of them is. There are so many more light ones that
    both kinds take most of a second on two cores in a quick run: a search costs a tenth of that."""
    light = replayed({"v": np.arange(ONCE), "rounds": np.ones(ONCE, dtype=np.int64)}, rows)
    heavy = replayed({"v": np.arange(ONCE), "rounds": np.full(ONCE, rounds)}, rows // LIGHTER)
    if load == "light":
        return light
    if load == "parallel":
        return heavy
    import pyarrow as pa

    return pa.concat_tables([light, heavy])


def pipeline(table: Any, sink: plait.Sink) -> Any:
    stream = plait.stream(plait.Table(table)).select(v=burn(col("v"), col("rounds")))
    return stream.filter(col("v") != 0).sink(sink)


def settings_of(workers: str) -> dict[str, Any]:
    if workers != ELASTIC:
        return {"workers": int(workers)}
    return {"workers": ELASTIC, "max_workers": levels()[-1], "elastic_period_ms": PERIOD_MS}


def epoch_of(load: str) -> int:
    return 1024 if load == "parallel" else 64


def check() -> None:
    table = table_of("changing", 4_800, 7)
    wanted = np.concatenate([burnt(np.arange(4_800), 1), burnt(np.arange(100), 7)])
    for workers in ("1", "4", ELASTIC):
        job = pipeline(table, plait.Collect(label="out"))
        done = plait.run(job, progress=False, epoch_records=64, **settings_of(workers))
        check_equal(f"workers {workers}", done.outputs["out"]["v"], wanted[wanted != 0])


def run(options: Options) -> dict[str, Any]:
    progress("checking all variants")
    check()
    rounds = rounds_for(COST_US)
    rows = options.pick(32_000_000, 240_000_000)
    tables = {load: table_of(load, rows, rounds) for load in LOADS}
    logs: dict[str, list[Result]] = {load: [] for load in LOADS}

    def rate(load: str, workers: str) -> float:
        job = pipeline(tables[load], plait.Discard())
        chosen = settings_of(workers)
        done = plait.run(job, progress=False, epoch_records=epoch_of(load), **chosen)
        if workers == ELASTIC:
            logs[load].append(done)
        return done.records_per_s

    variants: dict[str, Callable[[], float]] = {
        f"{load} {workers}": partial(rate, load, workers)
        for load in LOADS
        for workers in [*map(str, levels()), ELASTIC]
    }
    found = interleave(variants, options.repeat(2, 5), budget_of(options), "elastic")
    middle = {name: sample.median for name, sample in found.items()}
    figures: dict[str, Any] = {}
    for load in LOADS:
        best = max(middle[f"{load} {level}"] for level in levels())
        settled = statistics.median(settled_rate(one) for one in logs[load])
        figures[load] = {
            **{f"rate_{level}": millions(middle[f"{load} {level}"]) for level in levels()},
            "rate_elastic": millions(middle[f"{load} {ELASTIC}"]),
            "elastic_vs_best_static": ratio(middle[f"{load} {ELASTIC}"], best),
            "settled_vs_best_static": ratio(settled, best),
            "last_level": [one.levels[-1].next_level for one in logs[load] if one.levels],
            "timeline": timeline(logs[load][-1]),
        }
    steady = [load for load in LOADS if load != "changing"]
    return {
        **figures,
        "elastic_vs_best_static": min(figures[load]["elastic_vs_best_static"] for load in LOADS),
        "settled_vs_best_static": min(figures[load]["settled_vs_best_static"] for load in steady),
        "period_ms": PERIOD_MS,
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "rounds": min(len(sample.values) for sample in found.values()),
        "unit": "million records a second",
    }


def settled_rate(done: Result) -> float:
    """Records a second from the source in the last third of the periods; the log counts a record
    in every stage."""
    steps = done.levels[-max(1, len(done.levels) // 3) :]
    every = sum(step.records_per_s for step in done.levels) / max(1, len(done.levels))
    late = sum(step.records_per_s for step in steps) / max(1, len(steps))
    return done.records_per_s * late / every if every else done.records_per_s


def timeline(done: Result) -> list[dict[str, Any]]:
    return [
        {
            "at_s": round(step.at_s, 3),
            "level": step.level,
            "m_per_s": millions(step.records_per_s),
            "why": step.reason,
        }
        for step in done.levels
    ]


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import over_time

    over_time(
        file,
        {
            f"{load}: {figures[load]['elastic_vs_best_static']:.2f} of the best fixed level": (
                figures[load]["timeline"],
                {"m_per_s": "records a second of all stages, millions"},
                {"level": "workers"},
            )
            for load in LOADS
        },
    )
