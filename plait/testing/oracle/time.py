"""Time in the plain loop: how far the sources are, and with them every operator.

Time goes on by a mark in front of every record. No watermark yet is minus infinity, and infinity is
the watermark when nothing more can come, so that comparisons need no special cases.
`plait.graph.temporal` has the definitions.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.graph.delays import watermark_delays
from plait.graph.operators import Graph, SourceOp, upstream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.testing.oracle.values import Values

Time = float
"""Microseconds since 1970 as an int, or minus or plus infinity; both compare exactly."""
NO_TIME, ALL_TIME = -math.inf, math.inf


class Fate(enum.Enum):
    """What becomes of a record that no result has a part of; the value is the name of its count."""

    LATE = "late"
    LEFT_OUT = "filtered"
    """For another reason than time: a null as the key of a join."""


class TimerFault(Exception):
    """A timer failed. It ends the stream whatever the policy: there is no record to leave out."""

    def __init__(self, why: str, rows: list[Values]) -> None:
        super().__init__(why)
        self.rows = rows
        """Those that came before it."""


class TimedOperator:
    """An operator that knows time."""

    held: Time = NO_TIME
    """At a mark: its watermark without sources that were stopped and flushed."""

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        """The rows that come at the place of this record, or why it is in none; may raise Fault, or
        TimerFault if a timer fails that the record set for a time gone by.

        `place` grows from row to row.
        """
        raise NotImplementedError

    def due(self, before: Time, watermark: Time) -> list[Values]:
        """The rows that are due at a mark that moves the watermark from the one to the other; may
        raise TimerFault."""
        return []

    def behind(self, watermark: Time, *, at_end: bool) -> list[Values]:
        """The rows that a fact of the unit makes come: the wall clock, a port at its end. They come
        behind all else of the unit; `watermark` is that of its last row, `at_end`: whether nothing
        more can come. May raise TimerFault."""
        return []


@dataclass(frozen=True, slots=True)
class Mark:
    """Time as it is in front of a record, or behind a unit."""

    row: int
    times: dict[int, Time]
    """Of each source that holds time back: it has an event time, and is neither idle nor over."""
    over: frozenset[int]
    """The sources at their end."""
    flushed: frozenset[int]
    """The sources that were stopped and count as if they were at their end."""
    behind: bool
    """Whether it is the last of its unit, with the facts of the unit."""


class Watermarks:
    """The watermark of every operator."""

    def __init__(self, graph: Graph) -> None:
        operators = graph.operators
        self.sources = {i: op for i, op in enumerate(operators) if isinstance(op, SourceOp)}
        self.reaching = [
            frozenset(upstream(operators, i)) & self.sources.keys() for i in range(len(operators))
        ]
        self.delays = watermark_delays(operators)
        self.times = {i: NO_TIME for i, op in self.sources.items() if op.event_time is not None}
        self.idle: frozenset[int] = frozenset()
        self.over: frozenset[int] = frozenset()
        self.cut: frozenset[int] = frozenset()
        """The sources that were stopped before their end: nothing is due because of that."""
        self.flushed: frozenset[int] = frozenset()
        """The sources that were stopped and count as if they were at their end ..."""
        self.held: list[Time] = [NO_TIME] * len(operators)
        """... and the watermark of every operator without that."""
        self.marks: list[Mark] = []
        """Of the unit."""
        self.now: list[Time] = [NO_TIME] * len(operators)
        self.clock = [0] * len(operators)
        """The greatest stamp of the units that have reached each operator."""

    def read(
        self,
        source: int,
        rows: Sequence[tuple[int, Values]],
        end: int,
        over: bool,
        idle: bool,
        stamp: int,
    ) -> None:
        """Begins a unit of a source: its rows with their numbers, the number behind them all, and
        its facts."""
        self.marks = []
        for row, values in rows:
            self.idle -= {source}
            self.move(source, values)
            self.marks.append(self.mark(row))
        self.idle = self.idle | {source} if idle else self.idle - {source}
        self.over |= {source} if over else frozenset()
        self.marks.append(self.mark(end, behind=True))
        for i, reaching in enumerate(self.reaching):
            if source in reaching:
                self.clock[i] = max(self.clock[i], stamp)

    def move(self, source: int, values: Values) -> None:
        """A record of a source; the first one sets its time freely."""
        op = self.sources[source]
        if op.event_time is not None:
            now, time = self.times[source], values[op.schema.index(op.event_time)]
            self.times[source] = (
                time if now == NO_TIME else max(now, min(time, now + op.max_jump_us))
            )

    def mark(self, row: int, *, behind: bool = False) -> Mark:
        resting = self.idle | self.over
        times = {i: time for i, time in self.times.items() if i not in resting}
        return Mark(row, times, self.over, self.flushed, behind)

    def steps(self, op: int) -> Iterator[tuple[Mark, Time, Time]]:
        """The marks of the unit, each with the watermark of an operator before and behind it."""
        for mark in self.marks:
            before = self.now[op]
            after = max(before, self.least(op, mark))
            self.held[op] = max(self.held[op], self.least(op, mark, held=True))
            yield mark, before, after
            self.now[op] = after

    def least(self, op: int, mark: Mark, *, held: bool = False) -> Time:
        """`held`: sources that were stopped hold time back as before."""
        flushed = frozenset() if held else mark.flushed
        if self.reaching[op] <= mark.over | flushed:
            return ALL_TIME
        times = {i: time for i, time in mark.times.items() if i not in flushed}
        known = [times[i] - delay for i, delay in self.delays[op].items() if i in times]
        return min(known, default=NO_TIME)
