"""Schemas and fields: where they come from and what is refused."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Optional

import pyarrow as pa
import pytest

from plait.errors import JobError, SchemaError
from plait.model.schema import Field, Location, Schema, Type, field_of


@dataclasses.dataclass
class Click:
    user: str
    at: datetime.datetime
    price: float | None
    tags: list[str]
    extra: Any


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (int, "x: int64"),
        (float, "x: float64"),
        (bool, "x: bool"),
        (str, "x: string"),
        (bytes, "x: bytes"),
        (datetime.datetime, "x: timestamp"),
        (object, "x: object"),
        (Any, "x: object?"),
        (int | None, "x: int64?"),
        (Optional[str], "x: string?"),  # noqa: UP045
        (int | str, "x: object"),
        (int | str | None, "x: object?"),
        (list[int], "x: object"),
        (dict, "x: object"),
        (Type.BYTES, "x: bytes"),
        ("int64", "x: int64"),
        ("int", "x: int64"),
        ("str?", "x: string?"),
        ("timestamp?", "x: timestamp?"),
        (Field("other", Type.BOOL, True), "x: bool?"),
    ],
)
def test_fields(hint: Any, expected: str) -> None:
    assert str(field_of("x", hint)) == expected


@pytest.mark.parametrize("hint", ["integer", 3, None])
def test_what_is_no_type(hint: Any) -> None:
    with pytest.raises(SchemaError, match=r'column "x".*use one of'):
        field_of("x", hint)


def test_from_a_dataclass() -> None:
    schema = Schema.of(Click)
    assert str(schema) == (
        "user: string, at: timestamp, price: float64?, tags: object, extra: object?"
    )
    assert schema.record_class is Click


def test_from_a_dict_and_from_a_schema() -> None:
    schema = Schema.of({"a": int, "b": "string?"})
    assert Schema.of(schema) is schema
    assert (schema.names, len(schema), "a" in schema, "c" in schema) == (("a", "b"), 2, True, False)
    assert (schema["b"], schema.index("b")) == (Field("b", Type.STRING, True), 1)
    with pytest.raises(KeyError):
        schema["c"]


def test_schemas_are_equal_by_their_fields() -> None:
    assert Schema.of({"a": int}) == Schema.of({"a": "int64"})
    assert hash(Schema.of({"a": int})) == hash(Schema.of({"a": "int64"}))
    assert Schema.of({"a": int}) != Schema.of({"a": int | None})


def test_arrow_there_and_back() -> None:
    schema = Schema.of(
        {"i": int, "f": "float64?", "b": bool, "s": str, "y": bytes, "t": "timestamp"}
    )
    assert Schema.of(schema.to_arrow()) == schema


def test_arrow_types_that_plait_widens() -> None:
    arrow = pa.schema(
        [
            pa.field("i", pa.int16(), nullable=False),
            ("f", pa.float32()),
            ("s", pa.large_string()),
            ("d", pa.dictionary(pa.int32(), pa.string())),
            ("t", pa.timestamp("ns", "Europe/Vienna")),
            ("l", pa.list_(pa.int64())),
        ]
    )
    assert str(Schema.of(arrow)) == (
        "i: int64, f: float64?, s: string?, d: string?, t: timestamp?, l: object?"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "at least one column"),
        ({"": int}, "a column needs a name, not ''"),
        ({3: int}, "a column needs a name, not 3"),
        (3, "cannot make a schema from 3"),
        (int, "cannot make a schema"),
        (Click("u", None, None, [], None), "cannot make a schema"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_schema(given: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.of(given)


def test_a_column_twice() -> None:
    with pytest.raises(JobError, match='"a" is there twice'):
        Schema((Field("a", Type.INT64), Field("a", Type.BOOL)))


def test_a_location_shows_the_name_of_the_file() -> None:
    assert str(Location("/home/ann/carts.py", 14)) == "carts.py:14"
