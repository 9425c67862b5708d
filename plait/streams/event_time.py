"""Which expression is the event time of a stream, and what it is after each operator.

The event time of a stream is an expression over its columns: a column of the source, `window_end`
less a microsecond after a window (a result counts in the last moment of its window), the later of
two times after a join. It stays while the columns it reads do: renamed with them, lost when one is
dropped or replaced. A Python function keeps it if its output still has the columns with their
types. When it is lost, `Lost` says why, for the error of an operator that needs it.

    >>> carry_time(col("ts"), {"ts": "at"}, "select")
    col("at")
    >>> carry_time(col("ts"), {}, "select at carts.py:3").why
    'select at carts.py:3 dropped or replaced "ts"'
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.errors import JobError
from plait.expr.conditionals import when
from plait.expr.text import text
from plait.expr.tree import Expr, col, columns_read, lit, with_columns_renamed
from plait.expr.type_checker import bind, check_column
from plait.graph.operators import (
    AggregateOp,
    AnyOp,
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
from plait.graph.temporal import END
from plait.model.durations import LONGEST_US, Duration, microseconds, signed_microseconds
from plait.model.schema import Field, Schema, Type
from plait.streams.projections import projection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.connectors.base import Source
    from plait.graph.operators import OnError

DAY_US = 86_400_000_000
START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream has no event time, and why."""

    why: str


Time = Expr | Lost

NEVER = Lost('its source names none; name the column: source(..., event_time="ts")')


def time_after(op: AnyOp, time: Time) -> Time:
    """The event time of an operator's output, given that of its input."""
    if isinstance(time, Lost):
        return time
    same = {name: name for name in op.schema.names}
    match op:
        case FilterOp() | ShedOp() | SinkOp() | CallOp(mode="filter"):
            return time
        case ProjectOp():
            passed = [(e.value, name) for name, e in op.columns if e.op == "col"]
            names = dict(reversed(passed))
            return carry_time(
                time, names | {old: new for old, new in passed if old == new}, str(op)
            )
        case CallOp() if op.columns:
            computed = {name for name, _ in op.columns}
            return carry_time(time, {name: name for name in same if name not in computed}, str(op))
        case CallOp() | StatefulOp():
            return time if is_event_time(time, op.schema) else Lost(f"{op} returns other columns")
        case AggregateOp() | FoldOp() | TimedOp():
            return carry_time(time, {key: key for key in op.keys}, str(op))
        case EventTimeOp() | SourceOp() | UnionOp():
            return Lost(f"{op} has none")


def carry_time(time: Expr, names: Mapping[str, str], who: str) -> Time:
    """The time over the columns' new names, or `Lost` if a column that it reads is gone."""
    gone = sorted(name for name in columns_read(time) if name not in names)
    if gone:
        return Lost(f"{who} dropped or replaced " + ", ".join(f'"{name}"' for name in gone))
    return rename_columns(time, names)


