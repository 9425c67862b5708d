"""What a process keeps for each key, and its timers by each of the two clocks, first due first.

Event time is clock 0, the wall clock of the units clock 1. Timers stand in a heap, and with their
key: a timer of the heap whose key does not know it any more is passed over, so that bins can go
without a search.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from plait.node_runtime.state.bin_bytes import Key

EVENT, WALL = 0, 1
CLOCKS = (EVENT, WALL)

AT_ONCE = -(2**63)
"""As the time of a row: it comes at the place of its record. As a watermark: there is none."""
ALL_TIME = 2**63 - 1
"""The watermark behind the last record of all. As the time of the next timer: there is none."""
BEHIND = (0, 2**62)
"""Added to the time of what timers of each clock make: those by the wall clock come behind all
others of a unit. No time of a datetime is so great."""

SLACK = 1024
"""Timers of bins that have gone stay in the heap until they are so many, and more than the others.
"""

Set = dict[int, tuple[int, int]]
"""When each timer of a key (by its time) is due, and the place it goes back to."""
Entry = tuple[int, int, int, int, "Key"]
"""When it is due, the place it goes back to, its own time, a number, its key."""


class Kept:
    """What is kept for a key: its values, its timers by each clock, and the last event time of its
    records."""

    __slots__ = ("last", "timers", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.timers: tuple[Set, Set] = ({}, {})
        self.last = AT_ONCE

    def has_timers(self) -> bool:
        return bool(self.timers[EVENT] or self.timers[WALL])


class Due(NamedTuple):
    """A timer that is due."""

    due: int
    place: int
    at: int
    key: Key
    kept: Kept


class TimerHeap:
    """The timers of one clock; `find` gives what is kept for a key."""

    def __init__(self, clock: int, find: Callable[[Key], Kept | None]) -> None:
        self.clock = clock
        self.find = find
        self.heap: list[Entry] = []
        self.pending = 0
        """Timers of keys that are here; the heap may hold others."""
        self.numbered = 0

    def set(self, kept: Kept, wanted: Iterable[int], after: int, place: int, key: Key) -> None:
        """Sets the timers that are not set yet; none is due before `after`."""
        timers = kept.timers[self.clock]
        for at in wanted:
            if at not in timers:
                due = max(at, after)
                timers[at] = due, place
                self.push(due, place, at, key)

    def push(self, due: int, place: int, at: int, key: Key) -> None:
        self.numbered += 1  # so that keys, which may be anything, are never compared
        self.pending += 1
        heappush(self.heap, (due, place, at, self.numbered, key))

    def pop(self, until: int) -> Due | None:
        """The first timer that is due by then; it is no longer set."""
        while self.heap and self.heap[0][0] <= until:
            due, place, at, _, key = heappop(self.heap)
            kept = self.find(key)
            if kept is not None and kept.timers[self.clock].get(at) == (due, place):
                del kept.timers[self.clock][at]
                self.pending -= 1
                return Due(due, place, at, key, kept)
        return None

    def is_due(self, until: int) -> bool:
        """Whether a timer may be due by then."""
        return bool(self.heap) and self.heap[0][0] <= until

    def next(self) -> int:
        """When the first timer is due."""
        while self.heap:
            due, place, at, _, key = self.heap[0]
            kept = self.find(key)
            if kept is not None and kept.timers[self.clock].get(at) == (due, place):
                return due
            heappop(self.heap)
        return ALL_TIME

    def wake(self, key: Key, kept: Kept) -> None:
        """The key has come with its timers."""
        for at, (due, place) in kept.timers[self.clock].items():
            self.push(due, place, at, key)

    def leave(self, gone: Iterable[Kept]) -> None:
        """Keys go, and are not found any more."""
        self.pending -= sum(len(kept.timers[self.clock]) for kept in gone)
        if len(self.heap) > 2 * self.pending + SLACK:
            self.heap = [timer for timer in self.heap if self.find(timer[4]) is not None]
            heapify(self.heap)
