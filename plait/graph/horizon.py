"""How far back in event time a record can still matter to a job; pure.

An operator in event time forgets: a window of a minute that is over needs its records no more. So
a job that begins with old records (`plait.backfill`) needs only those that its state can still hold
at the end of them. Each operator has a horizon, along a path horizons add up, and one operator
without a horizon needs everything. A horizon may be too long, never too short: whatever is not
understood has none.

    >>> import plait
    >>> rows = plait.Items([], {"user": int, "ts": plait.Timestamp})
    >>> clicks = plait.Job("clicks").source(rows, "clicks", event_time="ts")
    >>> job = clicks.key_by("user").tumbling("1m").count().sink(plait.Discard()).job
    >>> source_horizons(job.graph())[0].us
    60000000
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.graph.operators import (
    AggregateOp,
    CallOp,
    EventTimeOp,
    FilterOp,
    FoldOp,
    ProjectOp,
    ShedOp,
    SinkOp,
    SourceOp,
    StatefulOp,
    TimedOp,
    UnionOp,
)
from plait.graph.temporal import (
    END,
    START,
    AsOf,
    Between,
    CarriedWindow,
    Grid,
    JoinSpec,
    LateSpec,
    SessionWindow,
    TopSpec,
    WindowSpec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.expr.tree import Expr
    from plait.graph.operators import AnyOp, Graph

Columns = frozenset[str]
NONE: Columns = frozenset()


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far before the watermark a record still matters, in microseconds; None: however old it
    is, and `why` says because of which operator."""

    us: int | None
    why: str = ""

    def after(self, before: Horizon) -> Horizon:
        """Of this operator and one before it."""
        if self.us is None or before.us is None:
            return before if before.us is None else self
        return Horizon(self.us + before.us, self.why or before.why)


def source_horizons(graph: Graph) -> dict[int, Horizon]:
    """Of each source, by its number: the horizon of all that its records reach."""
    operators = graph.operators
    times = time_columns_of(operators)
    needs = [Horizon(0)] * len(operators)
    for number in range(len(operators) - 1, -1, -1):
        op = operators[number]
        own = horizon_of(operators, times, number)
        needs[number] = needs[number].after(own)
        for given in op.inputs:
            needs[given] = longer(needs[given], needs[number])
    found = {}
    for number in graph.sources:
        source = operators[number]
        assert isinstance(source, SourceOp)
        found[number] = needs[number]
        if source.event_time is None:
            found[number] = Horizon(None, f"source {source.label} has no event time")
    return found


def longer(first: Horizon, second: Horizon) -> Horizon:
    if first.us is None or second.us is None:
        return first if first.us is None else second
    return first if first.us >= second.us else second


def horizon_of(operators: Sequence[AnyOp], times: Sequence[Columns], number: int) -> Horizon:
    """Of one operator alone."""
    op = operators[number]
    match op:
        case SourceOp() | FilterOp() | ProjectOp() | CallOp() | UnionOp() | ShedOp() | SinkOp():
            return Horizon(0)
        case EventTimeOp():
            return Horizon(None, f"{op} makes an event time of its own")
        case AggregateOp() | FoldOp() | StatefulOp():
            return Horizon(None, f"{op} needs all records of a key")
        case TimedOp():
            return timed_horizon(op, operators, times)


