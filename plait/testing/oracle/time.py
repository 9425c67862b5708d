"""Time in the plain loop: how far its origins are, and with them every operator.

Time goes on by a mark in front of every row of a source. No watermark yet is minus infinity, and
infinity is the watermark when nothing more can come, so that comparisons need no special cases.
`plait.graph.temporal` has the definitions.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.graph.delays import is_arrival, watermark_delays
from plait.graph.operators import EventTimeOp, Graph, SourceOp, upstream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.testing.oracle.values import Values

Time = float
"""Microseconds since 1970 as an int, or minus or plus infinity; both compare exactly."""
NO_TIME, ALL_TIME = -math.inf, math.inf
FARTHEST_US = 2**62
"""Event times are within this of 1970."""


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
    now: int = 0
    """The wall clock of the unit."""

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
    """Time as it is in front of a row, or behind a unit."""

    row: int
    times: dict[int, Time]
    """Of each origin that holds time back: it is neither idle nor over. An operator that names the
    event time adds its own when its rows of the unit are known."""
    over: frozenset[int]
    """The sources at their end."""
    flushed: frozenset[int]
    """The sources that were stopped and count as if they were at their end."""
    behind: bool
    """Whether it is the last of its unit, with the facts of the unit."""


def moved(now: Time, time: Time, max_jump: int) -> Time:
    """Time behind a record of this time; the first sets it freely."""
    return time if now == NO_TIME else max(now, min(time, now + max_jump))


class Watermarks:
    """The watermark of every operator."""

    def __init__(self, graph: Graph) -> None:
        operators = graph.operators
        self.sources = {i: op for i, op in enumerate(operators) if isinstance(op, SourceOp)}
        self.reaching = [
            frozenset(upstream(operators, i)) & self.sources.keys() for i in range(len(operators))
        ]
        self.delays = watermark_delays(operators)
        self.named = {i: op for i, op in enumerate(operators) if isinstance(op, EventTimeOp)}
        timed = [i for i, op in self.sources.items() if op.event_time is not None]
        self.arrivals = frozenset(i for i, op in enumerate(operators) if is_arrival(op))
        origins = [*timed, *self.named, *self.arrivals]
        self.times: dict[int, Time] = dict.fromkeys(origins, NO_TIME)
        self.passed: dict[int, Time] = dict.fromkeys(self.named, NO_TIME)
        """Of operators that name the event time: what counts from the next row on."""
        self.passed_at: dict[int, int] = {}
        """When, by their clock, the last row passed them."""
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
        rows: Sequence[Values | None],
        first: int,
        over: bool,
        idle: bool,
        stamp: int,
    ) -> None:
        """Begins a unit of a source: its rows (None: one that could not be read), the number of the
        first, and its facts."""
        for i, reaching in enumerate(self.reaching):
            if source in reaching:
                self.clock[i] = max(self.clock[i], stamp)
                if i in self.arrivals:
                    self.times[i] = self.clock[i]
        self.marks = []
        for row, values in enumerate(rows, first):
            if values is not None:
                self.idle -= {source}
                self.move(source, values)
            self.marks.append(self.mark(row))
        self.idle = self.idle | {source} if idle else self.idle - {source}
        self.over |= {source} if over else frozenset()
        self.marks.append(self.mark(first + len(rows), behind=True))

    def move(self, source: int, values: Values) -> None:
        """A record of a source. One too far off moves nothing."""
        op = self.sources[source]
        if op.event_time is not None:
            time = values[op.schema.index(op.clock or op.event_time)]
            if abs(time) <= FARTHEST_US:
                self.times[source] = moved(self.times[source], time, op.max_jump_us)

    def pass_rows(self, op: int, times: Sequence[tuple[tuple[int, int], int]]) -> None:
        """The rows that pass an operator which names the event time in this unit: their positions
        and times.

        At the mark of a row, those that were given at it move time when what is behind has taken
        them. Those that are made of the record itself count with the least of their times, so that
        none makes another late, and with the greatest from the next row on."""
        jump = self.named[op].max_jump_us
        if times or op not in self.passed_at:
            self.passed_at[op] = self.clock[op]
        passing: dict[tuple[int, int], list[int]] = {}
        for position, time in times:
            passing.setdefault(position, []).append(time)
        for mark in self.marks:
            given, made = (passing.get((mark.row, half), []) for half in (0, 1))
            now = self.passed[op]
            if given:
                now = moved(now, max(given), jump)
            if not mark.behind:
                self.times[op] = moved(now, min(made), jump) if made else now
            self.passed[op] = moved(now, max(made), jump) if made else now
            if given or made:
                self.idle -= {op}
            if mark.behind and self.silent(op):
                self.idle |= {op}
            if op in self.idle or self.reaching[op] <= mark.over:
                mark.times.pop(op, None)
            else:
                mark.times[op] = self.times[op]

    def silent(self, op: int) -> bool:
        """Whether no row has passed for so long that nothing waits for more."""
        idle_us = self.named[op].idle_us
        return 0 < idle_us < self.clock[op] - self.passed_at[op]

    def mark(self, row: int, *, behind: bool = False) -> Mark:
        ended = {op for op in (*self.named, *self.arrivals) if self.reaching[op] <= self.over}
        resting = self.idle | self.over | ended
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
        resting = mark.over | flushed
        times = {i: time for i, time in mark.times.items() if not self.reaching[i] <= resting}
        known = [times[i] - delay for i, delay in self.delays[op].items() if i in times]
        return min(known, default=NO_TIME)
