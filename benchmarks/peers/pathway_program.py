# mypy: disable-error-code="import-not-found"
"""Pathway 0.33: tables from CSV files in static mode, results to its null output.

The time is that of `pw.run`, in which the CSV files are read and parsed: Pathway has no faster way
in for columns of numbers. All records are one commit, so a count by key gives its last value only;
that is less work than a row for each record. A process runs once, on as many threads as the
environment says (`PATHWAY_THREADS`).
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pathway as pw

from benchmarks.peers.digest import digest_of_rows
from benchmarks.peers.python_work import fee, score
from benchmarks.peers.serve import Answer, Request, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECOND = 1_000_000
TEN, TWO = 10 * SECOND, 2 * SECOND
SCHEMAS: dict[str, dict[str, type]] = {
    "persons": {"number": int, "name": str, "city": str, "state": str, "ts": int},
    "auctions": {"number": int, "ts": int, "seller": int, "category": int},
    "bids": {"auction": int, "bidder": int, "price": int, "ts": int},
}


def table(folder: Path, stream: str) -> Any:
    schema = pw.schema_from_types(**SCHEMAS[stream])
    return pw.io.csv.read(str(folder / f"{stream}.csv"), schema=schema, mode="static")


def count(bids: Any) -> Any:
    return bids.groupby(bids.auction).reduce(bids.auction, count=pw.reducers.count())


def q1(bids: Any) -> Any:
    return bids.select(bids.auction, bids.bidder, price=bids.price * 908 // 1000, ts=bids.ts)


def q2(bids: Any) -> Any:
    return bids.filter(bids.auction % 123 == 0).select(pw.this.auction, pw.this.price)


def called(function: Any, bids: Any) -> Any:
    return bids.select(bids.auction, result=pw.apply(function, bids.auction, bids.price))


def q3(auctions: Any, persons: Any) -> Any:
    sold = auctions.filter(auctions.category == 10)
    state = persons.state
    near = persons.filter((state == "OR") | (state == "ID") | (state == "CA"))
    joined = sold.join(near, sold.seller == near.number)
    return joined.select(near.name, near.city, near.state, auction=sold.number)


def q5(bids: Any) -> Any:
    windows = bids.windowby(
        bids.ts, window=pw.temporal.sliding(hop=TWO, duration=TEN), instance=bids.auction
    )
    counts = windows.reduce(
        auction=pw.this._pw_instance,
        start=pw.this._pw_window_start,
        end=pw.this._pw_window_end,
        count=pw.reducers.count(),
    )
    most = counts.groupby(counts.start).reduce(counts.start, count=pw.reducers.max(counts.count))
    joined = counts.join(most, counts.start == most.start, counts.count == most.count)
    return joined.select(counts.auction, counts.start, counts.end, counts.count)


def q7(bids: Any) -> Any:
    windows = bids.windowby(bids.ts, window=pw.temporal.tumbling(duration=TEN))
    most = windows.reduce(
        start=pw.this._pw_window_start,
        end=pw.this._pw_window_end,
        price=pw.reducers.max(pw.this.price),
    )
    placed = bids.with_columns(start=bids.ts - bids.ts % TEN)
    joined = placed.join(most, placed.start == most.start, placed.price == most.price)
    return joined.select(
        placed.auction, placed.bidder, placed.price, placed.ts, most.start, most.end
    )


def q8(persons: Any, auctions: Any) -> Any:
    window = pw.temporal.tumbling(duration=TEN)
    joined = pw.temporal.window_join(
        persons, auctions, persons.ts, auctions.ts, window, persons.number == auctions.seller
    )
    found = joined.select(persons.number, persons.name)
    return found.groupby(found.number, found.name).reduce(found.number, found.name)


QUERIES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "count": (count, ("bids",)),
    "q1": (q1, ("bids",)),
    "q2": (q2, ("bids",)),
    "q3": (q3, ("auctions", "persons")),
    "q5": (q5, ("bids",)),
    "q7": (q7, ("bids",)),
    "q8": (q8, ("persons", "auctions")),
    "fee": (partial(called, fee), ("bids",)),
    "score": (partial(called, score), ("bids",)),
}


def run(request: Request) -> Answer:
    build, streams = QUERIES[request.query]
    made: Any = build(*(table(request.folder, stream) for stream in streams))
    names = made.column_names()
    found: Counter[tuple[Any, ...]] = Counter()

    def changed(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        found[tuple(row[name] for name in names)] += 1 if is_addition else -1

    if request.check:
        pw.io.subscribe(made, on_change=changed)
    else:
        pw.io.null.write(made)
    began = perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = perf_counter() - began
    return Answer(
        seconds=seconds, digest=digest_of_rows(list(found.elements())) if request.check else None
    )


if __name__ == "__main__":
    serve(run)