def timed_horizon(op: TimedOp, operators: Sequence[AnyOp], times: Sequence[Columns]) -> Horizon:
    given = times[op.inputs[0]]
    strange = Horizon(None, f"{op} goes by a time that is not the event time of its source")
    match op.spec:
        case LateSpec():
            return Horizon(0)
        case (
            WindowSpec(window=Grid(size_us=size), lateness_us=late)
            | TopSpec(window=Grid(size_us=size), lateness_us=late)
        ):
            return Horizon(size + late) if op.time in given else strange
        case (
            WindowSpec(window=CarriedWindow(), lateness_us=late)
            | TopSpec(window=CarriedWindow(), lateness_us=late)
        ):
            return Horizon(late) if {START, END} <= given else strange
        case WindowSpec(window=SessionWindow()) | TopSpec(window=SessionWindow()):
            return Horizon(None, f"a session of {op} may have begun at any time")
        case JoinSpec() as join:
            sides = sides_of(op, operators)
            if sides is None or not (
                join.left.time in times[sides[0]] and join.right.time in times[sides[1]]
            ):
                return strange if bound_of(join) else Horizon(None, f"{op} keeps every record")
            bound = bound_of(join)
            if not bound:
                return Horizon(None, f"{op} keeps every record")
            # Whether a record had a match is known from records that came before it.
            return Horizon(bound if join.how == "inner" else 2 * bound)
    return Horizon(None, f"{op} needs all records of a key")


def bound_of(join: JoinSpec) -> int:
    """How long a record waits for a match; 0: without end."""
    match join.within:
        case Grid(size_us=size):
            return size
        case Between(low_us=low, high_us=high):
            return max(1, max(high, 0) + max(-low, 0))
        case AsOf(tolerance_us=tolerance):
            return tolerance
    return join.ttl_us


def sides_of(op: TimedOp, operators: Sequence[AnyOp]) -> tuple[int, int] | None:
    """The left and the right input of an operator of two streams, which reads their union."""
    union = operators[op.inputs[0]]
    if not isinstance(union, UnionOp) or len(union.inputs) != 2:
        return None
    return (union.inputs[0], union.inputs[1])


def time_columns_of(operators: Sequence[AnyOp]) -> list[Columns]:
    """Of each operator: the columns of its output that are an event time as a source gave it, or
    the ends of a window of such times."""
    times: list[Columns] = []
    for op in operators:
        given = [times[number] for number in op.inputs]
        match op:
            case SourceOp(event_time=column):
                times.append(frozenset((column,)) if column else NONE)
            case FilterOp() | ShedOp() | SinkOp():
                times.append(given[0])
            case ProjectOp(columns=columns):
                times.append(frozenset(n for n, expr in columns if is_time(expr, given[0])))
            case CallOp(mode="filter"):
                times.append(given[0])
            case CallOp(columns=columns) if columns:
                times.append(given[0] - {name for name, _ in columns})
            case UnionOp():
                times.append(frozenset.intersection(*given))
            case TimedOp():
                times.append(times_after(op, operators, times))
            case _:
                times.append(NONE)
    return times


def is_time(expr: Expr, given: Columns) -> bool:
    """Whether a value is one of these times: a column, the last moment of a window, or the later of
    two of them."""
    match expr.op:
        case "col":
            return expr.value in given
        case "sub":
            left, right = expr.args
            return left.op == "col" and left.value == END and END in given and is_moment(right)
        case "when":
            values = (*expr.args[1::2], expr.args[-1])
            return all(is_time(value, given) for value in values)
    return False


def is_moment(expr: Expr) -> bool:
    """Whether it is the constant of one microsecond."""
    if expr.op == "cast":
        return is_moment(expr.args[0])
    return expr.op == "lit" and expr.value in (1, datetime.timedelta(microseconds=1))


def times_after(op: TimedOp, operators: Sequence[AnyOp], times: Sequence[Columns]) -> Columns:
    given = times[op.inputs[0]]
    match op.spec:
        case LateSpec():
            return given
        case WindowSpec(window=Grid()):
            return frozenset((START, END)) if op.time in given else NONE
        case TopSpec(window=Grid()):
            return given | {START, END} if op.time in given else NONE
        case WindowSpec(window=CarriedWindow()) | TopSpec(window=CarriedWindow()):
            return frozenset((START, END)) if {START, END} <= given else NONE
        case JoinSpec() as join:
            sides = sides_of(op, operators)
            if sides is None:
                return NONE
            left = [name in times[sides[0]] for name in join.left.columns]
            right = [name in times[sides[1]] for name in join.right.columns]
            is_time = zip(op.schema.names, left + right, strict=False)
            return frozenset(name for name, kept in is_time if kept)
    return NONE