def rename_columns(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression over the same columns under other names."""
    if expr.op == "col":
        return col(names[expr.value])
    return Expr(expr.op, tuple(rename_columns(arg, names) for arg in expr.args), expr.value)


def is_event_time(time: Expr, schema: Schema) -> bool:
    """Whether the expression is a timestamp that is never null, over rows of this schema."""
    if not all(name in schema for name in columns_read(time)):
        return False
    try:
        bound = bind(time, schema)
    except JobError:
        return False
    return bound.type is Type.TIMESTAMP and not bound.nullable


def union_time(times: Sequence[Time], what: str = "the streams of a union") -> Time:
    """The event time of a union: it must be the same in all streams."""
    lost = [time for time in times if isinstance(time, Lost)]
    if lost:
        return lost[0]
    found = list(dict.fromkeys(text(time) for time in times if isinstance(time, Expr)))
    if len(found) > 1:
        return Lost(f"{what} have different ones: {', '.join(found)}")
    return times[0]


def window_time() -> Expr:
    """A result counts in the last microsecond of its window, so that it is never late for a window
    that ends at the same time or later."""
    return col(END) - lit(datetime.timedelta(microseconds=1))


def later_time(left: Expr, right: Expr) -> Expr:
    """The later of two times; the left one where there is no right one."""
    return when(right > left).then(right).otherwise(left)


def require_time(time: Time, what: str) -> Expr:
    """The event time, or a JobError that says how to give one."""
    if isinstance(time, Lost):
        raise JobError(f"{what} needs event time, and the stream has none: {time.why}")
    return time


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """How far event times may be out of order, jump or stay away."""

    out_of_order_us: int
    max_jump_us: int
    idle_us: int


def time_limits(
    out_of_order: Duration | None, max_jump: Duration | None, idle: Duration | None
) -> TimeLimits:
    return TimeLimits(
        out_of_order_us=0 if out_of_order is None else at_least_zero("out_of_order", out_of_order),
        max_jump_us=LONGEST_US if max_jump is None else microseconds(max_jump),
        idle_us=0 if idle is None else microseconds(idle),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTime:
    """The event time of a source, checked: a column, which is not nullable in `schema`, or an
    expression that an operator right behind the source names."""

    column: str | None
    computed: Expr | None = None
    out_of_order_us: int
    max_jump_us: int
    idle_us: int
    schema: Schema


def source_time(
    schema: Schema,
    column: str | None,
    out_of_order: Duration | None,
    max_jump: Duration | None,
    idle: Duration | None,
    fixed: bool,
) -> SourceTime:
    """`fixed`: the source takes its nulls as its schema says, so the column must not be nullable.
    Other sources check every batch against the schema and raise at a null."""
    if column is None:
        for name, given in (("out_of_order", out_of_order), ("idle", idle)):
            if given is not None:
                raise JobError(f'{name}= needs event time; name its column: event_time="ts"')
        return SourceTime(
            column=None, out_of_order_us=0, max_jump_us=DAY_US, idle_us=0, schema=schema
        )
    if not isinstance(column, str):
        raise JobError(f"event_time is {column!r}; it must be the name of a column")
    field = schema[check_column(column, schema)]
    if field.type is not Type.TIMESTAMP:
        unit = "" if field.type is Type.STRING else 'unit="s"'
        raise JobError(
            f'event_time="{column}": the column is {field.type.value}, not a timestamp; give it'
            " plait.Timestamp in the schema of the source, or write"
            f' event_time=col("{column}").to_timestamp({unit})'
        )
    if field.nullable and fixed:
        raise JobError(
            f'event_time="{column}": the column may be null; every record needs a time'
            '\n  declare it without null, or leave such records out with on_error="skip" or'
            ' "dead_letter"'
        )
    fields = tuple(Field(f.name, f.type) if f.name == column else f for f in schema.fields)
    limits = time_limits(out_of_order, max_jump, idle)
    return SourceTime(
        column=column,
        out_of_order_us=limits.out_of_order_us,
        max_jump_us=limits.max_jump_us,
        idle_us=limits.idle_us,
        schema=Schema(fields, schema.record_class),
    )


def computed_source_time(
    schema: Schema, given: Expr, names: Mapping[str, str], max_jump: Duration | None
) -> SourceTime:
    """An expression as the event time of a source, over its columns by their new names; `names`
    has these by the old ones. The operator that names it takes the other limits."""
    renamed = projection([(names.get(old, old), col(old)) for old in schema.names], schema).schema
    time = named_time(given, renamed).op_time
    return SourceTime(
        column=None,
        computed=with_columns_renamed(time, {new: old for old, new in names.items()}),
        out_of_order_us=0,
        max_jump_us=time_limits(None, max_jump, None).max_jump_us,
        idle_us=0,
        schema=schema,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedTime:
    """A source that says how far its time is at each row, and the column that does."""

    source: Source
    schema: Schema
    column: str


def by_partition(source: Source, time: SourceTime) -> PartedTime | None:
    """The source with the time of its partitions, if it has some and its event time is used. One
    with an end is read in the order of time anyway."""
    if time.column is None or source.bounded:
        return None
    parted = source.by_partition(time.column, time.max_jump_us, time.idle_us)
    if parted is None:
        return None
    clock = parted.schema.fields[-1]
    return PartedTime(source=parted, schema=Schema((*time.schema.fields, clock)), column=clock.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTime:
    """An event time named by the user, checked. `op_time`: as it is bound; `time`: that of the
    stream, which is never null in `schema`."""

    op_time: Expr
    time: Expr
    schema: Schema


def named_time(given: str | Expr, schema: Schema) -> NamedTime:
    """The column or expression as the event time of records of this schema. Records in which it is
    null do not pass."""
    if not isinstance(given, str | Expr):
        raise JobError(f"the event time is {given!r}; it must be a column or an expression")
    if isinstance(given, str):
        given = col(check_column(given, schema))
    bound = bind(given, schema)
    if bound.type is not Type.TIMESTAMP:
        raise JobError(
            f"the event time {text(given)} is {bound}, not a timestamp; convert it:"
            ' col("ts").to_timestamp(unit="ms")'
        )
    if given.op == "col":
        fields = tuple(Field(f.name, f.type) if f.name == given.value else f for f in schema.fields)
        changed = schema[given.value].nullable
        schema = Schema(fields, schema.record_class) if changed else schema
        return NamedTime(op_time=bound.expr, time=given, schema=schema)
    never_null = given.fill_null(START) if bound.nullable else given
    return NamedTime(op_time=bound.expr, time=never_null, schema=schema)


def refuse_nulls(source: Source, time: SourceTime, on_error: OnError) -> None:
    """Raises if a table in memory has nulls in its event time, which its schema does not show, and
    they are not to be left out as it is read."""
    nulls = source.nulls(time.column) if time.column else 0
    if nulls and (on_error == "fail" or getattr(source, "rate_per_s", None) is not None):
        raise JobError(
            f'event_time="{time.column}": {nulls:,} of its values are null, and every record needs'
            " a time; filter or fill these rows first"
            + (', or give on_error="skip" or "dead_letter"' if on_error == "fail" else "")
        )


def key_ttl_us(given: Duration | None, time: Time) -> int:
    """How long the state of a key is kept; 0: for ever."""
    if given is None:
        return 0
    require_time(time, f"ttl={given!r}")
    return microseconds(given)


def at_least_zero(name: str, given: Duration) -> int:
    length = signed_microseconds(given)
    if not 0 <= length <= LONGEST_US:
        raise JobError(f"{name} is {given!r}; it must be a duration of zero or more")
    return length


def any_duration(given: Duration) -> int:
    """A duration of any sign: "-5s" means before."""
    if isinstance(given, str) and given.strip()[:1] in ("-", "+"):
        sign, rest = given.strip()[0], given.strip()[1:]
        length = signed_microseconds(rest)
        length = -length if sign == "-" else length
    else:
        length = signed_microseconds(given)
    if abs(length) > LONGEST_US:
        raise JobError(f"duration {given!r} is too long")
    return length
