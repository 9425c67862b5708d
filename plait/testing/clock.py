"""Ends and a clock that a test moves by hand: nothing in a test has to wait for real time.

>>> clock = VirtualClock()
>>> clock.advance(1.5)
>>> clock.now()
1.5
"""

from __future__ import annotations

import threading
from typing import Any

from plait.connectors.base import Reader, Sink, Source, Wait, Writer
from plait.model.records import values_of
from plait.model.schema import Schema


class VirtualClock:
    """A clock that stands still until it is told to go on.

    `sleep` returns when other threads have advanced the clock far enough; with `auto` it moves the
    clock itself and returns at once, which is what a test of one thread wants.

    >>> clock = VirtualClock(auto=True)
    >>> clock.sleep(1.5)
    >>> clock.now()
    1.5
    """

    def __init__(self, start_s: float = 0.0, *, auto: bool = False) -> None:
        self.now_s = start_s
        self.auto = auto
        self.asleep = 0
        self.moved = threading.Condition()

    def now(self) -> float:
        """The time, in seconds."""
        with self.moved:
            return self.now_s

    def advance(self, seconds: float) -> None:
        """Moves the clock on and wakes the threads whose time has come."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back: {seconds} s")
        with self.moved:
            self.now_s += seconds
            self.moved.notify_all()

    def sleep(self, seconds: float) -> None:
        """Returns when the clock has moved on by this much."""
        if self.auto:
            self.advance(max(0.0, seconds))
            return
        with self.moved:
            until = self.now_s + seconds
            self.asleep += 1
            self.moved.notify_all()
            try:
                self.moved.wait_for(lambda: self.now_s >= until)
            finally:
                self.asleep -= 1

    def wait_for_sleepers(self, count: int) -> None:
        """Returns when at least `count` threads are in `sleep`."""
        with self.moved:
            self.moved.wait_for(lambda: self.asleep >= count)


class Feed(Source):
    """A live source fed by a test. Each push is one epoch, if it is within `epoch_records`.

    Rows stay, so that the sequential run can read them again.

    >>> feed = Feed({"price": int})
    >>> feed.push([(10,), (20,)])
    >>> feed.close()
    >>> plait.stream(feed).sum("price").collect()
    [Record(sum=10), Record(sum=30)]
    """

    bounded = False

    def __init__(self, schema: Any, label: str = "", wait_s: float = 0.001) -> None:
        self.schema = Schema.of(schema)
        self.label = label
        self.wait_s = wait_s
        self.lock = threading.Lock()
        self.pushes: list[list[tuple[Any, ...]]] = []
        self.closed = False

    def push(self, rows: Any) -> None:
        """Adds an epoch. An empty one changes nothing but that a reader finds it empty."""
        checked = [values_of(row, self.schema) for row in rows]
        with self.lock:
            if self.closed:
                raise ValueError("the feed is closed")
            self.pushes.append(checked)

    def close(self) -> None:
        """Says that no more rows come."""
        with self.lock:
            self.closed = True

    def open(self, position: Any = None) -> Reader:
        push, row = position or (0, 0)
        return FeedReader(self, push, row)


class FeedReader(Reader):
    def __init__(self, feed: Feed, push: int, row: int) -> None:
        self.feed = feed
        self.push = push
        self.row = row

    def poll(self, max_rows: int) -> Any:
        with self.feed.lock:
            if self.push == len(self.feed.pushes):
                return None if self.feed.closed else Wait(self.feed.wait_s)
            rows = self.feed.pushes[self.push]
        taken = rows[self.row : self.row + max_rows]
        self.row += len(taken)
        if self.row == len(rows):
            self.push, self.row = self.push + 1, 0
        return taken

    def position(self) -> list[int]:
        return [self.push, self.row]


class Capture(Sink):
    """A sink that keeps every batch where a test finds it, also when the run fails.

    `ended` is "close" or "abort" once the writer was closed.

    >>> sink = Capture()
    >>> _ = plait.stream([1, 2]).sink(sink).run()
    >>> sum(batch.num_rows for batch in sink.batches), sink.ended
    (2, 'close')
    """

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.batches: list[Any] = []
        self.ended = ""

    def open(self, schema: Schema) -> Writer:
        return CaptureWriter(self)


class CaptureWriter(Writer):
    def __init__(self, sink: Capture) -> None:
        self.sink = sink

    def write(self, batch: Any) -> None:
        self.sink.batches.append(batch)

    def close(self) -> None:
        self.end("close")

    def abort(self) -> None:
        self.end("abort")

    def end(self, how: str) -> None:
        if self.sink.ended:
            raise AssertionError(f"the sink was closed twice: {self.sink.ended}, then {how}")
        self.sink.ended = how
