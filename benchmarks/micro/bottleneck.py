"""Elastic degrees of stages: a chain with one or two expensive stages (Fig. 9, 10 of TOPC 2018).

Three stages of which one, or two, cost a given time a record, the others almost nothing. `one`:
a single worker may be in a stage (a single replica); `free`: any number, which is what a run does
otherwise; `elastic`: one at first, more for the bottleneck as long as that helps. Rates are of
whole runs, so that of `elastic` has the search in it; `degrees` is what the stages ended with.
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
from plait.model.settings import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait import Result

COSTS_US = (1.0, 4.0, 16.0)
CHAINS = {"one busy": (0, 1, 0), "two busy": (1, 0, 1)}
"""Which stages are expensive."""
PARALLELISM: dict[str, Any] = {"one": 1, "free": "free", "elastic": "elastic"}
PERIOD_MS = 50
ONCE = 50_000


def pipeline(table: Any, chain: tuple[int, ...], rounds: int, sink: plait.Sink) -> Any:
    stream = plait.stream(plait.Table(table))
    for busy in chain:
        stream = stream.select(v=burn(col("v"), rounds if busy else 1))
    return stream.sink(sink)


def job_settings(parallelism: str) -> dict[str, Any]:
    return {
        "workers": usable_cores(),
        "stage_parallelism": PARALLELISM[parallelism],
        "elastic_period_ms": PERIOD_MS,
        "epoch_records": 64,
        "fuse": False,
        "progress": False,
    }


def check() -> None:
    table = replayed({"v": np.arange(ONCE)}, ONCE)
    for chain in CHAINS.values():
        rounds = sum(5 if busy else 1 for busy in chain)
        for parallelism in PARALLELISM:
            job = pipeline(table, chain, 5, plait.Collect(label="out"))
            out = plait.run(job, **job_settings(parallelism)).outputs["out"]
            check_equal(f"{parallelism}, {chain}", out["v"], burnt(np.arange(ONCE), rounds))


def run(options: Options) -> dict[str, Any]:
    progress("checking all variants")
    check()
    seconds = 1.0 if options.quick else 6.0
    logs: dict[tuple[str, float], Result] = {}

    def rate(name: str, cost: float, parallelism: str) -> float:
        chain = CHAINS[name]
        rows = int(seconds * 1e6 / cost / sum(chain) * usable_cores())
        table = replayed({"v": np.arange(ONCE)}, rows)
        job = pipeline(table, chain, rounds_for(cost), plait.Discard())
        done = plait.run(job, **job_settings(parallelism))
        if parallelism == "elastic":
            logs[name, cost] = done
        return done.records_per_s

    variants: dict[str, Callable[[], float]] = {
        f"{name} {cost:g} {parallelism}": partial(rate, name, cost, parallelism)
        for name in CHAINS
        for cost in COSTS_US
        for parallelism in PARALLELISM
    }
    found = interleave(variants, options.repeat(1, 5), budget_of(options), "bottleneck")
    figures: dict[str, Any] = {}
    for name in CHAINS:
        for cost in COSTS_US:
            rates = {p: found[f"{name} {cost:g} {p}"].median for p in PARALLELISM}
            figures[f"{name}, {cost:g} us"] = {
                **{f"rate_{p}": millions(value) for p, value in rates.items()},
                "elastic_vs_one": ratio(rates["elastic"], rates["one"]),
                "elastic_vs_free": ratio(rates["elastic"], rates["free"]),
                "degrees": degrees_of(logs[name, cost]),
                "steps": steps_of(logs[name, cost]),
            }
    return {
        **figures,
        "elastic_vs_free": min(given["elastic_vs_free"] for given in figures.values()),
        "elastic_vs_one": min(given["elastic_vs_one"] for given in figures.values()),
        "period_ms": PERIOD_MS,
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "rounds": min(len(sample.values) for sample in found.values()),
        "unit": "million records a second",
    }


def degrees_of(done: Result) -> dict[str, int]:
    """The last degree of every stage that was given another one."""
    return {step.stage: step.degree for step in done.degrees}


def steps_of(done: Result) -> list[dict[str, Any]]:
    return [
        {
            "at_s": round(step.at_s, 3),
            "stage": step.stage,
            "degree": step.degree,
            "m_per_s": millions(step.records_per_s),
            "why": step.reason,
        }
        for step in done.degrees
    ]


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    words = {"one": "one worker in a stage", "free": "any number", "elastic": "elastic degrees"}
    panels = []
    for name in CHAINS:
        groups = {}
        for cost in COSTS_US:
            found = figures[f"{name}, {cost:g} us"]
            rates = {p: found[f"rate_{p}"] / found["rate_one"] for p in PARALLELISM}
            groups[f"{cost:g} us a record"] = {words[p]: rate for p, rate in rates.items()}
        title = f"A chain with {name} stage" + "s" * (name != "one busy")
        panels.append((title, "rate over that of one worker in a stage", groups))
    bars(file, panels)
