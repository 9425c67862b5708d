"""Expressions over one row, in the plainest Python: the meaning of every operation.

`compiled(expr, schema)` gives the type of the result and a function of one row of held values. The
rules are those written in `expr/tree.py`: a result that int64 cannot hold fails unless it is to
wrap around, null in gives null out, an int and a float meet as floats. Whatever fails raises
`Fault`; a branch that `when` does not take cannot fail.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.expr.text import WRAP
from plait.model.records import microseconds_of
from plait.model.schema import INT64_MAX, INT64_MIN, Schema, Type
from plait.testing.oracle.casts import cast, civil
from plait.testing.oracle.times import time_of
from plait.testing.oracle.values import Fault, Values

if TYPE_CHECKING:
    from plait.expr.tree import Expr

INT, FLOAT, BOOL = Type.INT64, Type.FLOAT64, Type.BOOL
STRING, BYTES, TIME = Type.STRING, Type.BYTES, Type.TIMESTAMP
Run = Callable[[Values], Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A type (None for a bare null) and the function that computes the value from a row."""

    type: Type | None
    run: Run


def wrap(value: int) -> int:
    """The int64 with the same low 64 bits."""
    return (value - INT64_MIN) % 2**64 + INT64_MIN


def fit(value: int, shown: str) -> int:
    """The value, if int64 can hold it."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    raise Fault(f"integer overflow: {shown} does not fit int64")


def operation_text(op: str, values: Sequence[int]) -> str:
    """An operation on ints for an error: what commutes with the greater operand first."""
    if op in ("neg", "abs"):
        return f"{'abs' if op == 'abs' else '-'}({values[0]})"
    a, b = values
    if op in ("add", "mul"):
        a, b = max(a, b), min(a, b)
    return f"{a} {SIGNS[op]} {b}"


def on_ints(op: str, function: Callable[..., int], wraps: bool) -> Callable[..., int]:
    """The operation with a result that int64 holds."""
    if wraps:
        return lambda *values: wrap(function(*values))
    return lambda *values: fit(function(*values), operation_text(op, values))


def compiled(expr: Expr, schema: Schema) -> Compiled:
    match expr.op:
        case "col":
            place = schema.index(expr.value)
            return Compiled(schema.fields[place].type, lambda row: row[place])
        case "lit":
            return constant(expr.value)
        case "when":
            return when([compiled(arg, schema) for arg in expr.args])
        case "call":
            return call(expr.value, [compiled(arg, schema) for arg in expr.args])
    args = [compiled(arg, schema) for arg in expr.args]
    if expr.op in ("shl", "shr") and len(args) == 1:
        args.append(constant(expr.value))
    match expr.op:
        case "is_null":
            return Compiled(BOOL, lambda row: args[0].run(row) is None)
        case "fill_null":
            return fill_null(*args)
        case "and" | "or" if integer_form(expr.op, args) == expr.op:
            return kleene(expr.op, *args)
        case "cast":
            source, target = args[0].type, expr.value
            return Compiled(target, strict(lambda v: cast(v, source, target), args))
        case "is_in":
            return is_in(args[0], expr.value)
        case "truncate":
            step = expr.value
            return Compiled(TIME, strict(lambda v: fit(v // step * step, f"truncate({v})"), args))
        case "to_timestamp":
            reading = expr.value
            return Compiled(TIME, strict(lambda v: time_of(v, reading), args))
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            return Compiled(BOOL, strict(getattr(operator, expr.op), same_type(args)))
        case "add" | "sub" | "mul" | "truediv" | "floordiv" | "mod" | "neg" | "abs":
            return arithmetic(expr.op, args, expr.value == WRAP)
    kind, function = PLAIN[integer_form(expr.op, args)]
    return Compiled(kind, strict(function, args))


def integer_form(op: str, args: list[Compiled]) -> str:
    """On ints `&`, `|`, `~` work bit by bit; on bools `^` is `!=`. Checked jobs say so."""
    kind = common([arg.type for arg in args]) if op in ("and", "or", "not", "bit_xor") else None
    if kind is INT and op != "bit_xor":
        return f"bit_{op}"
    return "xor" if op == "bit_xor" and kind is BOOL else op


def strict(function: Callable[..., Any], args: list[Compiled]) -> Run:
    """Null when any argument is null; all arguments are computed, so all of them may fail."""

    def run(row: Values) -> Any:
        values = [arg.run(row) for arg in args]
        return None if any(value is None for value in values) else function(*values)

    return run


def constant(value: Any) -> Compiled:
    if value is None:
        return Compiled(None, lambda row: None)
    if isinstance(value, datetime.timedelta):
        value = value // datetime.timedelta(microseconds=1)
    kind = next(k for k in (BOOL, INT, FLOAT, STRING, BYTES, TIME) if isinstance(value, k.python))
    held = microseconds_of(value) if kind is TIME else value
    return Compiled(kind, lambda row: held)


def widened(arg: Compiled, kind: Type | None) -> Compiled:
    """The argument as a float where an int has to become one."""
    if kind is FLOAT and arg.type is INT:
        return Compiled(FLOAT, strict(float, [arg]))
    return arg


def common(kinds: list[Type | None]) -> Type | None:
    """The type in which several values meet."""
    known = {kind for kind in kinds if kind is not None}
    if known == {INT, FLOAT}:
        return FLOAT
    if len(known) > 1:
        raise TypeError(f"types do not meet: {', '.join(sorted(kind.value for kind in known))}")
    return known.pop() if known else None


def same_type(args: list[Compiled]) -> list[Compiled]:
    kind = common([arg.type for arg in args])
    return [widened(arg, kind) for arg in args]


def when(args: list[Compiled]) -> Compiled:
    values = same_type([*args[1::2], args[-1]])
    branches = list(zip(args[:-1:2], values[:-1], strict=True))
    otherwise = values[-1]

    def run(row: Values) -> Any:
        for condition, value in branches:
            if condition.run(row) is True:
                return value.run(row)
        return otherwise.run(row)

    return Compiled(common([value.type for value in values]), run)


def fill_null(first: Compiled, second: Compiled) -> Compiled:
    a, b = same_type([first, second])

    def run(row: Values) -> Any:
        value = a.run(row)
        return b.run(row) if value is None else value

    return Compiled(common([a.type, b.type]), run)


def kleene(op: str, a: Compiled, b: Compiled) -> Compiled:
    decisive = op == "or"  # true decides an or, false decides an and

    def run(row: Values) -> Any:
        both = (a.run(row), b.run(row))
        if decisive in both:
            return decisive
        return None if None in both else not decisive

    return Compiled(BOOL, run)


def is_in(arg: Compiled, options: tuple[Any, ...]) -> Compiled:
    tests = [same_type([arg, constant(option)]) for option in options if option is not None]

    def run(row: Values) -> Any:
        if arg.run(row) is None:
            return None
        return any(a.run(row) == b.run(row) for a, b in tests)

    return Compiled(BOOL, run)


def call(function: Any, args: list[Compiled]) -> Compiled:
    """A compiled function as its Python original. It says its types itself."""
    kind: Type = function.result_type

    def apply(*values: Any) -> Any:
        try:
            result = function(*values)
        except Exception as error:
            raise Fault(f"{type(error).__name__}: {error}") from error
        if kind is INT:
            return wrap(int(result))
        return float(result) if kind is FLOAT else bool(result)

    wanted: Sequence[Type] = function.parameter_types
    fitting = [widened(arg, kind) for arg, kind in zip(args, wanted, strict=True)]
    return Compiled(kind, strict(apply, fitting))


def arithmetic(op: str, args: list[Compiled], wraps: bool) -> Compiled:
    kinds = [arg.type for arg in args]
    if TIME in kinds:
        return time_arithmetic(op, args, wraps)
    kind = FLOAT if op == "truediv" else common(kinds)
    if kind is None:
        return Compiled(None, strict(lambda *values: None, args))
    if kind in (STRING, BYTES):
        return Compiled(kind, strict(operator.add, args))
    args = [widened(arg, kind) for arg in args]
    if kind is INT:
        return Compiled(INT, strict(on_ints(op, INTEGER[op], wraps), args))
    return Compiled(FLOAT, strict(FLOATING[op], args))


def time_arithmetic(op: str, args: list[Compiled], wraps: bool) -> Compiled:
    """Time plus or minus microseconds is a time; the difference of times is microseconds."""
    both = all(arg.type is TIME for arg in args)
    if op not in ("add", "sub") or (both and op == "add"):
        raise TypeError(f"no {op} of timestamps")
    return Compiled(INT if both else TIME, strict(on_ints(op, INTEGER[op], wraps), args))


def int_floordiv(a: int, b: int) -> int:
    if b == 0:
        raise Fault("integer division by zero")
    return a // b


def int_mod(a: int, b: int) -> int:
    if b == 0:
        raise Fault("integer modulo by zero")
    return a % b


def float_truediv(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def float_floordiv(a: float, b: float) -> float:
    return a // b if b != 0 else float_truediv(a, b)


def float_mod(a: float, b: float) -> float:
    return a % b if b != 0 else math.nan


def characters(function: Callable[[str], str]) -> Callable[[str], str]:
    """Character by character: what one character becomes does not depend on its neighbours."""
    return lambda text: "".join(function(character) for character in text)


INTEGER: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": int_floordiv,
    "mod": int_mod,
    "neg": operator.neg,
    "abs": operator.abs,
}
FLOATING: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": float_truediv,
    "floordiv": float_floordiv,
    "mod": float_mod,
    "neg": operator.neg,
    "abs": operator.abs,
}
SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}
PLAIN: dict[str, tuple[Type, Callable[..., Any]]] = {
    "bit_and": (INT, operator.and_),
    "bit_or": (INT, operator.or_),
    "bit_xor": (INT, operator.xor),
    "bit_not": (INT, operator.invert),
    "xor": (BOOL, operator.ne),
    "shl": (INT, lambda a, b: wrap(a << b)),
    "shr": (INT, operator.rshift),
    "not": (BOOL, operator.not_),
    "is_nan": (BOOL, math.isnan),
    "lower": (STRING, characters(str.lower)),
    "upper": (STRING, characters(str.upper)),
    "strip": (STRING, lambda text: text.strip(" \t\n\r\v\f")),
    "length": (INT, len),
    "contains": (BOOL, operator.contains),
    "startswith": (BOOL, lambda text, start: text.startswith(start)),
    "endswith": (BOOL, lambda text, end: text.endswith(end)),
    "year": (INT, lambda us: civil(us)[0]),
    "month": (INT, lambda us: civil(us)[1]),
    "day": (INT, lambda us: civil(us)[2]),
    "hour": (INT, lambda us: us // 3_600_000_000 % 24),
    "minute": (INT, lambda us: us // 60_000_000 % 60),
    "second": (INT, lambda us: us // 1_000_000 % 60),
}
