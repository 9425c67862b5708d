"""Lag under overload: twice and four times what the machine can take, with shedding and without.

Two queries on branches of one stream, each of which costs 20 us a record, on all cores. First the
job is run as fast as it goes: that is its capacity. Then records come in at a multiple of it, and
the lag of the source (how long the next record to be read has waited) is looked at four times a
second. With shedding both queries have a low floor, and `high` has the higher priority; without,
nothing is dropped and sources wait. The capacity is measured again for every pair of runs, because
the machine may have neighbours.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.burn import burn, rounds_for
from benchmarks.support.common import CheckFailed, Options, progress, replayed
from plait import col

if TYPE_CHECKING:
    from plait.streams.job import Job

COST_US = 20.0
FLOOR = 0.02
LOADS = (2, 4)
LOOK_S = 0.25
BATCHES: dict[str, Any] = {"epoch_records": 256, "queue_records": 2048}


def job_of(source: plait.Source, rounds: int) -> Job:
    job = plait.Job("overload")
    rows = job.source(source, name="in")
    for query, priority in (("high", 5), ("low", 1)):
        branch = rows.select(v=burn(col("seq") + priority, rounds)).filter(col("v") != 0).count()
        branch.sink(
            plait.Discard(),
            query,
            priority=priority,
            min_accuracy=FLOOR,
            freshness="2s",
            shed="records",
        )
    return job


def capacity(rounds: int, seconds: float) -> float:
    """Records a second when they are all there, over about so long."""
    rows = int(seconds / (2 * COST_US * 1e-6))
    table = replayed({"seq": np.arange(rows)}, rows)
    result = plait.run(job_of(plait.Table(table), rounds), progress=False, **BATCHES)
    return rows / result.seconds


def overload(rate: float, rounds: int, seconds: float, sheds: bool) -> dict[str, Any]:
    """Lag and accuracy while records come in at this rate."""
    running = plait.start(
        job_of(plait.Rate(rate), rounds), quality="auto" if sheds else "off", **BATCHES
    )
    timeline: list[dict[str, float]] = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        lag_s = running.rates()["in"].lag_s or 0.0
        asked = {one.query: one.asked for one in running.queries()}
        timeline.append({"at_s": round(passed, 2), "lag_s": round(lag_s, 3), **asked})
        time.sleep(LOOK_S)
    running.stop()
    result = running.wait(progress=False)
    if not sheds and result.account.shed:
        raise CheckFailed(f"{result.account.shed} records were dropped with quality off")
    if any(step.ratio < FLOOR for step in result.keeps):
        raise CheckFailed(f"less than the floor was kept: {result.keeps}")
    lags = [point["lag_s"] for point in timeline]
    kept = {one.query: round(one.overall, 3) for one in result.queries}
    return {
        "lag_end_s": lags[-1],
        "lag_most_s": max(lags),
        "lag_last_third_s": round(statistics.median(lags[-(len(lags) // 3) :]), 3),
        "read_per_s": round(result.account.read / result.seconds),
        "high_kept": kept["high"],
        "low_kept": kept["low"],
        "p99_ms": round(result.latency.p99_ms, 1),
        "timeline": timeline,
    }


def run(options: Options) -> dict[str, Any]:
    seconds = 5.0 if options.quick else 40.0
    rounds = rounds_for(COST_US)
    found: dict[str, Any] = {}
    for times in LOADS:
        progress(f"qod_overload: {times} times")
        most = capacity(rounds, 1.0 if options.quick else 4.0)
        rate = times * most
        cases = {
            name: overload(rate, rounds, seconds, sheds)
            for name, sheds in (("shedding", True), ("without", False))
        }
        found[f"{times} times"] = {
            "capacity_per_s": round(most),
            "rate_per_s": round(rate),
            **cases,
        }
    return {"seconds": seconds, **found}


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import curves

    panels = {}
    for title, one in figures.items():
        if not isinstance(one, dict):
            continue
        panels[f"{title} the capacity: {one['rate_per_s']:,} records a second"] = {
            label: [(point["at_s"], point["lag_s"]) for point in one[name]["timeline"]]
            for name, label in (("shedding", "with shedding"), ("without", "without"))
        }
    curves(file, panels, "seconds since the overload began", "lag of the source, s")
