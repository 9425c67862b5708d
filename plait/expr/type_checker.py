"""The type checker: an expression over a schema becomes a bound one with a type, nullable or not.

Binding settles what Python's operators leave open (`&` on integers, `~` on integers), widens
integers that meet floats by explicit casts, and gives every null a type, so that nothing after it
has to guess. The rules are pure; a violation is a JobError that says both types and what to do.
Trees are walked without recursion, and a part that is used twice is bound once.

    >>> from plait.expr.tree import col
    >>> bind(col("price") * 2, Schema.of({"price": float})).type
    float64
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from plait.errors import JobError
from plait.expr.text import text
from plait.expr.tree import OPERATIONS, Expr, bottom_up, lit, type_of_constant
from plait.model.durations import signed_microseconds
from plait.model.schema import Schema, Type

INT, FLOAT, BOOL = Type.INT64, Type.FLOAT64, Type.BOOL
STRING, BYTES, TIME, OBJECT = Type.STRING, Type.BYTES, Type.TIMESTAMP, Type.OBJECT
NUMBERS = (INT, FLOAT)

CASTS: dict[Type, tuple[Type, ...]] = {
    INT: (FLOAT, BOOL, STRING, TIME),
    FLOAT: (INT, BOOL, STRING),
    BOOL: (INT, FLOAT, STRING),
    STRING: (INT, FLOAT, BOOL, BYTES),
    BYTES: (STRING,),
    TIME: (INT, STRING),
    OBJECT: (),
}
VERBS = {
    "add": "added",
    "sub": "subtracted",
    "mul": "multiplied",
    "truediv": "divided",
    "floordiv": "divided",
    "mod": "divided",
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A checked expression. Its type is None only for a null that has found none yet."""

    expr: Expr
    type: Type | None
    nullable: bool

    def __str__(self) -> str:
        return "null" if self.type is None else self.type.value


@dataclass(frozen=True, slots=True)
class Typed:
    """The type of an expression and whether it may be null."""

    type: Type
    nullable: bool


Rule = Callable[[Expr, Sequence[Bound]], Bound]


def type_of(expr: Expr, schema: Schema) -> Typed:
    """The type of an expression over rows of a schema."""
    bound = bind(expr, schema)
    if bound.type is None:
        raise JobError(f"{text(expr)} has no type; write lit(None).cast(int)")
    return Typed(bound.type, bound.nullable)


def bind(expr: Expr, schema: Schema) -> Bound:
    """The expression checked against a schema and settled."""
    return bottom_up(expr, lambda part, args: bind_one(part, args, schema))


def bind_one(expr: Expr, args: Sequence[Bound], schema: Schema) -> Bound:
    if expr.op == "col":
        field = schema[check_column(expr.value, schema)]
        return Bound(expr, field.type, field.nullable)
    rule = RULES.get(expr.op)
    if rule is None:
        raise JobError(f'"{expr.op}" is not an operation; there are: {", ".join(OPERATIONS)}')
    return rule(expr, args)


def check_column(name: str, schema: Schema) -> str:
    """The name, if the schema has such a column."""
    if name in schema:
        return name
    message = f'no column "{name}"\n  the stream has: {", ".join(schema.names)}'
    close = difflib.get_close_matches(name, schema.names, n=1)
    raise JobError(message + (f'\n  did you mean "{close[0]}"?' if close else ""))


def rebuilt(op: str, args: Sequence[Bound], kind: Type, value: Any = None) -> Bound:
    """An operation whose result is null exactly when an argument is."""
    nullable = any(arg.nullable for arg in args)
    return Bound(Expr(op, tuple(arg.expr for arg in args), value), kind, nullable)


def clash(expr: Expr, what: str, advice: str) -> JobError:
    return JobError(f"{text(expr)}: {what}\n  {advice}")


