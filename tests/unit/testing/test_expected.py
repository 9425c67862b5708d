"""What `check(expect=...)` takes: tables, their text, and plain lists of records."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import plait
from plait import col
from plait.testing import check, table

GIVEN = [{"a": 1, "p": 10.0}, {"a": 1, "p": 20.0}]


@dataclasses.dataclass
class Total:
    a: int
    sum: float


def total(stream: plait.Stream) -> plait.Stream:
    return stream.key_by("a").sum("p")


@pytest.mark.parametrize(
    "expect",
    [
        [{"a": 1, "sum": 10.0}, {"sum": 30, "a": 1}],
        [(1, 10.0), (1, 30)],
        [[1, 10], [1, 30]],
        ([1, 10.0], (1, 30.0)),
        [Total(1, 10.0), Total(1, 30.0)],
        "a | sum\n1 | 10\n1 | 30",
        table("a | sum\n1 | 10\n1 | 30"),
        pa.table({"a": [1, 1], "sum": [10, 30]}),
        pd.DataFrame({"a": [1, 1], "sum": [10.0, 30.0]}),
    ],
    ids=lambda expect: type(expect).__name__,
)
def test_the_same_rows_in_many_forms(expect: Any) -> None:
    check(total, GIVEN, expect=expect, workers=(1,), nodes=(1,))


def test_bare_values_and_no_rows() -> None:
    check(lambda numbers: numbers.select("a"), GIVEN, expect=[1, 1], workers=(1,))
    check(lambda numbers: numbers.filter(col("a") > 1), GIVEN, expect=[], workers=(1,))


def test_a_key_that_is_left_out_is_null() -> None:
    given = [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    check(lambda stream: stream, given, expect=[{"a": 1}, {"a": 2, "b": 3}], workers=(1,))


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ([{"a": 1, "summ": 10}], "expect: row 0 has 'summ'; the output has: a, sum"),
        ([(1, 10), (1, 30, 2)], r"expect: row 1: expected 2 values \(a, sum\), got 3"),
        ([("1", 10)], "expect: row 0: column \"a\": expected int64, got '1'"),
        ([{"sum": 10}], 'expect: row 0: column "a": missing'),
        ("a | n\n1 | 10", "the output has the columns a, sum, expected a, n"),
        (pa.table({"a": [1]}), "the output has the columns a, sum, expected a"),
        ([(1, 10)], r"row 1 is the first that differs \(2 rows, expected 1\)"),
    ],
)
def test_what_is_not_the_output(expect: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(total, GIVEN, expect=expect, workers=(1,))


def test_the_difference_is_a_small_table() -> None:
    with pytest.raises(AssertionError) as caught:
        check(total, GIVEN, expect=[(1, 10), (1, 31)], workers=(1,))
    assert str(caught.value).split("\n")[1:] == [
        "  got: 1 | 30.0",
        "  expected: 1 | 31.0",
        "got, rows 0 to 1:",
        "  a | sum",
        "  1 | 10.0",
        "  1 | 30.0",
        "expected, rows 0 to 1:",
        "  a | sum",
        "  1 | 10.0",
        "  1 | 31.0",
    ]


@pytest.mark.parametrize("expect", [{"a": 1}, 5, {1, 2}])
def test_what_cannot_be_rows_is_refused(expect: Any) -> None:
    with pytest.raises(plait.JobError, match=r"expect is .*; give a list of dicts or tuples"):
        check(total, GIVEN, expect=expect, workers=(1,))


def test_what_a_builder_must_return() -> None:
    with pytest.raises(plait.JobError, match='"nothing" must return a stream or a job, not None'):
        check(nothing, GIVEN)
    with pytest.raises(plait.JobError, match="call an aggregate or a window on it"):
        check(lambda stream: stream.key_by("a"), GIVEN)


def nothing(stream: plait.Stream) -> None:
    """Forgets to return the stream."""
