"""The type checker: the type of every operation, what binding settles, and the messages."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

from plait.errors import JobError
from plait.expr.conditionals import coalesce, concat, when
from plait.expr.tree import OPERATIONS, Expr, col, lit
from plait.expr.type_checker import RULES, bind, type_of
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = Schema.of(
    {
        "i": int,
        "f": float,
        "b": bool,
        "s": str,
        "y": bytes,
        "t": datetime.datetime,
        "o": object,
        "ni": int | None,
        "nf": "float64?",
        "nb": bool | None,
        "ns": str | None,
        "nt": "timestamp?",
    }
)
i, f, b, s, y, t, o = (col(name) for name in "ifbsyto")
ni, nf, nb, ns, nt = (col(name) for name in ("ni", "nf", "nb", "ns", "nt"))
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


class Bucket:
    """Stands for a compiled function: a name, the types of its parameters and of its result."""

    __name__ = "bucket"
    parameter_types = (Type.INT64, Type.FLOAT64)
    result_type = Type.BOOL


def call(*args: Expr) -> Expr:
    return Expr("call", args, Bucket())


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (i, "int64"),
        (ni, "int64?"),
        (lit(1), "int64"),
        (lit(NOON), "timestamp"),
        (i + 1, "int64"),
        (i + 1.5, "float64"),
        (i + ni, "int64?"),
        (i / 2, "float64"),
        (i // 2, "int64"),
        (i % nf, "float64?"),
        (i + None, "int64?"),
        (None + f, "float64?"),
        (-i, "int64"),
        (abs(nf), "float64?"),
        (s + "x", "string"),
        (y + b"x", "bytes"),
        (t + SECOND, "timestamp"),
        (SECOND + nt, "timestamp?"),
        (t - SECOND, "timestamp"),
        (t - nt, "int64?"),
        (t - NOON, "int64"),
        (t + (t - NOON), "timestamp"),
        (t + None, "timestamp?"),
        (t > NOON, "bool"),
        (i == 1, "bool"),
        (i < nf, "bool?"),
        (s >= "a", "bool"),
        (y == b"a", "bool"),
        (b == True, "bool"),  # noqa: E712
        (b & nb, "bool?"),
        (b | (i > 1), "bool"),
        (b & None, "bool?"),
        (~b, "bool"),
        (i & 3, "int64"),
        (i | ni, "int64?"),
        (~i, "int64"),
        (i ^ 3, "int64"),
        (b ^ nb, "bool?"),
        (i << 3, "int64"),
        (ni >> 63, "int64?"),
        (ni.is_null(), "bool"),
        (o.is_null(), "bool"),
        (lit(None).is_null(), "bool"),
        (ns.is_not_null(), "bool"),
        (nf.is_nan(), "bool?"),
        (ni.fill_null(0), "int64"),
        (ni.fill_null(nf), "float64?"),
        (ni.fill_null(0.5), "float64"),
        (coalesce(ns, ns, "x"), "string"),
        (ni.is_in([1, 2]), "bool?"),
        (i.is_in([1.5]), "bool"),
        (i.is_in([]), "bool"),
        (ns.lower(), "string?"),
        (s.strip(), "string"),
        (s.length(), "int64"),
        (y.length(), "int64"),
        (s.contains(ns), "bool?"),
        (s.startswith("a"), "bool"),
        (i.cast(str), "string"),
        (ns.cast(int), "int64?"),
        (lit(None).cast(float), "float64?"),
        (t.cast(int), "int64"),
        (i.cast("timestamp"), "timestamp"),
        (y.cast(str), "string"),
        (b.cast(int), "int64"),
        (when(b).then(1).otherwise(2.5), "float64"),
        (when(nb).then(1).otherwise(None), "int64?"),
        (when(b).then(None).when(b).then("a").otherwise("b"), "string?"),
        (t.year(), "int64"),
        (nt.second(), "int64?"),
        (nt.truncate("1h"), "timestamp?"),
        (concat("a", i, t, ns), "string?"),
        (call(i, i), "bool"),
        (call(ni, f), "bool?"),
    ],
    ids=repr,
)
def test_types(expr: Expr, expected: str) -> None:
    typed = type_of(expr, SCHEMA)
    assert f"{typed.type.value}{'?' if typed.nullable else ''}" == expected
    # What is bound is settled: binding it again changes nothing.
    bound = bind(expr, SCHEMA)
    again = bind(bound.expr, SCHEMA)
    assert (again.type, again.nullable) == (bound.type, bound.nullable)
    assert repr(again.expr) == repr(bound.expr)


def test_every_operation_has_a_rule() -> None:
    assert RULES.keys() | {"col"} == OPERATIONS.keys()


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (i + 1.5, i.cast(float) + 1.5),
        (f > 1, f > 1.0),
        (i / 2, i.cast(float) / 2.0),
        (b ^ nb, b != nb),
        (~i, i ^ -1),
        (i & 3, Expr("bit_and", (i, lit(3)))),
        (SECOND + t, t + SECOND),
        (i.cast(int), i),
        (s.cast(str) + "a", s + "a"),
        (ni + None, ni + lit(None).cast(int)),
        (f.is_in([1, 2]), f.is_in([1.0, 2.0])),
        (i.is_in([1, 2.5]), i.cast(float).is_in([1.0, 2.5])),
        (when(nb).then(1).otherwise(f), when(nb).then(1.0).otherwise(f)),
        (ni.fill_null(None), ni.fill_null(lit(None).cast(int))),
    ],
    ids=repr,
)
def test_what_binding_settles(expr: Expr, expected: Expr) -> None:
    assert repr(bind(expr, SCHEMA).expr) == repr(expected)


@pytest.mark.parametrize(
    ("use", "parts"),
    [
        (lambda: col("ii") + 1, ['no column "ii"', "the stream has: i, f, b", "did you mean"]),
        (lambda: col("zzz"), ['no column "zzz"', "the stream has"]),
        (lambda: s + 1, ["int64 and string cannot be added", ".cast(str)"]),
        (lambda: s == 1, ["int64 and string cannot be compared", ".cast(int)"]),
        (lambda: b + 1, ["bool and int64 cannot be added", ".cast("]),
        (lambda: b + b, ["bool values cannot be added", ".cast(int)"]),
        (lambda: s - s, ["string values cannot be subtracted"]),
        (lambda: s * 2, ["int64 and string cannot be multiplied"]),
        (lambda: s + b"x", ["bytes and string cannot be added", ".cast(bytes)"]),
        (lambda: t + 60, ["60 what?", "plait.seconds(60)"]),
        (lambda: t + t, ["timestamp and timestamp cannot be added", "plait.seconds(10)"]),
        (lambda: t * 2, ["int64 and timestamp cannot be multiplied"]),
        (lambda: SECOND - t, ["int64 and timestamp cannot be subtracted"]),
        (lambda: t > "2024-01-01", ["string and timestamp cannot be compared", "datetime"]),
        (lambda: o == 1, ["int64 and object cannot be compared", "give the column a type"]),
        (lambda: o == o, ["object values cannot be compared"]),
        (lambda: -s, ["needs int64 or float64", 'col("s") is string', ".cast(int)"]),
        (lambda: i & b, ["& needs two bools, got int64 and bool", "(a > 1) & (b > 2)"]),
        (lambda: f | b, ["| needs two bools"]),
        (lambda: ~s, ["needs bool", "is string"]),
        (lambda: f ^ 1, ["needs int64", "is float64"]),
        (lambda: i << i, ["cannot shift by", "constant from 0 to 63"]),
        (lambda: i << 64, ["cannot shift by 64"]),
        (lambda: i.is_nan(), ["needs float64", ".cast(float)"]),
        (lambda: i.lower(), ["needs string", ".cast(str)"]),
        (lambda: i.length(), ["needs string or bytes"]),
        (lambda: s.contains(1), ["needs string"]),
        (lambda: i.is_in(["a"]), ["int64 and string cannot be compared"]),
        (lambda: i.fill_null("a"), ["int64 and string cannot be chosen between"]),
        (lambda: when(i).then(1).otherwise(2), ["needs bool", "is int64"]),
        (lambda: when(b).then(1).otherwise("a"), ["int64 and string cannot be chosen between"]),
        (lambda: when(b).then(None).otherwise(None), ["every value is null"]),
        (lambda: lit(None), ["has no type", "lit(None).cast(int)"]),
        (lambda: y.cast(int), ["bytes cannot be cast to int64", "can be cast to: string"]),
        (lambda: s.cast("timestamp"), ["string cannot be cast to timestamp"]),
        (lambda: o.cast(int), ["can be cast to: nothing"]),
        (lambda: i.cast(object), ["cannot cast to object"]),
        (lambda: i.year(), ["needs timestamp", "is int64"]),
        (lambda: s.truncate("1s"), ["needs timestamp", "no conversion from string"]),
        (lambda: call(i), ["bucket takes 2 arguments, got 1"]),
        (lambda: call(f, f), ["needs int64", "is float64"]),
        (lambda: Expr("call", (i,), len), ["len is not compiled", "@plait.compiled"]),
        (lambda: Expr("nonsense"), ['"nonsense" is not an operation']),
    ],
)
def test_messages(use: Callable[[], Any], parts: list[str]) -> None:
    with pytest.raises(JobError) as caught:
        type_of(use(), SCHEMA)
    for part in parts:
        assert part in str(caught.value)


def test_a_deep_tree_and_a_shared_one_are_bound() -> None:
    deep = i
    for _ in range(20_000):
        deep = deep + 1
    assert type_of(deep, SCHEMA).type is Type.INT64
    shared = i
    for _ in range(200):
        shared = shared + shared  # 2 ** 200 paths
    assert type_of(shared, SCHEMA).type is Type.INT64
