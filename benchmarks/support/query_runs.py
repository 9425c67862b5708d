"""Queries under measure: rate flat out, latency at half of that, and whether they are right.

A `Case` makes a query's job over its tables. Rates are input records of all its streams a second;
latency runs from the time a record was due. Before anything is timed the query is compared with the
sequential run, row by row, on its first records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import plait
from benchmarks.support.common import (
    Budget,
    CheckFailed,
    Options,
    budget_of,
    interleave,
    millions,
    progress,
    ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WORKERS = (1, 2)
EPOCH = 16_384
CHECKED_ROWS = 3000
OUT_OF_ORDER = "1s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A query and the tables of its streams; `build` takes the streams by name."""

    name: str
    tables: Mapping[str, Any]
    build: Callable[[Mapping[str, plait.Stream]], plait.Stream]
    out_of_order: str = OUT_OF_ORDER
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.tables.values())

    def job(
        self,
        sink: plait.Sink,
        rate: float | None = None,
        rows: int | None = None,
        epoch: int = EPOCH,
    ) -> plait.Job:
        """The query over all its records, or the first ones; `rate`: of all streams together."""
        job = plait.Job(self.name)
        share = 1.0 if rows is None else min(1.0, rows / self.rows)
        streams: dict[str, plait.Stream] = {}
        for name, table in self.tables.items():
            part = table.slice(0, max(1, int(table.num_rows * share)))
            pace = None if rate is None else rate * table.num_rows / self.rows
            most = max(other.num_rows for other in self.tables.values())
            streams[name] = job.source(
                plait.Table(part, rate_per_s=pace),
                name=name,
                event_time="ts",
                out_of_order=self.out_of_order,
                epoch_records=max(1, epoch * table.num_rows // most),
            )
        self.build(streams).sink(sink)
        return job

    def run(self, workers: int, rate: float | None = None, **settings: Any) -> plait.Result:
        rows = None if rate is None else int(rate * self.seconds(rate))
        chosen = dict(self.settings)
        return self.job(plait.Discard(), rate, rows).run(
            workers=workers, progress=False, **(chosen | settings)
        )

    def seconds(self, rate: float) -> float:
        return min(3.0, self.rows / rate)

    def check(self, **settings: Any) -> None:
        from plait.testing.check import assert_same

        graph = self.job(plait.Collect(label="out"), rows=CHECKED_ROWS, epoch=256).graph()
        try:
            assert_same(graph, {"workers": 2} | settings)
        except AssertionError as error:
            raise CheckFailed(f"{self.name}: {error}") from None


def measured(cases: list[Case], options: Options) -> dict[str, Any]:
    """Rates on one and two workers and latencies, of every case."""
    for case in cases:
        progress(f"checking {case.name}")
        case.check()
    budget = budget_of(options)
    budget.seconds *= 0.75
    variants: dict[str, Callable[[], float]] = {
        f"{case.name}_{workers}": partial(rate_of, case, workers)
        for case in cases
        for workers in WORKERS
    }
    found = interleave(variants, options.repeat(3, 7), budget)
    figures: dict[str, Any] = {}
    for case in cases:
        one, two = (found[f"{case.name}_{workers}"] for workers in WORKERS)
        figures[case.name] = {
            "rate_1": millions(one.median),
            "rate_2": millions(two.median),
            "speedup_2": ratio(two.median, one.median),
            "spread_2": round(two.spread, 3),
            **latencies(case, two.median / 2, options),
        }
    return figures


def rate_of(case: Case, workers: int, **settings: Any) -> float:
    return case.run(workers, **settings).records_per_s


def latencies(
    case: Case, load: float, options: Options, **settings: Any
) -> dict[str, float | None]:
    """The middle one of a few paced runs on two workers, by their p99; None: they had no results,
    because all come at the end of more data."""
    found = []
    for turn in range(options.repeat(1, 3)):
        progress(f"latency {turn + 1} {case.name}")
        result = case.run(2, load, **settings)
        if result.account.delivered:
            found.append(result.latency)
    if not found:
        return {"load_m_per_s": millions(load), "p50_ms": None, "p99_ms": None}
    middle = sorted(found, key=lambda one: one.p99_ms)[len(found) // 2]
    return {
        "load_m_per_s": millions(load),
        "p50_ms": round(middle.p50_ms, 3),
        "p99_ms": round(middle.p99_ms, 3),
    }


def compared(
    cases: list[Case],
    variants: Mapping[str, Mapping[str, Any]],
    options: Options,
    share: Budget | None = None,
) -> dict[str, Any]:
    """Every case under every variant of the settings: rates on two workers, and latency at half of
    the lowest of them."""
    for case in cases:
        for name, settings in variants.items():
            progress(f"checking {case.name} {name}")
            case.check(**settings)
    budget = share or budget_of(options)
    budget.seconds *= 0.75
    runs: dict[str, Callable[[], float]] = {
        f"{case.name}_{name}": partial(rate_of, case, 2, **settings)
        for case in cases
        for name, settings in variants.items()
    }
    found = interleave(runs, options.repeat(3, 7), budget)
    figures: dict[str, Any] = {}
    for case in cases:
        rates = {name: found[f"{case.name}_{name}"].median for name in variants}
        load = min(rates.values()) / 2
        figures[case.name] = {
            name: {
                "rate_2": millions(rates[name]),
                "vs_best": ratio(rates[name], max(rates.values())),
                **latencies(case, load, options, **settings),
            }
            for name, settings in variants.items()
        }
    return figures


def plot_rates(figures: Mapping[str, Any], file: str) -> None:
    """Rates of the queries on one and two workers, and their latencies."""
    from benchmarks.support.charts import bars

    queries = figures["queries"]
    rates = {
        name: {"1 worker": q["rate_1"], "2 workers": q["rate_2"]} for name, q in queries.items()
    }
    waits = {
        name: {"p50": q["p50_ms"] or 0.0, "p99": q["p99_ms"] or 0.0} for name, q in queries.items()
    }
    bars(file, [("rate", "M records/s", rates), ("latency at half of it", "ms", waits)])


def plot_compared(figures: Mapping[str, Any], file: str) -> None:
    """Rates and p99 of the queries under each variant."""
    from benchmarks.support.charts import bars

    queries = figures["queries"]
    rates = {q: {name: one["rate_2"] for name, one in by.items()} for q, by in queries.items()}
    waits = {
        q: {name: one["p99_ms"] or 0.0 for name, one in by.items()} for q, by in queries.items()
    }
    bars(file, [("rate, 2 workers", "M records/s", rates), ("p99 at the same load", "ms", waits)])
