# mypy: disable-error-code="import-not-found, misc"
"""Bytewax 0.21: operators of its library on lists of tuples in memory.

Results of a timed run are dropped batch by batch, those of a check go into `TestingSink`.

The time is that of `run_main` (one worker) or `cluster_main` (two threads of one process), with the
lists made beforehand. The source hands over slices of a list. Where a query is stateless or only
counts, every worker has a part of the source; windows and joins have a single part, because the
clock of a key takes what comes behind another part's records for late and drops it.
"""

from __future__ import annotations

import gc
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow.parquet
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSink, cluster_main, run_main

from benchmarks.peers.digest import digest_of_rows
from benchmarks.peers.python_work import fee, score
from benchmarks.peers.serve import Answer, Request, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Rows = list[tuple[Any, ...]]

BATCH = 1024
START = datetime(2026, 1, 1, tzinfo=UTC)
"""Windows are counted from here."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEN, TWO = timedelta(seconds=10), timedelta(seconds=2)
WAIT = TEN
"""A clock moves on with the system's time between batches, and batches of two streams overtake each
other: with less, records of a replay are late and dropped."""
COLUMNS = {
    "persons": ("id", "name", "city", "state", "ts"),
    "auctions": ("id", "seller", "category", "ts"),
    "bids": ("auction", "bidder", "price", "ts"),
}


@cache
def rows(folder: Path, stream: str) -> Rows:
    table = pyarrow.parquet.read_table(folder / f"{stream}.parquet")
    # Bytewax takes this one object for UTC, and no other of the same meaning.
    naive = table["ts"].cast("timestamp[us]").to_pylist()
    times = [at.replace(tzinfo=UTC) for at in naive]
    columns = [table[name].to_pylist() for name in COLUMNS[stream][:-1]]
    return list(zip(*columns, times, strict=True))


@cache
def both(folder: Path) -> Rows:
    """Persons (0) and auctions (1) in the order of their times."""
    made = [(row[-1], 0, row) for row in rows(folder, "persons")]
    made += [(row[-1], 1, row) for row in rows(folder, "auctions")]
    made.sort(key=lambda event: event[:2])
    return [event[1:] for event in made]


class Part(StatefulSourcePartition):
    """Every so-manieth batch of a list."""

    def __init__(self, given: Rows, first: int, parts: int) -> None:
        self.given = given
        self.at = first * BATCH
        self.step = parts * BATCH

    def next_batch(self) -> Rows:
        if self.at >= len(self.given):
            raise StopIteration()
        made = self.given[self.at : self.at + BATCH]
        self.at += self.step
        return made

    def snapshot(self) -> int:
        return self.at


class Records(FixedPartitionedSource):
    def __init__(self, given: Rows, parts: int) -> None:
        self.given = given
        self.parts = parts

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(self.parts)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:
        return Part(self.given, int(for_part), self.parts)


class Discarded(StatelessSinkPartition):
    def write_batch(self, items: Rows) -> None:
        pass


class Discard(DynamicSink):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Discarded:
        return Discarded()


def microseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def count(bids: Any) -> Any:
    keyed = op.key_on("auction", bids, lambda bid: str(bid[0]))

    def next_count(seen: int | None, bid: Any) -> tuple[int, tuple[int, int]]:
        seen = (seen or 0) + 1
        return seen, (bid[0], seen)

    return op.key_rm("rows", op.stateful_map("count", keyed, next_count))


def q1(bids: Any) -> Any:
    return op.map("euros", bids, lambda bid: (bid[0], bid[1], bid[2] * 908 // 1000, bid[3]))


def q2(bids: Any) -> Any:
    chosen = op.filter("chosen", bids, lambda bid: bid[0] % 123 == 0)
    return op.map("columns", chosen, lambda bid: (bid[0], bid[2]))


def called(function: Any, bids: Any) -> Any:
    return op.map("called", bids, lambda bid: (bid[0], function(bid[0], bid[2])))


def q3(events: Any) -> Any:
    """`join` would give all pairs of a seller again with every auction: the state is our own."""

    def wanted(event: Any) -> bool:
        what, row = event
        return bool(row[2] == 10 if what else row[3] in ("OR", "ID", "CA"))

    def matches(state: Any, event: Any) -> Any:
        person, waiting = state or (None, [])
        what, row = event
        if what == 0:
            person = row[1:4]
            return (person, []), [(*person, auction) for auction in waiting]
        if person is not None:
            return (person, waiting), [(*person, row[0])]
        waiting.append(row[0])
        return (None, waiting), []

    chosen = op.filter("chosen", events, wanted)
    keyed = op.key_on("person", chosen, lambda event: str(event[1][1 if event[0] else 0]))
    return op.key_rm("rows", op.stateful_flat_map("join", keyed, matches))


def q5(bids: Any) -> Any:
    """One key for all: the windows of an auction's own key would wait for its next bid."""

    def add(counts: dict[int, int], bid: Any) -> dict[int, int]:
        counts[bid[0]] = counts.get(bid[0], 0) + 1
        return counts

    def merge(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
        for auction, seen in b.items():
            a[auction] = a.get(auction, 0) + seen
        return a

    def top(keyed: Any) -> Rows:
        _, (window, counts) = keyed
        start = microseconds(START + window * TWO)
        most = max(counts.values())
        found = [(auction, seen) for auction, seen in counts.items() if seen == most]
        return [(auction, start, start + 10_000_000, seen) for auction, seen in found]

    keyed = op.key_on("all", bids, lambda _: "all")
    clock = win.EventClock(ts_getter=lambda bid: bid[3], wait_for_system_duration=WAIT)
    windows = win.SlidingWindower(length=TEN, offset=TWO, align_to=START)
    made = win.fold_window("counts", keyed, clock, windows, dict, add, merge)
    return op.flat_map("top", made.down, top)


def q7(bids: Any) -> Any:
    def best(found: Rows, bid: Any) -> Rows:
        if not found or bid[2] > found[0][2]:
            return [bid]
        if bid[2] == found[0][2]:
            found.append(bid)
        return found

    def merge(a: Rows, b: Rows) -> Rows:
        for bid in b:
            a = best(a, bid)
        return a

    def with_window(keyed: Any) -> Rows:
        _, (window, found) = keyed
        start = microseconds(START + window * TEN)
        return [(*bid, start, start + 10_000_000) for bid in found]

    keyed = op.key_on("all", bids, lambda _: "all")
    clock = win.EventClock(ts_getter=lambda bid: bid[3], wait_for_system_duration=WAIT)
    windows = win.TumblingWindower(length=TEN, align_to=START)
    made = win.fold_window("best", keyed, clock, windows, list, best, merge)
    return op.flat_map("rows", made.down, with_window)


def q8(events: Any) -> Any:
    """`complete` gives a row once, when both sides are there: persons who opened an auction."""
    sides = op.branch("what", events, lambda event: event[0] == 0)
    persons = op.key_on("id", sides.trues, lambda event: str(event[1][0]))
    auctions = op.key_on("seller", sides.falses, lambda event: str(event[1][1]))
    clock = win.EventClock(ts_getter=lambda event: event[1][-1], wait_for_system_duration=WAIT)
    windows = win.TumblingWindower(length=TEN, align_to=START)
    made = win.join_window(
        "join", clock, windows, persons, auctions, insert_mode="last", emit_mode="complete"
    )
    return op.map("columns", made.down, lambda keyed: keyed[1][1][0][1][:2])


QUERIES: dict[str, Callable[[Any], Any]] = {
    "count": count,
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
    parts = 1 if request.query in ("q3", "q5", "q7", "q8") else request.workers
    results: Rows = []
    flow = Dataflow(request.query)
    made = QUERIES[request.query](op.input("in", flow, Records(given, parts)))
    op.output("out", made, TestingSink(results) if request.check else Discard())
    began = perf_counter()
    if request.workers == 1:
        run_main(flow)
    else:
        cluster_main(flow, [], 0, worker_count_per_proc=request.workers)
    seconds = perf_counter() - began
    return Answer(seconds=seconds, digest=digest_of_rows(plain(results)) if request.check else None)


def plain(results: Rows) -> Rows:
    """Times as microseconds."""
    timed = [i for i, value in enumerate(results[0]) if isinstance(value, datetime)]
    if not timed:
        return results
    return [
        tuple(microseconds(v) if i in timed else v for i, v in enumerate(row)) for row in results
    ]


if __name__ == "__main__":
    gc.disable()
    serve(run)
