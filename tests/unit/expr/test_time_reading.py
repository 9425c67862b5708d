"""What `to_timestamp` and `wrapping` refuse when they are written, and how they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plait import wrapping
from plait.errors import JobError
from plait.expr.tree import col, lit
from plait.expr.type_checker import bind, type_of
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Callable

x: Any = col("x")
seven: Any = 7
SCHEMA = Schema.of({"x": str, "n": int | None, "f": float, "t": "timestamp", "b": bool})


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: x.to_timestamp(unit="m"), "unit is 'm'; it is one of s, ms, us, ns"),
        (lambda: x.to_timestamp("%Y", unit="s"), "unit= is for numbers"),
        (lambda: x.to_timestamp(rounding="up"), 'write "error" or "down"'),
        (lambda: x.to_timestamp("%Y-%m-%d %Q", tz="UTC"), "has %Q; there are: %Y"),
        (lambda: x.to_timestamp("%Y-%m-%d %", tz="UTC"), "has %; there are"),
        (lambda: x.to_timestamp("%m-%d", tz="UTC"), "has no year; write %Y"),
        (lambda: x.to_timestamp("%Y-%m", tz="UTC"), "has no day; write %d"),
        (lambda: x.to_timestamp("%Y-%m-%b-%d", tz="UTC"), "gives the month twice"),
        (lambda: x.to_timestamp("%Y-%m-%d %I", tz="UTC"), "go together"),
        (lambda: x.to_timestamp("%Y-%m-%d %f", tz="UTC"), "without %S"),
        (lambda: x.to_timestamp("%Y-%m-%d"), 'has no zone .* tz="UTC"'),
        (lambda: x.to_timestamp(7, tz="UTC"), "the format is 7"),
        (lambda: x.to_timestamp(tz="Europe/Bonn"), "no time zone 'Europe/Bonn'"),
        (lambda: x.to_timestamp(tz="../x"), "no time zone"),
        (lambda: x.to_timestamp(tz=1), "tz is 1"),
        (lambda: wrapping(seven), "wrapping takes an expression"),
    ],
)
def test_what_is_wrong_with_the_description(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(JobError, match=message):
        write()


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (col("n").to_timestamp(), r'say what it counts since 1970: to_timestamp\(unit="ms"\)'),
        (col("x").to_timestamp(unit="s"), "unit= needs a number, but .* is string"),
        (col("t").to_timestamp(), "is a timestamp already"),
        (col("b").to_timestamp(), "needs string, but .* is bool"),
    ],
)
def test_what_is_wrong_with_the_type(expr: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        bind(expr, SCHEMA)


def test_its_type() -> None:
    read = type_of(col("n").to_timestamp(unit="ns"), SCHEMA)
    assert (read.type, read.nullable) == (Type.TIMESTAMP, True)
    assert not type_of(x.to_timestamp(), SCHEMA).nullable
    assert type_of(lit(None).to_timestamp(), SCHEMA).nullable


def test_as_a_user_would_write_it() -> None:
    assert repr(x.to_timestamp(tz="UTC", rounding="down")) == (
        "col(\"x\").to_timestamp(tz='UTC', rounding='down')"
    )
    assert repr(wrapping(-x * 31 + 7) > 3) == 'wrapping((-col("x") * 31) + 7) > 3'
    assert repr(wrapping(x.abs())) == 'wrapping(col("x").abs())'
