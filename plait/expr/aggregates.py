"""What can be computed over some records: count, sum, min, max, mean, first, last, any, all, and in
windows distinct.

Each takes the name of a column or an expression and gives an `Aggregate`, which is plain data;
`bind_aggregate` checks it against the schema of the stream. Nulls are skipped, so a result is null
exactly when every value so far was.

    >>> bind_aggregate(sum("price"), Schema.of({"price": float | None}))[1:]
    (float64, True)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from plait.errors import JobError
from plait.expr.text import text
from plait.expr.tree import Expr, col
from plait.expr.type_checker import bind
from plait.model.schema import Schema, Type

NUMBERS = (Type.INT64, Type.FLOAT64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Aggregate:
    """One result: kind over an expression of the input row (None only for count of rows)."""

    kind: Literal["count", "sum", "min", "max", "mean", "first", "last", "distinct"]
    """distinct: how many different values that are not null (in windows only)."""
    over: Expr | None
    wrap: bool = field(default=False, repr=False)
    """Of sum: whether an int64 wraps around."""


def count(over: str | Expr | None = None) -> Aggregate:
    """The number of records; with a column or expression, of its values that are not null.

    >>> import plait
    >>> words = plait.stream([{"w": "tea"}, {"w": "cup"}, {"w": "tea"}]).key_by("w")
    >>> [(r.w, r.n) for r in words.aggregate(n=count()).collect()]
    [('tea', 1), ('cup', 1), ('tea', 2)]
    """
    return Aggregate(kind="count", over=None if over is None else operand("count", over))


def sum(over: str | Expr, *, wrap: bool = False) -> Aggregate:
    """The sum of a column or expression of numbers: an int64 of ints, else a float64.

    A record whose value does not fit an int64 sum fails, by the `on_error` of the aggregate. With
    `wrap=True` the sum wraps around instead; `sum(col("price").cast(float))` has room for all.

    >>> import plait
    >>> numbers = plait.stream([{"n": 2**62}, {"n": 2**62}])
    >>> [r.total for r in numbers.aggregate(total=sum("n", wrap=True)).collect()]
    [4611686018427387904, -9223372036854775808]
    """
    return Aggregate(kind="sum", over=operand("sum", over), wrap=wrap)


def min(over: str | Expr) -> Aggregate:
    """The smallest value of a column or expression.

    >>> min("price")
    Aggregate(kind='min', over=col("price"))
    """
    return Aggregate(kind="min", over=operand("min", over))


def max(over: str | Expr) -> Aggregate:
    """The largest value of a column or expression.

    >>> max("price")
    Aggregate(kind='max', over=col("price"))
    """
    return Aggregate(kind="max", over=operand("max", over))


def mean(over: str | Expr) -> Aggregate:
    """The mean of a column or expression of numbers, a float64.

    >>> mean(col("price") * col("count"))
    Aggregate(kind='mean', over=col("price") * col("count"))
    """
    return Aggregate(kind="mean", over=operand("mean", over))


def first(over: str | Expr) -> Aggregate:
    """The first value that is not null, in the order of the stream.

    >>> first("status")
    Aggregate(kind='first', over=col("status"))
    """
    return Aggregate(kind="first", over=operand("first", over))


def last(over: str | Expr) -> Aggregate:
    """The last value that is not null, in the order of the stream.

    >>> last("status")
    Aggregate(kind='last', over=col("status"))
    """
    return Aggregate(kind="last", over=operand("last", over))


def distinct(over: str | Expr) -> Aggregate:
    """The number of different values that are not null. Only in windows.

    >>> distinct("user")
    Aggregate(kind='distinct', over=col("user"))
    """
    return Aggregate(kind="distinct", over=operand("distinct", over))


class Truth(Aggregate):
    """A max or min that makes sense of bools alone."""

    __slots__ = ()


def any(over: str | Expr) -> Aggregate:
    """Whether a bool is true in at least one record.

    >>> any(col("price") > 100)
    Truth(kind='max', over=col("price") > 100)
    """
    return Truth(kind="max", over=operand("any", over))


def all(over: str | Expr) -> Aggregate:
    """Whether a bool is false in no record.

    >>> all(col("price") > 0)
    Truth(kind='min', over=col("price") > 0)
    """
    return Truth(kind="min", over=operand("all", over))


def operand(kind: str, over: Any) -> Expr:
    if isinstance(over, Expr):
        return over
    if isinstance(over, str):
        return col(over)
    given = "an iterable" if hasattr(over, "__iter__") else repr(over)
    raise JobError(
        f"plait.{kind} takes the name of a column or an expression, not {given};"
        f" Python's own {kind} is builtins.{kind}"
    )


def bind_aggregate(aggregate: Aggregate, schema: Schema) -> tuple[Aggregate, Type, bool]:
    """The aggregate over a bound expression, its result's type, and whether that may be null."""
    kind, over = aggregate.kind, aggregate.over
    if over is None:
        return aggregate, Type.INT64, False
    checked = bind(over, schema)
    if checked.type is None:
        raise JobError(f"{kind} of {text(over)}: a null has no type; write lit(None).cast(int)")
    wrap = aggregate.wrap and checked.type is Type.INT64
    settled = Aggregate(kind=kind, over=checked.expr, wrap=wrap)
    if isinstance(aggregate, Truth) and checked.type is not Type.BOOL:
        word = "any" if kind == "max" else "all"
        raise JobError(f"{word} needs a bool, but {text(over)} is {checked}; compare it")
    if kind == "distinct" and checked.type is Type.OBJECT:
        raise JobError(f"{text(over)} is object, whose values cannot be compared; give it a type")
    if kind in ("count", "distinct"):
        return settled, Type.INT64, False
    if kind in ("sum", "mean") and checked.type not in NUMBERS:
        advice = ""
        if checked.type in (Type.BOOL, Type.STRING):
            advice = "; convert it: .cast(int)"
        raise JobError(f"{kind} needs a number, but {text(over)} is {checked}{advice}")
    if kind in ("min", "max") and checked.type is Type.OBJECT:
        raise JobError(
            f"{kind} needs values with an order, but {text(over)} is object;"
            " give the column a type in its schema or in an annotation"
        )
    result = Type.FLOAT64 if kind == "mean" else checked.type
    return settled, result, checked.nullable
