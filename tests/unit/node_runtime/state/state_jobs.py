"""Jobs with keyed Python state for the tests of worker processes, and what can go wrong in them."""

from __future__ import annotations

import datetime
import enum
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

import plait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = 500
KEYS = 13


def given(rows: int = ROWS) -> pa.Table:
    numbers = range(rows)
    kind = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "k": [f"key {n * 7 % KEYS}" for n in numbers],
            "n": list(numbers),
            "v": [None if n % 9 == 0 else n % 11 for n in numbers],
            "ts": pa.array([n * 1_000_000 for n in numbers], kind),
        }
    )


class Mood(enum.Enum):
    CALM = 1
    ROUSED = 2


@dataclass
class Seen:
    """A state of the user's own class."""

    count: int = 0
    mood: Mood = Mood.CALM
    last: list[int] = field(default_factory=list)


def summed(total: int, record: Any) -> int:
    return total + int(record.n)


def seen(state: Seen, record: Any) -> Any:
    """Goes wrong if the state is of a class that is only called the same."""
    assert type(state) is Seen
    assert type(state.mood) is Mood
    mood = Mood.ROUSED if state.mood is Mood.CALM else Mood.CALM
    made = Seen(state.count + 1, mood, [*state.last[-2:], record.n])
    return made, {"k": record.k, "c": made.count, "l": str(made.last), "m": mood.name}


SEEN = {"k": str, "c": int, "l": str, "m": str}


def thirds(state: int, record: Any) -> Any:
    return state + 1, {"k": record.k, "n": record.n} if state % 3 == 0 else None


def picky(total: int, record: Any) -> int:
    if record.n % 100 == 57:
        raise ValueError(f"{record.n} is refused")
    return total + int(record.n)


def late_picky(total: int, record: Any) -> int:
    """Keys of different lanes fail in one batch."""
    if record.n >= 300 and record.n % 3 == 0:
        raise ValueError(f"{record.n} is refused")
    return total + int(record.n)


def wrong(total: Any, record: Any) -> Any:
    return "text" if record.n == 123 else total + 1


def deadly(total: int, record: Any) -> int:
    if record.n == 300:
        os.kill(os.getpid(), signal.SIGKILL)
    return total + int(record.n)


def endless(total: int, record: Any) -> int:
    while record.n == 300:
        time.sleep(0.01)
    return total + int(record.n)


def leaves(total: int, record: Any) -> int:
    if record.n == 300:
        raise SystemExit(3)
    return total + int(record.n)


def locked(state: Any, record: Any) -> Any:
    """A state that cannot be pickled."""
    return threading.Lock(), {"k": record.k, "n": record.n}


class Quiet(plait.Process):
    """Tells of keys that have been quiet for a while, and of every fifth record."""

    state: ClassVar[Any] = {"seen": int, "last": plait.Timestamp, "kept": list[int]}
    out: ClassVar[Any] = {"k": str, "seen": int, "what": str, "ts": datetime.datetime}

    def __init__(self, delay_s: int = 5, fails: int = 0, dies: int = -1) -> None:
        self.delay = plait.seconds(delay_s)
        self.fails = fails
        self.dies = dies

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        if record.n == self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        state.seen += 1
        state.last = record.ts
        state.kept.append(record.n)
        if self.fails and record.n % self.fails == self.fails - 1:
            raise ValueError(f"{record.n} is refused")
        timers.at(record.ts + self.delay)
        if state.seen % 5 == 0:
            yield key, state.seen, str(state.kept[-3:]), record.ts

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
        if state.seen % 7 == 3:
            yield key, state.seen, "timer", at


class BadTimer(Quiet):
    """One of its timers fails."""

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
        if state.seen == 9:
            raise KeyError(key)
        yield key, state.seen, "timer", at


class DeadlyTimer(Quiet):
    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
        if state.seen == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        yield key, state.seen, "timer", at


class Pair(plait.Process):
    """Two streams with one state."""

    state: ClassVar[Any] = {"waiting": list[int]}
    out: ClassVar[Any] = {"k": str, "n": int, "m": int}

    def on_left(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        state.waiting.append(record.n)
        timers.at(record.ts + plait.seconds(20))

    def on_right(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        for n in state.waiting:
            yield key, n, record.n
        state.waiting.clear()

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
        for n in state.waiting[:1]:
            yield key, n, -1


def connected(s: Any, route: Any, **more: Any) -> Any:
    left, right = s.filter(plait.col("n") % 3 > 0), s.filter(plait.col("n") % 3 == 0)
    return plait.connect(left.key_by("k"), right.key_by("k")).process(Pair(), route=route, **more)


STATES: dict[str, Callable[[Any, str], Any]] = {
    "fold": lambda s, r: s.key_by("k").fold(0, summed, route=r),
    "fold by two keys": lambda s, r: s.key_by("k", "v").fold(0, summed, route=r),
    "fold of all": lambda s, r: s.fold(0, summed, route=r),
    "fold with ttl": lambda s, r: s.key_by("k", ttl="9s").fold(0, summed, route=r),
    "states of a class": lambda s, r: s.key_by("k").stateful(Seen, seen, schema=SEEN, route=r),
    "stateful with ttl": lambda s, r: s.key_by("k", ttl="9s").stateful(
        Seen, seen, schema=SEEN, route=r
    ),
    "not all make a row": lambda s, r: s.key_by("k").stateful(
        0, thirds, schema={"k": str, "n": int}, route=r
    ),
    "skip": lambda s, r: s.key_by("k").fold(0, picky, on_error="skip", route=r),
    "dead letters": lambda s, r: s.key_by("k").fold(0, picky, on_error="dead_letter", route=r),
    "a result that does not fit": lambda s, r: s.key_by("k").fold(
        0, wrong, type=int, on_error="dead_letter", route=r
    ),
    "process": lambda s, r: s.key_by("k").process(Quiet(), route=r),
    "process with ttl": lambda s, r: s.key_by("k", ttl="9s").process(Quiet(), route=r),
    "process that skips": lambda s, r: s.key_by("k").process(
        Quiet(fails=50), on_error="skip", route=r
    ),
    "process with dead letters": lambda s, r: s.key_by("k").process(
        Quiet(fails=50), on_error="dead_letter", route=r
    ),
    "two streams": connected,
    "state behind state": lambda s, r: (
        s.key_by("k").process(Quiet(), route=r).key_by("seen").fold(0, counted, route=r)
    ),
}


def counted(total: int, record: Any) -> int:
    return total + 1


ENDINGS: dict[str, Callable[[Any, str], Any]] = {
    "raises": lambda s, r: s.key_by("k").fold(0, picky, route=r),
    "several in a batch": lambda s, r: s.key_by("k").fold(0, late_picky, route=r),
    "does not fit": lambda s, r: s.key_by("k").fold(0, wrong, type=int, route=r),
    "with ttl": lambda s, r: s.key_by("k", ttl="9s").fold(0, picky, route=r),
    "a process": lambda s, r: s.key_by("k").process(Quiet(fails=50), route=r),
    "a timer": lambda s, r: s.key_by("k").process(BadTimer(), route=r),
}


def job_of(make: Callable[[Any, str], Any], route: str, rows: int = ROWS) -> plait.Job:
    job = plait.Job("states")
    source = job.source(plait.Table(given(rows)), name="given", event_time="ts")
    make(source, route).sink(plait.Collect(), name="out")
    return job
