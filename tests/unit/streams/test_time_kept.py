"""Operators in Python keep the event time where their output has its columns: windows after them
give what the plain loop gives, on every entry point and whatever the epochs."""

from __future__ import annotations

import asyncio
import datetime
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import plait
from plait import col
from plait.testing import assert_same, sequential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.streams.stream import Stream

    EntryPoint = Callable[..., plait.Result]

BASE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ROWS = 150


@dataclass
class Reading:
    k: int
    v: int
    ts: plait.Timestamp


def readings() -> list[Reading]:
    """Out of order by up to three seconds, so that some are late for windows of two."""
    chance = random.Random(5)
    return [
        Reading(n % 4, n, BASE + datetime.timedelta(seconds=n / 3 - chance.random() * 3))
        for n in range(ROWS)
    ]


def step(state: int, record: Reading) -> tuple[int, Reading]:
    return state + 1, replace(record, v=state)


def pieces(record: Reading) -> Iterator[Reading]:
    for n in range(record.v % 3):
        yield replace(record, ts=record.ts + datetime.timedelta(seconds=n))


def changed(record: Reading) -> Reading:
    return replace(record, ts=record.ts - datetime.timedelta(seconds=record.v % 2))


async def awaited(record: Reading) -> Reading:
    for _ in range(record.v % 3):
        await asyncio.sleep(0)
    return changed(record)


class Again(plait.Process):
    """Each record, and its copy from a timer five seconds later."""

    state: ClassVar = {"last": plait.Timestamp, "seen": int}
    out = Reading

    def on_record(self, key: int, record: Reading, state: Any, timers: Any) -> Iterator[Reading]:
        state.last, state.seen = record.ts, state.seen + 1
        timers.at(record.ts + plait.seconds(5))
        yield record

    def on_timer(self, key: int, at: Any, state: Any, timers: Any) -> Iterator[Reading]:
        yield Reading(key, state.seen, at)


class Both(plait.Process):
    state: ClassVar = {"seen": int}
    out = Reading

    def on_left(self, key: int, record: Any, state: Any, timers: Any) -> Iterator[Reading]:
        state.seen += 1
        yield Reading(key, record.v, record.ts)

    def on_right(self, key: int, record: Any, state: Any, timers: Any) -> Iterator[Reading]:
        yield Reading(key, state.seen, record.ts)


@plait.operator(outputs={"out": Reading})
async def held_back(ctx: plait.Context) -> None:
    """Emits a record when two more have come; the last ones at the end."""
    while await ctx.wait_all(records=3):
        ctx.emit(ctx.pop("records"))
    for record in ctx.pop("records", ctx.size("records")):
        ctx.emit(record)


@plait.operator(inputs=("a", "b"), outputs={"small": "a", "large": "b", "n": int})
async def sorted_out(ctx: plait.Context) -> None:
    while await ctx.wait_any(a=1, b=1):
        for port in ctx.inputs:
            for record in ctx.pop(port, ctx.size(port)):
                if record.v < ROWS // 2:
                    ctx.emit(small=record)
                else:
                    ctx.emit(large=record, n=record.v)


def halves(stream: Stream) -> list[Stream]:
    return [stream.filter(col("v") % 2 == n) for n in (0, 1)]


def united(stream: Stream) -> Stream:
    parts = sorted_out(*halves(stream))
    return plait.union(parts.large, parts.small)


JOBS: dict[str, Callable[[Stream], Stream]] = {
    "stateful": lambda s: s.key_by("k").stateful(0, step, schema=s.schema),
    "flat_map": lambda s: s.flat_map(pieces, schema=s.schema),
    "map": lambda s: s.map(changed, schema=s.schema),
    "map_async": lambda s: s.map_async(awaited, schema=s.schema, concurrency=4),
    "process": lambda s: s.key_by("k").process(Again()),
    "two streams": lambda s: plait.connect(*(half.key_by("k") for half in halves(s))).process(
        Both()
    ),
    "coroutine": lambda s: held_back(s).out,
    "coroutine with ports": united,
    "several": lambda s: held_back(
        s.map(changed, schema=s.schema).key_by("k").stateful(0, step, schema=s.schema)
    ).out.map_async(awaited, schema=s.schema),
}


def job_of(kind: str) -> plait.Job:
    """What comes in the windows, and beside them the records themselves."""
    job = plait.Job("kept")
    source = job.source(plait.Items(readings()), event_time="ts", out_of_order="1s")
    made = JOBS[kind](source)
    counts = made.key_by("k").tumbling("2s").aggregate(n=plait.count(), s=plait.sum("v"))
    counts.sink(plait.Collect(), name="counts")
    made.sink(plait.Collect(), name="records")
    return job


@pytest.mark.parametrize("kind", JOBS)
def test_windows_after_it_are_those_of_the_plain_loop(kind: str) -> None:
    graph = job_of(kind).graph()
    wanted = sequential(graph, epoch_records=10**6)
    assert wanted.failure is None
    assert wanted.account.late > 0
    assert len(wanted.outputs["counts"]) > 20
    for epoch, workers in ((1, 1), (7, 2), (4096, 2)):
        found = assert_same(graph, {"epoch_records": epoch, "workers": workers, "timeout": 60})
        assert found.outputs == wanted.outputs


@pytest.mark.parametrize("kind", ["stateful", "map_async", "process", "coroutine with ports"])
def test_so_they_are_on_every_entry_point(entry_point: EntryPoint, kind: str) -> None:
    wanted = sequential(job_of(kind).graph(), epoch_records=10**6)
    result = entry_point(job_of(kind), epoch_records=9)
    assert result.account.late == wanted.account.late
    for label, rows in wanted.outputs.items():
        assert result.outputs[label].num_rows == len(rows)
    counts = [list(row.values()) for row in result.outputs["counts"].to_pylist()]
    names = wanted.schemas["counts"].names
    n = [names.index(name) for name in ("k", "n", "s")]
    assert [[row[i] for i in n] for row in counts] == [
        [row[i] for i in n] for row in wanted.outputs["counts"]
    ]