def advice_for(kinds: set[Type | None]) -> str:
    """What to do about values of these types that should meet."""
    if OBJECT in kinds:
        return "an object is opaque here; give the column a type in its schema or in an annotation"
    if kinds == {STRING, BYTES}:
        return "convert one of them: .cast(str) or .cast(bytes)"
    if TIME in kinds and kinds & {STRING, INT, FLOAT}:
        return "give an aware datetime, or convert: .to_timestamp() or .cast(int), microseconds"
    if STRING in kinds:
        return "convert one of them: .cast(str), .cast(int) or .cast(float)"
    return "convert one of them with .cast(...)"


def settle(arg: Bound, kind: Type) -> Bound:
    """The argument as that type: a null gets it, an int is widened to float."""
    if arg.type is kind:
        return arg
    if arg.expr.op == "lit" and arg.type is INT and kind is FLOAT and type(arg.expr.value) is int:
        return Bound(lit(float(arg.expr.value)), FLOAT, False)
    return Bound(Expr("cast", (arg.expr,), kind), kind, arg.nullable)


def meet(args: Sequence[Bound]) -> Type | None:
    """The type in which all the arguments can meet; None if there is none."""
    kinds = {arg.type for arg in args} - {None}
    if kinds == {INT, FLOAT}:
        return FLOAT
    return next(iter(kinds)) if len(kinds) == 1 else None


def together(expr: Expr, args: Sequence[Bound], doing: str) -> tuple[list[Bound], Type]:
    """The arguments in one type."""
    kind = meet(args)
    kinds = {arg.type for arg in args}
    if kind is OBJECT:
        raise clash(expr, f"object values cannot be {doing}", advice_for(kinds))
    if kind is None and kinds == {None}:
        raise clash(expr, "every value is null", "give one of them a type: lit(None).cast(int)")
    if kind is None:
        names = " and ".join(sorted(str(arg) for arg in {a.type: a for a in args}.values()))
        raise clash(expr, f"{names} cannot be {doing}", advice_for(kinds))
    return [settle(arg, kind) for arg in args], kind


def need(expr: Expr, arg: Bound, kinds: Sequence[Type]) -> Bound:
    """The argument, if it has one of the types; a null becomes the first of them."""
    if arg.type is None:
        return settle(arg, kinds[0])
    if arg.type not in kinds:
        wanted = " or ".join(kind.value for kind in kinds)
        advice = advice_to_convert(arg.type, kinds)
        raise clash(expr, f"needs {wanted}, but {text(arg.expr)} is {arg}", advice)
    return arg


def advice_to_convert(kind: Type, wanted: Sequence[Type]) -> str:
    target = next((one for one in wanted if one in CASTS[kind]), None)
    if target is None:
        return f"there is no conversion from {kind.value}"
    return f"convert it: .cast({target.python.__name__})"


def constant_rule(expr: Expr, args: Sequence[Bound]) -> Bound:
    return Bound(expr, type_of_constant(expr.value), expr.value is None)


def arithmetic(expr: Expr, args: Sequence[Bound]) -> Bound:
    kinds = {arg.type for arg in args}
    if TIME in kinds and expr.op in ("add", "sub"):
        return time_arithmetic(expr, args)
    both, kind = together(expr, args, VERBS[expr.op])
    if kind in NUMBERS:
        if expr.op == "truediv":
            return rebuilt(expr.op, [settle(arg, FLOAT) for arg in both], FLOAT)
        return rebuilt(expr.op, both, kind, expr.value)
    if kind in (STRING, BYTES) and expr.op == "add":
        return rebuilt(expr.op, both, kind)
    advice = "convert it: .cast(int)" if kind is BOOL else "only numbers can"
    raise clash(expr, f"{kind.value} values cannot be {VERBS[expr.op]}", advice)


def time_arithmetic(expr: Expr, args: Sequence[Bound]) -> Bound:
    left, right = args
    if expr.op == "add" and left.type is not TIME:
        left, right = right, left
    if expr.op == "sub" and left.type is None:
        left = settle(left, TIME)
    if expr.op == "sub" and left.type is TIME and right.type is TIME:
        return rebuilt("sub", [left, right], INT, expr.value)
    if left.type is TIME and right.type in (INT, None):
        if right.expr.op == "lit" and type(right.expr.value) is int:
            number = right.expr.value
            advice = f"give it a unit: plait.seconds({number}) or a timedelta"
            raise clash(expr, f"{number} what?", advice)
        return rebuilt(expr.op, [left, settle(right, INT)], TIME, expr.value)
    what = f"{args[0]} and {args[1]} cannot be {VERBS[expr.op]}"
    raise clash(expr, what, "to a timestamp add a timedelta, such as plait.seconds(10)")


