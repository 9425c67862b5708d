"""No engine: the queries as plain Python `for` loops over lists of tuples, on one core.

What one writes for data that comes in the order of its time and fits into memory. Results are
appended to a list, with the garbage collector off: it would look through them all again and again.
The loops are also the second opinion on the right answers.
"""

from __future__ import annotations

import gc
from collections import deque
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet

from benchmarks.peers.digest import digest_of_rows
from benchmarks.peers.python_work import fee, score
from benchmarks.peers.serve import Answer, Request, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Rows = list[tuple[Any, ...]]

SECOND = 1_000_000
TUMBLING, SLIDING, EVERY = 10 * SECOND, 10 * SECOND, 2 * SECOND
COLUMNS = {
    "persons": ("id", "name", "city", "state", "ts"),
    "auctions": ("id", "seller", "category", "ts"),
    "bids": ("auction", "bidder", "price", "ts"),
}


@cache
def rows(folder: Path, stream: str) -> Rows:
    table = pyarrow.parquet.read_table(folder / f"{stream}.parquet")
    table = table.set_column(table.schema.get_field_index("ts"), "ts", table["ts"].cast("int64"))
    return list(zip(*(table[name].to_pylist() for name in COLUMNS[stream]), strict=True))


@cache
def both(folder: Path) -> Rows:
    """Persons (0) and auctions (1) in the order of their times."""
    made = [(row[-1], 0, row) for row in rows(folder, "persons")]
    made += [(row[-1], 1, row) for row in rows(folder, "auctions")]
    made.sort(key=lambda event: event[:2])
    return [event[1:] for event in made]


def count(bids: Rows) -> Rows:
    counts: dict[int, int] = {}
    results = []
    for bid in bids:
        auction = bid[0]
        seen = counts.get(auction, 0) + 1
        counts[auction] = seen
        results.append((auction, seen))
    return results


def last_count(bids: Rows) -> Rows:
    return list(dict(count(bids)).items())


def q1(bids: Rows) -> Rows:
    results = []
    for auction, bidder, price, ts in bids:
        results.append((auction, bidder, price * 908 // 1000, ts))
    return results


def q2(bids: Rows) -> Rows:
    results = []
    for auction, _, price, _ in bids:
        if auction % 123 == 0:
            results.append((auction, price))
    return results


def q3(events: Rows) -> Rows:
    near: dict[int, tuple[str, str, str]] = {}
    waiting: dict[int, list[int]] = {}
    results = []
    for what, row in events:
        if what == 0:
            id, name, city, state, _ = row
            if state in ("OR", "ID", "CA"):
                near[id] = name, city, state
                for auction in waiting.get(id, ()):
                    results.append((name, city, state, auction))
        else:
            auction, seller, category, _ = row
            if category == 10:
                waiting.setdefault(seller, []).append(auction)
                person = near.get(seller)
                if person is not None:
                    results.append((*person, auction))
    return results


def q5(bids: Rows) -> Rows:
    results: Rows = []
    panes: deque[dict[int, int]] = deque(maxlen=SLIDING // EVERY)
    counts: dict[int, int] = {}
    end = 0
    for auction, _, _, ts in bids:
        if ts >= end:
            if not panes:
                end = ts // EVERY * EVERY
            while ts >= end:
                if panes:
                    results += most_frequent(panes, end)
                counts = {}
                panes.append(counts)
                end += EVERY
        counts[auction] = counts.get(auction, 0) + 1
    while any(panes):
        results += most_frequent(panes, end)
        panes.append({})
        end += EVERY
    return results


def most_frequent(panes: Iterable[dict[int, int]], end: int) -> Rows:
    """The auctions with the most bids of the window that ends now."""
    total: dict[int, int] = {}
    for pane in panes:
        for auction, seen in pane.items():
            total[auction] = total.get(auction, 0) + seen
    most = max(total.values(), default=0)
    return [(a, end - SLIDING, end, seen) for a, seen in total.items() if seen == most]


def q7(bids: Rows) -> Rows:
    results: Rows = []
    best: Rows = []
    most = end = 0
    for bid in bids:
        _, _, price, ts = bid
        if ts >= end:
            results += [(*found, end - TUMBLING, end) for found in best]
            end = ts // TUMBLING * TUMBLING + TUMBLING
            best, most = [bid], price
        elif price > most:
            best, most = [bid], price
        elif price == most:
            best.append(bid)
    return results + [(*found, end - TUMBLING, end) for found in best]


def q8(events: Rows) -> Rows:
    results = []
    new: dict[int, str] = {}
    sellers: set[int] = set()
    end = 0
    for what, row in events:
        ts = row[-1]
        if ts >= end:
            end = ts // TUMBLING * TUMBLING + TUMBLING
            new, sellers = {}, set()
        if what == 0:
            id, name = row[0], row[1]
            if id in sellers:
                results.append((id, name))
            else:
                new[id] = name
        else:
            seller = row[1]
            if seller in new:
                results.append((seller, new.pop(seller)))
            sellers.add(seller)
    return results


def called(function: Callable[[int, int], int], bids: Rows) -> Rows:
    results = []
    for auction, _, price, _ in bids:
        results.append((auction, function(auction, price)))
    return results


QUERIES: dict[str, Callable[[Rows], Rows]] = {
    "count": count,
    "last_count": last_count,
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "q5": q5,
    "q7": q7,
    "q8": q8,
    "fee": partial(called, fee),
    "score": partial(called, score),
}


def run(request: Request) -> Answer:
    joins = request.query in ("q3", "q8")
    given = both(request.folder) if joins else rows(request.folder, "bids")
    began = perf_counter()
    results = QUERIES[request.query](given)
    seconds = perf_counter() - began
    return Answer(seconds=seconds, digest=digest_of_rows(results) if request.check else None)


if __name__ == "__main__":
    gc.disable()
    serve(run)
