"""Every operation of the oracle's expressions on cases computed by hand."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest

from plait.expr.text import WRAP
from plait.expr.time_reading import TimeReading
from plait.expr.tree import OPERATIONS, Expr
from plait.model.records import microseconds_of
from plait.model.schema import INT64_MAX, INT64_MIN, Schema, Type
from plait.testing.difference import same_value
from plait.testing.oracle.expressions import compiled
from plait.testing.oracle.values import Fault

SCHEMA = Schema.of(
    {"i": "int64?", "f": "float64?", "b": "bool?", "s": "string?", "t": "timestamp?"}
)
NULLS = (None, None, None, None, None)
NAN, INF = math.nan, math.inf
NOON = datetime.datetime(2024, 2, 29, 12, 34, 56, 789, tzinfo=datetime.UTC)
NOON_US = microseconds_of(NOON)
OLD = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def ex(op: str, *args: Any, value: Any = None) -> Expr:
    return Expr(op, tuple(a if isinstance(a, Expr) else Expr("lit", (), a) for a in args), value)


def run(expr: Expr) -> Any:
    return compiled(expr, SCHEMA).run(NULLS)


class Doubled:
    """What a compiled function offers to a checker and to the oracle."""

    parameter_types = (Type.INT64,)
    result_type = Type.INT64

    def __call__(self, value: int) -> int:
        return 10 // value * 2


SECONDS = TimeReading(unit="s")
CASES: list[tuple[str, Expr, Any]] = [
    ("to_timestamp", ex("to_timestamp", 7, value=SECONDS), 7_000_000),
    ("add", ex("add", 1, 2), 3),
    ("add wraps", ex("add", INT64_MAX, 1, value=WRAP), INT64_MIN),
    ("add widens", ex("add", 1, 0.5), 1.5),
    ("add strings", ex("add", "a", "é"), "aé"),
    ("add bytes", ex("add", b"a", b"b"), b"ab"),
    ("add time", ex("add", NOON, HOUR), NOON_US + 3_600_000_000),
    ("add to time", ex("add", HOUR, NOON), NOON_US + 3_600_000_000),
    ("sub wraps", ex("sub", INT64_MIN, 1, value=WRAP), INT64_MAX),
    ("sub time", ex("sub", NOON, HOUR), NOON_US - 3_600_000_000),
    ("sub times", ex("sub", NOON, NOON), 0),
    ("mul wraps", ex("mul", 2**62, 2, value=WRAP), INT64_MIN),
    ("mul floats overflow", ex("mul", 1e308, 10.0), INF),
    ("truediv", ex("truediv", 1, 2), 0.5),
    ("truediv zero", ex("truediv", -1, 0.0), -INF),
    ("truediv minus zero", ex("truediv", 1.0, -0.0), -INF),
    ("truediv zeros", ex("truediv", 0, 0), NAN),
    ("truediv rounds each", ex("truediv", 2**53 + 1, 1), float(2**53)),
    ("floordiv", ex("floordiv", -7, 2), -4),
    ("floordiv wraps", ex("floordiv", INT64_MIN, -1, value=WRAP), INT64_MIN),
    ("floordiv float", ex("floordiv", -7.5, 2), -4.0),
    ("floordiv float zero", ex("floordiv", 7.5, 0.0), INF),
    ("mod", ex("mod", -7, 3), 2),
    ("mod negative", ex("mod", 7, -3), -2),
    ("mod least", ex("mod", INT64_MIN, -1), 0),
    ("mod float", ex("mod", -7.5, 2), 0.5),
    ("mod float zero", ex("mod", 7.5, 0), NAN),
    ("neg", ex("neg", INT64_MIN, value=WRAP), INT64_MIN),
    ("neg float", ex("neg", 0.0), -0.0),
    ("abs", ex("abs", INT64_MIN, value=WRAP), INT64_MIN),
    ("abs float", ex("abs", -0.0), 0.0),
    ("bit_and", ex("bit_and", -1, 6), 6),
    ("bit_or", ex("bit_or", 1, 6), 7),
    ("bit_xor", ex("bit_xor", 5, 6), 3),
    ("and of ints", ex("and", 5, 6), 4),
    ("not of ints", ex("not", 5), -6),
    ("xor of bools", ex("bit_xor", True, False), True),
    ("shl", ex("shl", 3, 63), INT64_MIN),
    ("shr", ex("shr", -1, 63), -1),
    ("eq widens", ex("eq", 2**53 + 1, float(2**53)), True),
    ("eq nan", ex("eq", NAN, NAN), False),
    ("ne nan", ex("ne", NAN, NAN), True),
    ("lt strings by code point", ex("lt", "\uffff", "\U00010000"), True),
    ("le", ex("le", b"a", b"a\x00"), True),
    ("gt zeros", ex("gt", 0.0, -0.0), False),
    ("ge times", ex("ge", NOON, OLD), True),
    ("and", ex("and", True, ex("col", value="b")), None),
    ("and false", ex("and", ex("col", value="b"), False), False),
    ("or", ex("or", False, ex("col", value="b")), None),
    ("or true", ex("or", ex("col", value="b"), True), True),
    ("not", ex("not", True), False),
    ("is_null", ex("is_null", ex("col", value="i")), True),
    ("is_null of value", ex("is_null", NAN), False),
    ("is_nan", ex("is_nan", NAN), True),
    ("fill_null", ex("fill_null", ex("col", value="i"), 2.5), 2.5),
    ("fill_null widens", ex("fill_null", 1, ex("col", value="f")), 1.0),
    ("is_in", ex("is_in", 2, value=(1, 2)), True),
    ("is_in widens", ex("is_in", 2, value=(2.0,)), True),
    ("is_in nan", ex("is_in", NAN, value=(NAN,)), False),
    ("is_in nothing", ex("is_in", 2, value=()), False),
    ("lower", ex("lower", "ÀΣİ"), "àσi̇"),
    ("upper", ex("upper", "straße"), "STRASSE"),
    ("strip", ex("strip", "\t\v\f\r\n x \xa0 "), "x \xa0"),
    ("length", ex("length", "é\U0001f600"), 2),
    ("length bytes", ex("length", "é".encode()), 2),
    ("contains", ex("contains", "abc", "bc"), True),
    ("contains nothing", ex("contains", "", ""), True),
    ("startswith", ex("startswith", "abc", "bc"), False),
    ("endswith", ex("endswith", "abc", "bc"), True),
    ("year", ex("year", NOON), 2024),
    ("month", ex("month", NOON), 2),
    ("day", ex("day", NOON), 29),
    ("hour", ex("hour", OLD), 23),
    ("minute", ex("minute", NOON), 34),
    ("second", ex("second", OLD), 59),
    ("year far", ex("year", ex("cast", INT64_MAX, value=Type.TIMESTAMP)), 294247),
    ("year before", ex("year", ex("cast", INT64_MIN, value=Type.TIMESTAMP)), -290308),
    ("truncate", ex("truncate", OLD, value=10_000_000), -10_000_000),
    ("lit timedelta", ex("lit", value=HOUR), 3_600_000_000),
    ("call", ex("call", 5, value=Doubled()), 4),
    ("call null", ex("call", ex("col", value="i"), value=Doubled()), None),
    ("when", ex("when", False, 1, True, 2, 3), 2),
    ("when null", ex("when", ex("col", value="b"), 1, 3.5), 3.5),
    ("when widens", ex("when", True, 1, 3.5), 1.0),
    ("when is lazy", ex("when", True, 1, ex("floordiv", 1, 0)), 1),
]


@pytest.mark.parametrize(
    ("expr", "wanted"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_operation(expr: Expr, wanted: Any) -> None:
    got = run(expr)
    assert same_value(got, wanted), f"got {got!r}, wanted {wanted!r}"


def test_every_operation_has_a_case() -> None:
    def ops(expr: Expr) -> set[str]:
        return {expr.op}.union(*(ops(arg) for arg in expr.args))

    assert set().union(*(ops(expr) for _, expr, _ in CASES)) >= set(OPERATIONS)


@pytest.mark.parametrize("op", sorted(set(OPERATIONS) - {"col", "lit", "call", "when"}))
def test_null_in_null_out(op: str) -> None:
    column = {
        **dict.fromkeys(("and", "or", "not"), "b"),
        **dict.fromkeys(("lower", "upper", "strip", "contains", "startswith", "endswith"), "s"),
        **dict.fromkeys(("year", "month", "day", "hour", "minute", "second", "truncate"), "t"),
        **dict.fromkeys(("is_nan", "length"), "f" if op == "is_nan" else "s"),
    }.get(op, "i")
    one = {"neg", "abs", "not", "is_null", "is_nan", "is_in", "lower", "upper", "strip", "length"}
    one |= {"cast", "year", "month", "day", "hour", "minute", "second", "truncate", "to_timestamp"}
    value = {"is_in": (1,), "cast": Type.FLOAT64, "truncate": 10, "to_timestamp": SECONDS}.get(op)
    arg = ex("col", value=column)
    expr = ex(op, *[arg] * (1 if op in one else 2), value=value)
    assert run(expr) is (True if op == "is_null" else None)


CASTS: list[tuple[Any, Type, Any]] = [
    (3, Type.FLOAT64, 3.0),
    (3, Type.BOOL, True),
    (0, Type.BOOL, False),
    (-3, Type.STRING, "-3"),
    (-3, Type.TIMESTAMP, -3),
    (-3.9, Type.INT64, -3),
    (-(2.0**63), Type.INT64, INT64_MIN),
    (NAN, Type.BOOL, True),
    (-0.0, Type.BOOL, False),
    (-0.0, Type.STRING, "-0.0"),
    (1e16, Type.STRING, "1e+16"),
    (1e22, Type.STRING, "1e+22"),
    (123456.75, Type.STRING, "123456.75"),
    (0.0001, Type.STRING, "0.0001"),
    (0.00001, Type.STRING, "1e-05"),
    (NAN, Type.STRING, "nan"),
    (-INF, Type.STRING, "-inf"),
    (True, Type.INT64, 1),
    (False, Type.FLOAT64, 0.0),
    (True, Type.STRING, "true"),
    ("+007", Type.INT64, 7),
    ("-9223372036854775808", Type.INT64, INT64_MIN),
    ("0" * 5000 + "1", Type.INT64, 1),
    (".5e1", Type.FLOAT64, 5.0),
    ("5.", Type.FLOAT64, 5.0),
    ("-InFiNiTy", Type.FLOAT64, -INF),
    ("NaN", Type.FLOAT64, NAN),
    ("1e999", Type.FLOAT64, INF),
    ("false", Type.BOOL, False),
    ("é", Type.BYTES, "é".encode()),
    ("é".encode(), Type.STRING, "é"),
    (NOON, Type.INT64, NOON_US),
    (NOON, Type.STRING, "2024-02-29T12:34:56.000789Z"),
    (OLD, Type.STRING, "1969-12-31T23:59:59.999999Z"),
    ("x", Type.STRING, "x"),
    (ex("cast", INT64_MAX, value=Type.TIMESTAMP), Type.STRING, "294247-01-10T04:00:54.775807Z"),
    (ex("cast", INT64_MIN, value=Type.TIMESTAMP), Type.STRING, "-290308-12-21T19:59:05.224192Z"),
]


@pytest.mark.parametrize(("value", "kind", "wanted"), CASTS)
def test_cast(value: Any, kind: Type, wanted: Any) -> None:
    got = run(ex("cast", value, value=kind))
    assert same_value(got, wanted), f"got {got!r}, wanted {wanted!r}"


REFUSED: list[tuple[Any, Type]] = [
    (NAN, Type.INT64),
    (INF, Type.INT64),
    (2.0**63, Type.INT64),
    *[(t, Type.INT64) for t in ("", "+", " 1", "1_0", "٣", "1.0", "9223372036854775808")],
    *[(t, Type.FLOAT64) for t in ("", ".", "1_0", " 1", "1e", "0x1p3", "٣", "infin", "1\n")],
    *[(t, Type.BOOL) for t in ("True", "", "1")],
    (b"\xff", Type.STRING),
    (b"\xed\xa0\x80", Type.STRING),
]


@pytest.mark.parametrize(("value", "kind"), REFUSED)
def test_cast_fails_the_record(value: Any, kind: Type) -> None:
    with pytest.raises(Fault, match="cannot cast"):
        run(ex("cast", value, value=kind))


FAILING = ex("floordiv", 1, 0)


@pytest.mark.parametrize(
    "expr",
    [
        FAILING,
        ex("mod", 1, 0),
        ex("and", False, ex("eq", FAILING, 1)),
        ex("or", True, ex("eq", FAILING, 1)),
        ex("when", ex("eq", FAILING, 1), 1, 2),
        ex("add", ex("col", value="i"), FAILING),
        ex("call", 0, value=Doubled()),
    ],
)
def test_failing_expressions(expr: Expr) -> None:
    with pytest.raises(Fault, match="zero"):
        run(expr)


def test_null_never_fails() -> None:
    assert run(ex("floordiv", ex("col", value="i"), 0)) is None
    assert run(ex("mod", 1, ex("col", value="i"))) is None


def test_types_that_do_not_meet_are_refused() -> None:
    with pytest.raises(TypeError, match="int64, string"):
        compiled(ex("add", 1, "a"), SCHEMA)