def one_number(expr: Expr, args: Sequence[Bound]) -> Bound:
    arg = need(expr, args[0], NUMBERS)
    return rebuilt(expr.op, [arg], arg.type or INT, expr.value)


def bitwise(expr: Expr, args: Sequence[Bound]) -> Bound:
    if expr.op == "bit_xor" and meet(args) is BOOL:
        return rebuilt("ne", [settle(arg, BOOL) for arg in args], BOOL)
    return rebuilt(expr.op, [need(expr, arg, (INT,)) for arg in args], INT)


def shift(expr: Expr, args: Sequence[Bound]) -> Bound:
    by = args[1].expr
    if by.op != "lit" or type(by.value) is not int or not 0 <= by.value <= 63:
        raise clash(expr, f"cannot shift by {text(by)}", "give a constant from 0 to 63")
    return rebuilt(expr.op, [need(expr, args[0], (INT,)), args[1]], INT)


def compare(expr: Expr, args: Sequence[Bound]) -> Bound:
    both, _ = together(expr, args, "compared")
    return rebuilt(expr.op, both, BOOL)


def logic(expr: Expr, args: Sequence[Bound]) -> Bound:
    kind = meet(args)
    if kind is INT:
        return rebuilt(f"bit_{expr.op}", [settle(arg, INT) for arg in args], INT)
    if kind is BOOL:
        return rebuilt(expr.op, [settle(arg, BOOL) for arg in args], BOOL)
    sign = "&" if expr.op == "and" else "|"
    advice = f"{sign} binds tighter than a comparison; write (a > 1) {sign} (b > 2)"
    raise clash(expr, f"{sign} needs two bools, got {args[0]} and {args[1]}", advice)


def negation(expr: Expr, args: Sequence[Bound]) -> Bound:
    if args[0].type is INT:
        return rebuilt("bit_xor", [args[0], Bound(lit(-1), INT, False)], INT)
    return rebuilt("not", [need(expr, args[0], (BOOL,))], BOOL)


def is_null(expr: Expr, args: Sequence[Bound]) -> Bound:
    arg = settle(args[0], BOOL) if args[0].type is None else args[0]
    return Bound(Expr("is_null", (arg.expr,)), BOOL, False)


def fill_null(expr: Expr, args: Sequence[Bound]) -> Bound:
    both, kind = together(expr, args, "chosen between")
    nullable = all(arg.nullable for arg in both)
    return Bound(Expr("fill_null", tuple(arg.expr for arg in both)), kind, nullable)


def is_in(expr: Expr, args: Sequence[Bound]) -> Bound:
    plain = [signed_microseconds(v) if isinstance(v, timedelta) else v for v in expr.value]
    values = [Bound(lit(value), type_of_constant(value), False) for value in plain]
    both, kind = together(expr, [args[0], *values], "compared")
    constants = tuple(value.expr.value for value in both[1:])
    return rebuilt("is_in", [settle(args[0], kind)], BOOL, constants)


def choose(expr: Expr, args: Sequence[Bound]) -> Bound:
    if len(args) < 3 or len(args) % 2 == 0:
        raise JobError("when: give pairs of condition and value, and the value otherwise")
    conditions = [need(expr, arg, (BOOL,)) for arg in args[:-1:2]]
    values, kind = together(expr, [*args[1::2], args[-1]], "chosen between")
    parts: list[Expr] = []
    for condition, value in zip(conditions, values[:-1], strict=True):
        parts += [condition.expr, value.expr]
    nullable = any(value.nullable for value in values)
    return Bound(Expr("when", (*parts, values[-1].expr)), kind, nullable)


