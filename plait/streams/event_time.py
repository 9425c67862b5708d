"""Which of a stream's columns is its event time, and what becomes of that behind each operator.

The event time of a stream is an expression over its columns: at a source a column, behind a window
`window_end` less a microsecond (a result counts in the last moment of its window), behind a join
the later of the two times. It is kept as long as the columns it reads are: renamed with them, lost
when one is dropped or replaced. A Python function keeps it if its output still has the columns with
their types. When it is lost, `Lost` remembers why, for the error of whoever asks for it.

    >>> kept(col("ts"), {"ts": "at"}, "select")
    col("at")
    >>> kept(col("ts"), {}, "select at carts.py:3").why
    'select at carts.py:3 dropped or replaced "ts"'
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.expr.conditionals import when
from plait.expr.text import text
from plait.expr.tree import Expr, col, columns_read, lit
from plait.expr.type_checker import bind, check_column
from plait.graph.operators import (
    AggregateOp,
    AnyOp,
    CallOp,
    FilterOp,
    FoldOp,
    ProjectOp,
    SinkOp,
    SourceOp,
    StatefulOp,
    TimedOp,
    UnionOp,
)
from plait.graph.temporal import END
from plait.model.durations import LONGEST_US, microseconds, signed_microseconds
from plait.model.schema import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.connectors.base import Source

DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream has no event time, and why."""

    why: str


Time = Expr | Lost

NEVER = Lost('its source names none; say which column it is: source(..., event_time="ts")')


def behind(op: AnyOp, time: Time) -> Time:
    """The event time of what an operator makes of a stream with this one."""
    if isinstance(time, Lost):
        return time
    same = {name: name for name in op.schema.names}
    match op:
        case FilterOp() | SinkOp() | CallOp(mode="filter"):
            return time
        case ProjectOp():
            passed = [(e.value, name) for name, e in op.columns if e.op == "col"]
            names = dict(reversed(passed))
            return kept(time, names | {old: new for old, new in passed if old == new}, str(op))
        case CallOp() if op.columns:
            made = {name for name, _ in op.columns}
            return kept(time, {name: name for name in same if name not in made}, str(op))
        case CallOp() | StatefulOp():
            return time if still_time(time, op.schema) else Lost(f"{op} made other columns")
        case AggregateOp() | FoldOp() | TimedOp():
            return kept(time, {key: key for key in op.keys}, str(op))
        case SourceOp() | UnionOp():
            return Lost(f"{op} says nothing of it")


def kept(time: Expr, names: Mapping[str, str], who: str) -> Time:
    """The time under the columns' new names, if all columns that it reads are there."""
    gone = sorted(name for name in columns_read(time) if name not in names)
    if gone:
        return Lost(f"{who} dropped or replaced " + ", ".join(f'"{name}"' for name in gone))
    return renamed(time, names)


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression over columns that are called something else."""
    if expr.op == "col":
        return col(names[expr.value])
    return Expr(expr.op, tuple(renamed(arg, names) for arg in expr.args), expr.value)


def still_time(time: Expr, schema: Schema) -> bool:
    """Whether the expression is a time that is always there, over rows of this schema."""
    if not all(name in schema for name in columns_read(time)):
        return False
    try:
        bound = bind(time, schema)
    except JobError:
        return False
    return bound.type is Type.TIMESTAMP and not bound.nullable


def of_union(times: Sequence[Time]) -> Time:
    """The event time of streams together: the same in all of them."""
    lost = [time for time in times if isinstance(time, Lost)]
    if lost:
        return lost[0]
    found = list(dict.fromkeys(text(time) for time in times if isinstance(time, Expr)))
    if len(found) > 1:
        return Lost(f"the streams of a union have different ones: {', '.join(found)}")
    return times[0]


def of_window() -> Expr:
    """A result counts in the last microsecond of its window, so that it is late for no window that
    ends when its own does or later."""
    return col(END) - lit(datetime.timedelta(microseconds=1))


def later(left: Expr, right: Expr) -> Expr:
    """The later of two times; the left one where there is no right one."""
    return when(right > left).then(right).otherwise(left)


def needed(time: Time, what: str) -> Expr:
    """The event time, or a JobError that says how to give one."""
    if isinstance(time, Lost):
        raise JobError(f"{what} needs event time, and the stream has none: {time.why}")
    return time


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTime:
    """What a source says of its event time, checked; `schema` has the column as never null."""

    column: str | None
    out_of_order_us: int
    max_jump_us: int
    idle_us: int
    schema: Schema


def source_time(
    schema: Schema, column: Any, out_of_order: Any, max_jump: Any, idle: Any, fixed: bool
) -> SourceTime:
    """`fixed`: the source gives nulls where its schema has them, so the schema must have none.
    Others check every batch against the schema, and a null is then an error of theirs."""
    if column is None:
        for name, given in (("out_of_order", out_of_order), ("idle", idle)):
            if given is not None:
                raise JobError(f'{name}= is of event time; say which column: event_time="ts"')
        return SourceTime(
            column=None, out_of_order_us=0, max_jump_us=DAY_US, idle_us=0, schema=schema
        )
    if not isinstance(column, str):
        raise JobError(f"event_time is {column!r}; it must be the name of a column")
    field = schema[check_column(column, schema)]
    if field.type is not Type.TIMESTAMP:
        raise JobError(
            f'event_time="{column}": the column is {field.type.value}, no time;'
            " give it plait.Timestamp in the schema of the source"
        )
    if field.nullable and fixed:
        raise JobError(
            f'event_time="{column}": the column may be null; every record must have its time'
        )
    fields = tuple(Field(f.name, f.type) if f.name == column else f for f in schema.fields)
    return SourceTime(
        column=column,
        out_of_order_us=0 if out_of_order is None else at_least_zero("out_of_order", out_of_order),
        max_jump_us=LONGEST_US if max_jump is None else microseconds(max_jump),
        idle_us=0 if idle is None else microseconds(idle),
        schema=Schema(fields, schema.record_class),
    )


def none_null(source: Source, time: SourceTime) -> SourceTime:
    """A table in memory may have nulls although its event time must not."""
    nulls = source.nulls(time.column) if time.column else 0
    if nulls:
        raise JobError(
            f'event_time="{time.column}": {nulls:,} of its values are null, and every record must'
            " have its time; leave such rows out before, or fill them"
        )
    return time


def ttl_of(given: Any, time: Time) -> int:
    """How long the state of a key is kept; 0: for ever."""
    if given is None:
        return 0
    needed(time, f"ttl={given!r}")
    return microseconds(given)


def at_least_zero(name: str, given: Any) -> int:
    length = signed_microseconds(given)
    if not 0 <= length <= LONGEST_US:
        raise JobError(f"{name} is {given!r}; it must be a duration of zero or more")
    return length


def any_duration(given: Any) -> int:
    """A duration of any sign: "-5s" is before."""
    if isinstance(given, str) and given.strip()[:1] in ("-", "+"):
        sign, rest = given.strip()[0], given.strip()[1:]
        length = signed_microseconds(rest)
        length = -length if sign == "-" else length
    else:
        length = signed_microseconds(given)
    if abs(length) > LONGEST_US:
        raise JobError(f"duration {given!r} is too long")
    return length
