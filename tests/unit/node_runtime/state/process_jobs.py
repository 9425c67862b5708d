"""Tables and processes that the tests of processes share."""

from __future__ import annotations

import datetime
import random
from typing import TYPE_CHECKING, Any, ClassVar

from plait.functions.process import Process
from plait.model.schema import Schema
from plait.testing.random_jobs.processes import Watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BEGIN = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)
OUT = {"key": str, "what": str, "n": int}
CLOCK: dict[str, Any] = {"event_time": "ts", "out_of_order": "2s"}


def rows(count: int, seed: int, keys: int = 5) -> list[dict[str, Any]]:
    """Records of a few keys, somewhat out of order, some at the same time."""
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    at = 0
    for _ in range(count):
        at += draw.choice((0, 0, 1, 1, 2, 9))
        ts = BEGIN + (at - draw.randint(0, 3)) * SECOND
        found.append({"k": f"k{draw.randrange(keys)}", "v": draw.randint(0, 60), "ts": ts})
    return found


def given(count: int, seed: int, keys: int = 5) -> Any:
    import pyarrow as pa

    schema = Schema.of({"k": str, "v": int, "ts": datetime.datetime}).to_arrow()
    return pa.Table.from_pylist(rows(count, seed, keys), schema=schema)


def watched(failing: int = 0, delay_s: int = 5) -> Watched:
    return Watched("ts", "v", delay_s * SECOND, failing)


class Seen(Process):
    """Counts records, without timers."""

    state: ClassVar[Mapping[str, Any]] = {"seen": int}
    out: ClassVar[Any] = OUT

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        state.seen += 1
        yield repr(key), "seen", state.seen


class Restless(Process):
    """Timers that set timers: before their own time, at it, behind it."""

    state: ClassVar[Mapping[str, Any]] = {"fired": int}
    out: ClassVar[Any] = OUT

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        for seconds in (record.v % 7, -3, 40):
            timers.at(record.ts + seconds * SECOND)

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> list[Any]:
        state.fired += 1
        for seconds in (-5, 0, 2) if state.fired % 3 == 0 else ():
            timers.at(time + seconds * SECOND)
        return [(key, time.isoformat(), state.fired)]