def cast(expr: Expr, args: Sequence[Bound]) -> Bound:
    (arg,), target = args, expr.value
    if not isinstance(target, Type) or target is OBJECT:
        raise clash(expr, f"cannot cast to {target!r}", "cast to int, float, bool, str or bytes")
    if arg.type is target:
        return arg
    if arg.type is not None and target not in CASTS[arg.type]:
        there = ", ".join(kind.value for kind in CASTS[arg.type])
        what = f"{arg} cannot be cast to {target.value}"
        raise clash(expr, what, f"{arg} can be cast to: {there or 'nothing'}")
    return rebuilt("cast", [arg], target, target)


def strings_to(kind: Type) -> Rule:
    def rule(expr: Expr, args: Sequence[Bound]) -> Bound:
        return rebuilt(expr.op, [need(expr, arg, (STRING,)) for arg in args], kind)

    return rule


def length(expr: Expr, args: Sequence[Bound]) -> Bound:
    return rebuilt("length", [need(expr, args[0], (STRING, BYTES))], INT)


def is_nan(expr: Expr, args: Sequence[Bound]) -> Bound:
    return rebuilt("is_nan", [need(expr, args[0], (FLOAT,))], BOOL)


def part_of_time(expr: Expr, args: Sequence[Bound]) -> Bound:
    return rebuilt(expr.op, [need(expr, args[0], (TIME,))], INT)


def truncate(expr: Expr, args: Sequence[Bound]) -> Bound:
    return rebuilt("truncate", [need(expr, args[0], (TIME,))], TIME, expr.value)


def to_timestamp(expr: Expr, args: Sequence[Bound]) -> Bound:
    (arg,), reading = args, expr.value
    if arg.type is TIME:
        raise clash(expr, f"{text(arg.expr)} is a timestamp already", "leave to_timestamp out")
    if arg.type in NUMBERS and reading.unit is None:
        advice = 'say what it counts since 1970: to_timestamp(unit="ms")'
        raise clash(expr, f"{text(arg.expr)} is {arg}", advice)
    if arg.type is STRING and reading.unit is not None:
        advice = "leave unit= out, or convert it first: .cast(int)"
        raise clash(expr, f"unit= needs a number, but {text(arg.expr)} is {arg}", advice)
    kinds = (STRING,) if reading.unit is None else NUMBERS
    return rebuilt("to_timestamp", [need(expr, arg, kinds)], TIME, reading)


def call(expr: Expr, args: Sequence[Bound]) -> Bound:
    """A compiled function says its types itself: `parameter_types` and `result_type`."""
    function = expr.value
    name = getattr(function, "__name__", "function")
    if not hasattr(function, "parameter_types"):
        raise JobError(f"{name} is not compiled; mark it @plait.compiled")
    wanted: Sequence[Type] = function.parameter_types
    if len(args) != len(wanted):
        raise JobError(f"{name} takes {len(wanted)} arguments, got {len(args)}")
    given = []
    for arg, kind in zip(args, wanted, strict=True):
        if arg.type is kind or arg.type is None or (arg.type, kind) == (INT, FLOAT):
            given.append(settle(arg, kind))
        else:
            given.append(need(expr, arg, (kind,)))
    result: Type = function.result_type
    return rebuilt("call", given, result, function)


RULES: dict[str, Rule] = {
    "lit": constant_rule,
    **dict.fromkeys(("add", "sub", "mul", "truediv", "floordiv", "mod"), arithmetic),
    **dict.fromkeys(("neg", "abs"), one_number),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor"), bitwise),
    **dict.fromkeys(("shl", "shr"), shift),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), compare),
    **dict.fromkeys(("and", "or"), logic),
    "not": negation,
    "is_null": is_null,
    "is_nan": is_nan,
    "fill_null": fill_null,
    "is_in": is_in,
    **dict.fromkeys(("lower", "upper", "strip"), strings_to(STRING)),
    "length": length,
    **dict.fromkeys(("contains", "startswith", "endswith"), strings_to(BOOL)),
    "cast": cast,
    "when": choose,
    **dict.fromkeys(("year", "month", "day", "hour", "minute", "second"), part_of_time),
    "truncate": truncate,
    "to_timestamp": to_timestamp,
    "call": call,
}
