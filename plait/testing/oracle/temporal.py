"""The operator of the plain loop for each kind of `TimedOp`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.temporal import JoinSpec, OperatorSpec, ProcessSpec, SpanSpec, time_columns
from plait.testing.oracle.expressions import compiled
from plait.testing.oracle.joins import join_operator
from plait.testing.oracle.loop_operators import Loops
from plait.testing.oracle.process import Processes
from plait.testing.oracle.time import FARTHEST_US, TimedOperator
from plait.testing.oracle.values import Fault
from plait.testing.oracle.windows import window_operator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.expr.tree import Expr
    from plait.graph.operators import TimedOp
    from plait.model.schema import Schema
    from plait.testing.oracle.time import Fate, Time
    from plait.testing.oracle.values import Values


def timed_operator(
    op: TimedOp, schema: Schema, ends: Callable[[], Sequence[bool]]
) -> TimedOperator:
    """What runs an operator; `schema` is its input's. `ends`: see `Loops`."""
    match op.spec:
        case OperatorSpec():
            return Loops(op, schema, ends)
        case ProcessSpec():
            return Processes(op, schema)
        case JoinSpec() | SpanSpec():
            return InRange(op, schema, join_operator(op, schema))
    return InRange(op, schema, window_operator(op, schema))


def check_time(time: int | None) -> None:
    if time is not None and abs(time) > FARTHEST_US:
        raise Fault(f"the event time {time} us is not within 146,000 years of 1970")


class Timing:
    """The event time of records, where an expression names it."""

    def __init__(self, time: Expr, schema: Schema) -> None:
        self.expr = compiled(time, schema)

    def time_of(self, values: Values) -> int:
        """May raise Fault."""
        time = self.expr.run(values)
        if time is None:
            raise Fault("the event time is null")
        check_time(time)
        found: int = time
        return found


class InRange(TimedOperator):
    """An operator whose records have event times that windows can be counted around."""

    def __init__(self, op: TimedOp, schema: Schema, inner: TimedOperator) -> None:
        self.inner = inner
        self.times = [schema.index(name) for name in time_columns(op.time, op.spec)]

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        for column in self.times:
            check_time(values[column])
        self.inner.now = self.now
        return self.inner.take(place, values, watermark)

    def due(self, before: Time, watermark: Time) -> list[Values]:
        self.inner.held = self.held
        return self.inner.due(before, watermark)

    def behind(self, watermark: Time, *, at_end: bool) -> list[Values]:
        return self.inner.behind(watermark, at_end=at_end)
