"""Expressions as data: what the operators and methods build, and what they refuse at once."""

from __future__ import annotations

import copy
import datetime
import doctest
import enum
import operator
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plait.expr.conditionals
import plait.expr.type_checker
import plait.model.durations
from plait.errors import JobError
from plait.expr.conditionals import coalesce, concat, when
from plait.expr.tree import OPERATIONS, Expr, col, columns_read, constant, lit, type_of_constant
from plait.model.schema import Type

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
x, y = col("x"), col("y")


def shape(expr: Expr) -> Any:
    """The tree as nested tuples, which compare as tuples do."""
    if expr.op in ("col", "lit"):
        return expr.value
    own = () if expr.value is None else (expr.value,)
    return (expr.op, *(shape(arg) for arg in expr.args), *own)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (x + 1, ("add", "x", 1)),
        (1 + x, ("add", 1, "x")),
        (x - 1, ("sub", "x", 1)),
        (1 - x, ("sub", 1, "x")),
        (x * 2, ("mul", "x", 2)),
        (2 * x, ("mul", 2, "x")),
        (x / 2, ("truediv", "x", 2)),
        (2 / x, ("truediv", 2, "x")),
        (x // 2, ("floordiv", "x", 2)),
        (2 // x, ("floordiv", 2, "x")),
        (x % 2, ("mod", "x", 2)),
        (2 % x, ("mod", 2, "x")),
        (-x, ("neg", "x")),
        (+x, "x"),
        (abs(x), ("abs", "x")),
        (x.abs(), ("abs", "x")),
        (x & y, ("and", "x", "y")),
        (True & x, ("and", True, "x")),
        (x | y, ("or", "x", "y")),
        (False | x, ("or", False, "x")),
        (x ^ y, ("bit_xor", "x", "y")),
        (3 ^ x, ("bit_xor", 3, "x")),
        (~x, ("not", "x")),
        (x << 3, ("shl", "x", 3)),
        (x >> 3, ("shr", "x", 3)),
        (x == 1, ("eq", "x", 1)),
        (x != 1, ("ne", "x", 1)),
        (x < 1, ("lt", "x", 1)),
        (x <= 1, ("le", "x", 1)),
        (x > 1, ("gt", "x", 1)),
        (x >= 1, ("ge", "x", 1)),
        (x.is_null(), ("is_null", "x")),
        (x.is_not_null(), ("not", ("is_null", "x"))),
        (x.is_nan(), ("is_nan", "x")),
        (x.fill_null(0), ("fill_null", "x", 0)),
        (x.is_in([1, 2]), ("is_in", "x", (1, 2))),
        (x.is_in(range(2)), ("is_in", "x", (0, 1))),
        (x.between(1, 3), ("and", ("ge", "x", 1), ("le", "x", 3))),
        (x.lower(), ("lower", "x")),
        (x.upper(), ("upper", "x")),
        (x.strip(), ("strip", "x")),
        (x.length(), ("length", "x")),
        (x.contains("a"), ("contains", "x", "a")),
        (x.startswith("a"), ("startswith", "x", "a")),
        (x.endswith(y), ("endswith", "x", "y")),
        (x.cast(int), ("cast", "x", Type.INT64)),
        (x.cast("float64"), ("cast", "x", Type.FLOAT64)),
        (x.cast(Type.STRING), ("cast", "x", Type.STRING)),
        (x.year(), ("year", "x")),
        (x.month(), ("month", "x")),
        (x.day(), ("day", "x")),
        (x.hour(), ("hour", "x")),
        (x.minute(), ("minute", "x")),
        (x.second(), ("second", "x")),
        (x.truncate("10s"), ("truncate", "x", 10_000_000)),
        (coalesce(x, y, 0), ("fill_null", ("fill_null", "x", "y"), 0)),
        (concat("a", x), ("add", ("cast", "a", Type.STRING), ("cast", "x", Type.STRING))),
        (
            when(x > 1).then("a").when(y).then("b").otherwise(None),
            ("when", ("gt", "x", 1), "a", "y", "b", None),
        ),
    ],
    ids=repr,
)
def test_what_is_built(expr: Expr, expected: Any) -> None:
    assert shape(expr) == expected


