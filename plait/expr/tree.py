"""Expressions over columns, as data: `col("price") * 2 > 100` builds a tree and computes nothing.

One node class and one table of operations; the type checker, the sequential oracle and the native
kernels are each one function per operation of that table. An expression knows no types until it is
bound to a schema (`plait.expr.type_checker.bind`); the operators of a graph hold bound expressions.
Semantics that all of them share:

- null in gives null out, except `is_null`, `fill_null`, `and`/`or` (three-valued logic) and `when`
  (a null condition does not match);
- int64 arithmetic that leaves int64 fails the record, unless the expression is in `wrapping`
  (`<<` drops bits in any case); `//` and `%` round down as in Python; an integer `//` or `%` by
  zero fails the record; `/` is float64 division with IEEE results (x / 0 is inf or nan), and so are
  float `//` and `%` by zero;
- comparisons of floats are IEEE (NaN equals nothing, `!=` is true); strings compare by code point;
- `lower` and `upper` work character by character, `length` counts characters of a string, bytes of
  bytes;
- a cast that cannot be done (text that is not a number, a float out of the range of int64) fails
  the record.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypeVar

from plait.errors import JobError
from plait.expr.text import WRAP, text
from plait.expr.time_reading import TimeReading, Unit
from plait.model.durations import microseconds
from plait.model.schema import INT64_MAX, INT64_MIN, Type, field_of

T = TypeVar("T")

OPERATIONS: dict[str, str] = {
    "col": "a column; value = name",
    "lit": "a constant; value = int, float, bool, str, bytes, aware datetime, "
    "timedelta (int64 microseconds) or None (bound: always inside a cast that gives its type)",
    "add": "int, float, timestamp + timedelta (bound: the timestamp first); "
    "strings and bytes: concatenation",
    "sub": "int, float, timestamp - timedelta, timestamp - timestamp (int64 microseconds)",
    "mul": "int, float; in add, sub, mul, floordiv, neg and abs value = WRAP wraps int64 around",
    "truediv": "int, float -> float64",
    "floordiv": "int, float",
    "mod": "int, float",
    "neg": "int, float",
    "abs": "int, float",
    "bit_and": "int",
    "bit_or": "int",
    "bit_xor": "int",
    "shl": "(int, constant 0..63)",
    "shr": "(int, constant 0..63), arithmetic",
    "eq": "same type (int and float mix)",
    "ne": "",
    "lt": "",
    "le": "",
    "gt": "",
    "ge": "",
    "and": "bool",
    "or": "bool",
    "not": "bool",
    "is_null": "any -> bool, never null",
    "is_nan": "float -> bool",
    "fill_null": "(a, b): a where not null, else b; same type",
    "is_in": "(a); value = tuple of constants -> bool",
    "lower": "string",
    "upper": "string",
    "strip": "string (ASCII white space at both ends)",
    "length": "string (characters) or bytes -> int64",
    "contains": "(string, string) -> bool",
    "startswith": "(string, string) -> bool",
    "endswith": "(string, string) -> bool",
    "cast": "value = Type",
    "when": "(condition, value, condition, value, ..., otherwise)",
    "year": "timestamp -> int64 (UTC)",
    "month": "timestamp",
    "day": "timestamp",
    "hour": "timestamp",
    "minute": "timestamp",
    "second": "timestamp",
    "truncate": "timestamp; value = microseconds: round down to a multiple since 1970",
    "to_timestamp": "string, int or float -> timestamp; value = a TimeReading",
    "call": "a compiled function of the arguments; value = the function",
}


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Expr:
    """A value computed from the columns of each record. Made by `plait.col`, `plait.lit` and
    `plait.when`; Python's arithmetic, comparisons and `& | ~` combine them, and so do the methods
    here. An expression is checked against the schema when it is given to a stream, and runs
    natively.

    >>> (col("price") * col("count")).fill_null(0) > 100
    (col("price") * col("count")).fill_null(0) > 100

    `op` is a key of OPERATIONS.
    """

    op: str
    args: tuple[Expr, ...] = ()
    value: Any = None

    def __repr__(self) -> str:
        return text(self)

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise JobError(
            f"{text(self)} has no truth value before the job runs; use & | ~ instead of and or not,"
            " .is_in(...) instead of in, .between(a, b) instead of a < x < b"
        )

    def __iter__(self) -> NoReturn:
        raise JobError(f"{text(self)} is one value of each record and cannot be iterated over")

    def __add__(self, other: Any) -> Expr:
        return operation("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return operation("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return operation("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return operation("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return operation("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return operation("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return operation("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return operation("truediv", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return operation("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return operation("floordiv", other, self)

    def __mod__(self, other: Any) -> Expr:
        return operation("mod", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return operation("mod", other, self)

    def __neg__(self) -> Expr:
        return Expr("neg", (self,))

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return Expr("abs", (self,))

    def __and__(self, other: Any) -> Expr:
        return operation("and", self, other)

    def __rand__(self, other: Any) -> Expr:
        return operation("and", other, self)

    def __or__(self, other: Any) -> Expr:
        return operation("or", self, other)

    def __ror__(self, other: Any) -> Expr:
        return operation("or", other, self)

    def __xor__(self, other: Any) -> Expr:
        return operation("bit_xor", self, other)

    def __rxor__(self, other: Any) -> Expr:
        return operation("bit_xor", other, self)

    def __invert__(self) -> Expr:
        return Expr("not", (self,))

    def __lshift__(self, other: Any) -> Expr:
        return operation("shl", self, other)

    def __rshift__(self, other: Any) -> Expr:
        return operation("shr", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return comparison("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return comparison("ne", self, other)

    def __lt__(self, other: Any) -> Expr:
        return comparison("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return comparison("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return comparison("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return comparison("ge", self, other)

    def is_null(self) -> Expr:
        """Whether there is no value. Never null itself."""
        return Expr("is_null", (self,))

    def is_not_null(self) -> Expr:
        """Whether there is a value. Never null itself."""
        return Expr("not", (Expr("is_null", (self,)),))

    def is_nan(self) -> Expr:
        """Whether a float is NaN."""
        return Expr("is_nan", (self,))

    def fill_null(self, value: Any) -> Expr:
        """The value, or `value` where there is none."""
        return operation("fill_null", self, value)

    def is_in(self, values: Iterable[Any]) -> Expr:
        """Whether the value is one of some constants."""
        if isinstance(values, (str, bytes, Expr)) or not isinstance(values, Iterable):
            raise JobError(f"is_in takes a list of constants, not {values!r}")
        constants = tuple(constant(value) for value in values)
        if any(value is None for value in constants):
            raise JobError("is_in: None is not a value; use .is_null()")
        return Expr("is_in", (self,), constants)

    def between(self, low: Any, high: Any) -> Expr:
        """Whether low <= value <= high."""
        return operation("and", self >= low, self <= high)

    def abs(self) -> Expr:
        """The value without its sign."""
        return Expr("abs", (self,))

    def lower(self) -> Expr:
        """The string in lower case."""
        return Expr("lower", (self,))

    def upper(self) -> Expr:
        """The string in upper case."""
        return Expr("upper", (self,))

    def strip(self) -> Expr:
        """The string without ASCII white space at both ends."""
        return Expr("strip", (self,))

    def length(self) -> Expr:
        """Characters of a string, bytes of bytes."""
        return Expr("length", (self,))

    def contains(self, part: Any) -> Expr:
        """Whether `part` occurs in the string."""
        return operation("contains", self, part)

    def startswith(self, part: Any) -> Expr:
        """Whether the string starts with `part`."""
        return operation("startswith", self, part)

    def endswith(self, part: Any) -> Expr:
        """Whether the string ends with `part`."""
        return operation("endswith", self, part)

    def cast(self, type: Any) -> Expr:
        """The value as another type: a Python type, a `plait.Type` or a word such as "int64"."""
        return Expr("cast", (self,), field_of("cast", type).type)

    def year(self) -> Expr:
        """The year of a timestamp, in UTC."""
        return Expr("year", (self,))

    def month(self) -> Expr:
        """The month of a timestamp, 1 to 12, in UTC."""
        return Expr("month", (self,))

    def day(self) -> Expr:
        """The day of the month of a timestamp, in UTC."""
        return Expr("day", (self,))

    def hour(self) -> Expr:
        """The hour of a timestamp, in UTC."""
        return Expr("hour", (self,))

    def minute(self) -> Expr:
        """The minute of a timestamp."""
        return Expr("minute", (self,))

    def second(self) -> Expr:
        """The second of a timestamp, without its fraction."""
        return Expr("second", (self,))

    def truncate(self, unit: Any) -> Expr:
        """The timestamp rounded down to a multiple of "10s", "1h"... since 1970."""
        return Expr("truncate", (self,), microseconds(unit))

    def to_timestamp(
        self,
        format: str | None = None,
        *,
        tz: str | None = None,
        unit: Unit | None = None,
        rounding: Literal["error", "down"] = "error",
    ) -> Expr:
        """A text or a number as a timestamp. What cannot be read fails the record.

        >>> col("at").to_timestamp(), col("ms").to_timestamp(unit="ms")
        (col("at").to_timestamp(), col("ms").to_timestamp(unit='ms'))
        >>> col("day").to_timestamp("%d.%m.%Y %H:%M", tz="Europe/Berlin")
        col("day").to_timestamp('%d.%m.%Y %H:%M', tz='Europe/Berlin')

        Args:
            format: how a text is written, with `%Y %y %m %b %B %d %H %I %M %S %f %p %z %%`;
                without it ISO 8601: `2026-01-31T10:00:00.5+01:00`, with a `T` or a blank.
            tz: the zone of texts that name none: "UTC", "+01:00" or "Europe/Berlin".
            unit: "s", "ms", "us" or "ns" since 1970: the column is an int or a float.
            rounding: "down" drops what is finer than a microsecond; otherwise it fails the record
                (floats are always rounded to the nearest microsecond).
        """
        reading = TimeReading(format=format, tz=tz, unit=unit, rounding=rounding)
        return Expr("to_timestamp", (self,), reading)


def col(name: str) -> Expr:
    """The column with this name, as an expression.

    >>> col("price") * 2
    col("price") * 2
    """
    if not isinstance(name, str):
        raise JobError(f"col takes the name of a column, not {name!r}")
    return Expr("col", (), name)


def lit(value: Any) -> Expr:
    """A constant as an expression. Needed only where Python would not see an expression otherwise,
    as in `lit(None).cast(int)`.

    >>> lit(1) / col("n")
    1 / col("n")
    """
    return Expr("lit", (), constant(value))


def to_expr(value: Any) -> Expr:
    """The expression itself, or a constant."""
    if isinstance(value, Expr):
        return value
    if hasattr(value, "otherwise") or hasattr(value, "then"):
        raise JobError("a when(...) is not finished; end it with .otherwise(value)")
    return lit(value)


def operation(op: str, *args: Any) -> Expr:
    return Expr(op, tuple(to_expr(arg) for arg in args))


WRAPPED = frozenset({"add", "sub", "mul", "floordiv", "neg", "abs"})


def wrapping(expr: Expr) -> Expr:
    """The expression with int64 arithmetic that wraps around, as in C or NumPy, instead of failing
    records: for hashes and checksums. Applies to `+ - * // abs` and the sign inside of it.

    >>> import plait
    >>> numbers = plait.stream([{"n": 2**62}, {"n": 3}])
    >>> [r.h for r in numbers.with_columns(h=wrapping(col("n") * 31 + 7)).collect()]
    [-4611686018427387897, 100]
    """
    if not isinstance(expr, Expr):
        raise JobError(f'wrapping takes an expression such as col("n") * 31, not {expr!r}')
    return bottom_up(
        expr,
        lambda part, args: Expr(part.op, tuple(args), WRAP if part.op in WRAPPED else part.value),
    )


def bottom_up(expr: Expr, make: Callable[[Expr, list[T]], T]) -> T:
    """What `make` gives for an expression and what it gave for the arguments. Without recursion,
    since trees may be deep; a part that is used twice is made once."""
    done: dict[int, T] = {}
    todo = [expr]
    while todo:
        part = todo[-1]
        missing = [arg for arg in part.args if id(arg) not in done]
        if missing:
            todo.extend(missing)
            continue
        todo.pop()
        if id(part) not in done:
            done[id(part)] = make(part, [done[id(arg)] for arg in part.args])
    return done[id(expr)]


def comparison(op: str, left: Expr, right: Any) -> Expr:
    if right is None:
        raise JobError(
            f"{text(left)} compared with None is always null; use .is_null() or ~x.is_null()"
        )
    return operation(op, left, right)


def constant(value: Any) -> Any:
    """A Python value as one that a column could hold; refuses what no column type can carry."""
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, (bool, float, datetime.timedelta)):
        return float(value) if isinstance(value, float) else value
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise JobError(f"constant {value} does not fit int64")
        return int(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        if value.utcoffset() is None:
            raise JobError(f"constant {value!r} has no time zone; add tzinfo=datetime.UTC")
        return value.astimezone(datetime.UTC)
    if callable(value):
        raise JobError(
            f"{getattr(value, '__name__', value)!r} is a function, not a constant;"
            " mark it @plait.compiled and call it on columns, or give it to with_columns or map"
        )
    raise JobError(
        f"{value!r} ({type(value).__name__}) cannot be a constant;"
        " use int, float, bool, str, bytes, an aware datetime, a timedelta or None"
    )


def type_of_constant(value: Any) -> Type | None:
    """The type of what `constant` returned; None for null."""
    match value:
        case None:
            return None
        case bool():
            return Type.BOOL
        case int() | datetime.timedelta():
            return Type.INT64
        case float():
            return Type.FLOAT64
        case str():
            return Type.STRING
        case bytes():
            return Type.BYTES
        case datetime.datetime():
            return Type.TIMESTAMP
    raise JobError(
        f"{value!r} ({type(value).__name__}) cannot be a constant; make it with lit(...)"
    )


def columns_read(expr: Expr) -> frozenset[str]:
    """The names of all columns in an expression."""
    found: set[str] = set()
    seen: set[int] = set()
    todo = [expr]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one.op == "col":
            found.add(one.value)
        todo.extend(one.args)
    return frozenset(found)


def with_columns_renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression over columns of other names; what it has twice stays one.

    >>> with_columns_renamed(col("a") + col("b"), {"a": "x"})
    col("x") + col("b")
    """
    found: dict[int, Expr] = {}
    todo = [expr]
    while todo:
        one = todo[-1]
        if missing := [arg for arg in one.args if id(arg) not in found]:
            todo.extend(missing)
            continue
        todo.pop()
        value = names.get(one.value, one.value) if one.op == "col" else one.value
        found[id(one)] = replace(one, args=tuple(found[id(arg)] for arg in one.args), value=value)
    return found[id(expr)]
