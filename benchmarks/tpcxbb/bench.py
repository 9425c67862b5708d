"""TPCx-BB's five queries on one and two workers: records a second, and latency at half of that."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.support.common import Options, progress
from benchmarks.support.query_runs import Case, measured, plot_rates
from benchmarks.tpcxbb.native import tables
from benchmarks.tpcxbb.queries import QUERIES, Query
from benchmarks.tpcxbb.schema import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait import Stream


def cases(clicks: int) -> list[Case]:
    progress("making TPCx-BB data")
    made = tables(Shape(clicks=clicks, tickets=clicks // 5))
    return [
        Case(
            name=name,
            tables={query.stream: made[query.stream]},
            build=partial(over, query, made["items"]),
        )
        for name, query in QUERIES.items()
    ]


def over(query: Query, items: Any, streams: Mapping[str, Stream]) -> Stream:
    return query.over(streams[query.stream], items)


def run(options: Options) -> dict[str, Any]:
    queries = measured(cases(options.pick(500_000, 5_000_000)), options)
    return {
        "slowest_m_per_s": min(q["rate_2"] for q in queries.values()),
        "worst_p99_ms": max(q["p99_ms"] for q in queries.values()),
        "queries": queries,
    }


plot = plot_rates
