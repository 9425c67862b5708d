"""NEXMark's eight queries on one and two workers: records a second, and latency at half of that."""

from __future__ import annotations

from typing import Any

from benchmarks.nexmark.native import tables
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.schema import Shape
from benchmarks.support.common import Options, progress
from benchmarks.support.query_runs import Case, measured, plot_rates


def cases(events: int) -> list[Case]:
    progress("making NEXMark data")
    made = tables(Shape(events=events))
    return [
        Case(name=name, tables={s: made[s] for s in query.streams}, build=query.over)
        for name, query in QUERIES.items()
    ]


def run(options: Options) -> dict[str, Any]:
    queries = measured(cases(options.pick(2_000_000, 10_000_000)), options)
    return {
        "slowest_m_per_s": min(q["rate_2"] for q in queries.values()),
        "worst_p99_ms": max(q["p99_ms"] for q in queries.values()),
        "queries": queries,
    }


plot = plot_rates
