"""Time in the plain loop: how far the sources are, and with them every operator.

No watermark yet is minus infinity, and infinity is the watermark when nothing more can come, so
that comparisons need no special cases. `plait.graph.temporal` has the definitions.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Protocol

from plait.graph.operators import Graph, SourceOp, upstream

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        """Those that were due before it."""


class TimedOperator(Protocol):
    """An operator that knows time."""

    def take(self, place: int, values: Values, before: Time) -> list[Values] | Fate:
        """The rows that come at the place of this record, or why it is in none; may raise Fault.

        `place` grows from row to row; `before` is the watermark before the unit.
        """

    def due(self, before: Time, watermark: Time) -> list[Values]:
        """The rows that come behind all rows of the unit, with the watermark behind it; may raise
        TimerFault."""


class SourceTime:
    """How far one source is."""

    def __init__(self, op: SourceOp) -> None:
        self.op = op
        self.time: Time = NO_TIME
        self.over = False
        self.cut = False
        """It was stopped before its end: nothing is due because of that."""

    def read(self, rows: Sequence[Values]) -> None:
        """After a unit with these rows."""
        if self.op.event_time is None or not rows:
            return
        column = self.op.schema.index(self.op.event_time)
        greatest: Time = max(row[column] for row in rows)
        if self.time != NO_TIME:
            greatest = min(greatest, self.time + self.op.max_jump_us)
        self.time = max(self.time, greatest)

    @property
    def watermark(self) -> Time:
        return self.time if self.time == NO_TIME else self.time - self.op.out_of_order_us


class Watermarks:
    """The watermark of every operator."""

    def __init__(self, graph: Graph) -> None:
        self.sources = {
            i: SourceTime(op) for i, op in enumerate(graph.operators) if isinstance(op, SourceOp)
        }
        self.reaching = [
            [self.sources[j] for j in upstream(graph.operators, i) if j in self.sources]
            for i in range(len(graph.operators))
        ]
        self.now: list[Time] = [NO_TIME] * len(graph.operators)
        self.clock = [0] * len(graph.operators)
        """The greatest stamp of the units that have reached each operator."""

    def read(self, source: int, rows: Sequence[Values], over: bool, stamp: int = 0) -> None:
        """After a unit of a source, cut at this wall clock. `over`: it is at its end."""
        self.sources[source].read(rows)
        self.sources[source].over |= over
        for i, reaching in enumerate(self.reaching):
            if self.sources[source] in reaching:
                self.clock[i] = max(self.clock[i], stamp)

    def step(self, op: int) -> tuple[Time, Time]:
        """The watermark of an operator before and after the unit; it is now the latter."""
        before = self.now[op]
        self.now[op] = max(before, self.least(op))
        return before, self.now[op]

    def least(self, op: int) -> Time:
        reaching = self.reaching[op]
        if all(source.over for source in reaching):
            return ALL_TIME
        timed = [one for one in reaching if one.op.event_time is not None and not one.over]
        return min((one.watermark for one in timed), default=NO_TIME)
