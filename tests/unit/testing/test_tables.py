"""Tables as text, and how two tables are compared."""

from __future__ import annotations

import datetime
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import SchemaError
from plait.model.records import datetime_of
from plait.model.schema import Schema
from plait.testing import Rows, table
from plait.testing.difference import first_difference, same_value, story
from plait.testing.random_jobs import TYPES, rows, schemas


def test_types_come_from_the_cells() -> None:
    found = table(
        """
        i  | f   | mixed | b     | s     | t    | iso                  | raw
        1  | 1.5 | 1     | true  | a b   | 0s   | 2024-01-02T03:04:05Z | b"\\x00"
        -2 | inf | 2e3   | false | "x|y" | 1.5s | 1969-12-31T00:00:00Z | b''
        """
    )
    assert str(found.schema) == (
        "i: int64, f: float64, mixed: float64, b: bool, s: string, t: timestamp, iso: timestamp,"
        " raw: bytes"
    )
    assert found.rows == (
        (
            1,
            1.5,
            1.0,
            True,
            "a b",
            datetime_of(0),
            datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
            b"\x00",
        ),
        (
            -2,
            math.inf,
            2000.0,
            False,
            "x|y",
            datetime_of(1_500_000),
            datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC),
            b"",
        ),
    )


def test_nulls() -> None:
    found = table("a | b | c\n1 | | null\n | x | null")
    assert str(found.schema) == "a: int64?, b: string?, c: string?"
    assert found.rows == ((1, None, None), (None, "x", None))


def test_a_column_of_several_kinds_is_text() -> None:
    found = table("a\n1\nx\ntrue\n3s\n'null'\n\"\"")
    assert [row[0] for row in found] == ["1", "x", "true", "3s", "null", ""]


def test_the_header_may_name_types() -> None:
    found = table("a: float | b: string? | c: int?\n1 | 2 |")
    assert str(found.schema) == "a: float64, b: string?, c: int64?"
    assert found.rows == ((1.0, "2", None),)
    assert str(table("a: int | b: float?").schema) == "a: int64, b: float64?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least a header"),
        ("a | b\n1", "row 1 of the table has 1 cells, the header 2: 1"),
        ("a: number\n1", "is not a type plait knows"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        table(text)


def test_a_null_where_the_header_says_there_is_none() -> None:
    with pytest.raises(ValueError, match='column "a": expected int64, got None'):
        table("a: int\nnull")


def test_text_is_aligned() -> None:
    text = 'auction | price | who\n1       | null  | bob\n200     | 1.5   | "1"'
    assert str(table(text)) == text


@given(data=st.data())
def test_text_read_again_is_the_same_table(data: st.DataObject) -> None:
    schema = data.draw(schemas(types=TYPES))
    made = Rows(schema, data.draw(rows(schema, max_size=8)))
    again = table(str(made))
    assert again.schema == made.schema
    assert first_difference(again.rows, made.rows) is None


def test_a_table_is_a_source() -> None:
    made = table("a\n1\n2\n3")
    reader = made.open()
    assert reader.poll(2) == [(1,), (2,)]
    assert reader.position() == 2
    assert reader.poll(2) == [(3,)]
    assert reader.poll(2) is None
    assert made.open(2).poll(9) == [(3,)]
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(table("a\n1\n2\n3")) == hash(made)
    assert len(made) == 3


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        (math.nan, -math.nan, True),
        (None, None, True),
        ([math.nan], [math.nan], True),
        ("a", "b", False),
    ],
)
def test_same_value(a: Any, b: Any, same: bool) -> None:
    assert same_value(a, b) is same


def test_story_shows_the_first_row_that_differs() -> None:
    schema = Schema.of({"k": int, "total": "int64?"})
    wanted = [(i, i) for i in range(20)]
    got = [*wanted[:11], (11, None), *wanted[12:]]
    told = story("workers=2", schema, got, wanted, "expected")
    assert told is not None
    assert told.startswith("workers=2: row 11 is the first that differs (20 rows, expected 20)")
    assert "got: 11 | null" in " ".join(told.split("\n")[1].split())
    assert "expected: 11 | 11" in " ".join(told.split("\n")[2].split())
    assert "no such row" in str(story("x", schema, got[:5], wanted, "expected"))
    assert story("x", schema, wanted, wanted, "expected") is None
