"""State machines for random jobs: deterministic, picklable, with timers, some failing on some
records.

What they do to a record depends only on its values, the state, and the time of a timer.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from plait.functions.process import Process
from plait.testing.random_jobs.functions import checksum

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OUT = {"key": str, "what": str, "n": int, "ts": datetime.datetime}


class Watched(Process):
    """Tells of every third value, and of every timer; every second value sets one.

    Some are set for a time gone by. A timer may set the next one, or one for a time before its own,
    a few times: time may go far at once.
    """

    state: ClassVar[Mapping[str, Any]] = {
        "seen": int,
        "last": float,
        "at": datetime.datetime,
        "words": list[str],
        "times": dict[str, int],
        "again": int,
    }
    out: ClassVar[Any] = OUT

    def __init__(self, time: str, column: str, delay: datetime.timedelta, failing: int = 0) -> None:
        self.time = time
        self.column = column
        self.delay = delay
        self.failing = failing

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        at = getattr(record, self.time)
        number = checksum(getattr(record, self.column))
        state.seen += 1
        state.last = number / 7
        state.at = at
        state.words.append(str(number % 10))
        state.times[str(number % 3)] = state.times.get(str(number % 3), 0) + 1
        if number % 3 == 0:
            yield repr(key), "".join(state.words), state.seen, at
        if self.failing and number % self.failing == 0:
            raise ValueError(f"{self.column} has the checksum {number}")
        if number % 2:
            timers.at(at + self.delay)
            timers.at(at + self.delay)
        if number % 5 == 0:
            timers.at(at)
        if number % 7 == 0:
            timers.at(at - self.delay)

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield repr(key), repr(sorted(state.times)), state.seen, time
        if state.seen % 4 == 3 and state.again < 5:
            state.again += 1
            timers.at(time + self.delay)
        if state.seen % 4 == 2 and state.again < 5:
            state.again += 1
            timers.at(time - self.delay / 2)
        if state.seen > 5:
            state.clear()


class Met(Process):
    """Two streams: a left record waits for a right one, and is told of after a while."""

    state: ClassVar[Mapping[str, Any]] = {"waiting": list[int], "met": int}
    out: ClassVar[Any] = OUT

    def __init__(self, column: str, times: tuple[str, str], delay: datetime.timedelta) -> None:
        self.column = column
        self.times = times
        self.delay = delay

    def on_left(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        state.waiting.append(checksum(getattr(record, self.column)) % 100)
        timers.at(getattr(record, self.times[0]) + self.delay)

    def on_right(self, key: Any, record: Any, state: Any, timers: Any) -> list[Any]:
        at = getattr(record, self.times[1])
        found = [(repr(key), "met", number, at) for number in state.waiting]
        state.met += len(found)
        state.waiting.clear()
        return found

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> list[Any]:
        if not state.waiting:
            return []
        return [(repr(key), f"waited, {state.met} met", state.waiting.pop(0), time)]


class Patient(Process):
    """Waits on both clocks: timers set timeouts and timeouts timers, a few times."""

    state: ClassVar[Mapping[str, Any]] = {"seen": int, "rounds": int}
    out: ClassVar[Any] = OUT

    def __init__(
        self, time: str, column: str, delays: tuple[datetime.timedelta, str], failing: int = 0
    ) -> None:
        self.time = time
        self.column = column
        self.delays = delays
        self.failing = failing

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        number = checksum(getattr(record, self.column))
        state.seen += 1
        if number % 4 < 3:
            timers.after(self.delays[1])
        if number % 4 > 1:
            timers.at(getattr(record, self.time) + self.delays[0])
        yield repr(key), "at", state.seen, timers.now
        if self.failing and number % self.failing == 0:
            raise ValueError(f"{self.column} has the checksum {number}")

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield repr(key), "timer", state.seen, time
        state.rounds += 1
        if state.rounds % 4:
            timers.after(self.delays[1])

    def on_timeout(self, key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield repr(key), "timeout", state.seen, time
        state.rounds += 1
        if state.rounds % 3 == 1:
            timers.at(timers.now - self.delays[0])
        if state.rounds % 3 == 2:
            timers.after(self.delays[1])
        if state.rounds > 7:
            state.clear()