def test_every_operation_that_is_built_is_in_the_table() -> None:
    assert {"add", "when", "call", "truncate"} <= OPERATIONS.keys()
    assert (x + 1).op in OPERATIONS


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: bool(x > 1), "use & | ~ instead of and or not"),
        (lambda: x > 1 and y > 2, "use & | ~"),
        (lambda: not x, "use & | ~"),
        (lambda: 1 < x < 3, "between"),
        (lambda: list(x), "cannot be iterated"),
        (lambda: x == None, "is_null"),  # noqa: E711
        (lambda: x != None, "is_null"),  # noqa: E711
        (lambda: x.is_in("abc"), "takes a list"),
        (lambda: x.is_in(3), "takes a list"),  # type: ignore[arg-type]
        (lambda: x.is_in([1, None]), r"use \.is_null\(\)"),
        (lambda: x + 2**63, "does not fit int64"),
        (lambda: x > datetime.datetime(2024, 1, 1), "has no time zone"),  # noqa: DTZ001
        (lambda: x + object(), "cannot be a constant"),
        (lambda: x + {1}, "cannot be a constant"),
        (lambda: x + len, "is a function"),
        (lambda: x + when(y).then(1), "otherwise"),
        (lambda: x + when(y), "otherwise"),
        (lambda: col(3), "name of a column"),  # type: ignore[arg-type]
        (lambda: x.truncate(10), 'write "10s"'),
        (lambda: concat(), "at least one"),
    ],
)
def test_what_is_refused_at_once(use: Callable[[], Any], message: str) -> None:
    with pytest.raises(JobError, match=message.replace("|", r"\|")):
        use()


def test_in_is_refused() -> None:
    with pytest.raises(JobError, match="cannot be iterated"):
        operator.contains(x, 1)  # type: ignore[arg-type]


class Colour(enum.IntEnum):
    RED = 1


class Word(enum.StrEnum):
    HELLO = "hello"


@pytest.mark.parametrize(
    ("given", "expected", "kind"),
    [
        (True, True, Type.BOOL),
        (7, 7, Type.INT64),
        (Colour.RED, 1, Type.INT64),
        (np.int32(7), 7, Type.INT64),
        (np.float64(0.5), 0.5, Type.FLOAT64),
        (np.bool_(True), True, Type.BOOL),
        (1.5, 1.5, Type.FLOAT64),
        ("a", "a", Type.STRING),
        (Word.HELLO, "hello", Type.STRING),
        (bytearray(b"a"), b"a", Type.BYTES),
        (NOON, NOON, Type.TIMESTAMP),
        (datetime.timedelta(1), datetime.timedelta(1), Type.INT64),
        (None, None, None),
    ],
)
def test_constants(given: Any, expected: Any, kind: Type | None) -> None:
    value = constant(given)
    assert value == expected
    assert type(value) is type(expected)
    assert type_of_constant(value) is kind


def test_a_time_of_another_zone_is_turned_to_utc() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert lit(NOON.astimezone(zone)).value.tzinfo is datetime.UTC


def test_columns_read() -> None:
    shared = x + y
    assert columns_read(when(shared > 1).then(col("z")).otherwise(shared)) == {"x", "y", "z"}
    assert columns_read(lit(1)) == frozenset()


def test_expressions_are_hashed_by_identity_and_can_be_copied_and_pickled() -> None:
    one = (x + 1) * y
    assert len({one, one, x + 1}) == 2
    assert shape(pickle.loads(pickle.dumps(one))) == shape(one)
    assert shape(copy.deepcopy(one)) == shape(one)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ((x * 2 > 100) & ~y, '((col("x") * 2) > 100) & ~col("y")'),
        ((x + 1).abs(), '(col("x") + 1).abs()'),
        (-(x + 1), '-(col("x") + 1)'),
        (x.is_in(range(9)), 'col("x").is_in([0, 1, 2, 3, 4, ... 9 values])'),
        (x.is_in(["a"]), "col(\"x\").is_in(['a'])"),
        (x.truncate("1s"), 'col("x").truncate("1000000us")'),
        (
            when(x > 1).then(1).otherwise(y + 1),
            'when(col("x") > 1).then(1).otherwise(col("y") + 1)',
        ),
        (Expr("call", (x, lit(1)), len), 'len(col("x"), 1)'),
    ],
)
def test_text(expr: Expr, expected: str) -> None:
    assert repr(expr) == expected


def test_text_of_a_deep_tree_is_short() -> None:
    deep = x
    for _ in range(5000):
        deep = deep + 1
    assert "..." in repr(deep)
    assert len(repr(deep)) < 200


@pytest.mark.parametrize(
    "module",
    [plait.model.durations, plait.expr.conditionals, plait.expr.type_checker],
)
def test_examples_in_docstrings(module: Any) -> None:
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed
