"""Values of declared types: what is converted, what is refused, and what JSON can hold."""

from __future__ import annotations

import datetime
import enum
import json
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import numpy as np
import pytest

from plait.errors import SchemaError
from plait.model.declared_json import (
    is_written_as_text,
    json_values_of,
    to_json_value,
    why_not_json,
)
from plait.model.declared_types import as_declared
from plait.model.records import value_of
from plait.model.schema import Field, Schema, field_of

DAY = datetime.date(2024, 3, 1)
NOON = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
ID = uuid.UUID(int=7)


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Place(NamedTuple):
    x: float
    y: float


class Options(TypedDict):
    deep: bool
    day: datetime.date


@dataclass
class Item:
    name: str
    price: Decimal
    size: Size = Size.SMALL


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


class Own:
    pass


UserId = NewType("UserId", int)
OWN = Own()

GOOD: list[tuple[Any, Any, Any]] = [
    (Decimal, "1.10", Decimal("1.10")),
    (Decimal, 3, Decimal(3)),
    (datetime.date, "2024-03-01", DAY),
    (datetime.date, DAY, DAY),
    (datetime.time, "12:30", datetime.time(12, 30)),
    (uuid.UUID, str(ID), ID),
    (Size, "large", Size.LARGE),
    (Size, Size.LARGE, Size.LARGE),
    (list[int], (1, np.int64(2)), [1, 2]),
    (list[int], [2**70], [2**70]),
    (list, (1, "x"), [1, "x"]),
    (Sequence[float], [1, 2.5], [1.0, 2.5]),
    (set[str], ["a", "b"], {"a", "b"}),
    (frozenset[int], [1], frozenset({1})),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
    (dict[str, datetime.date], {"a": "2024-03-01"}, {"a": DAY}),
    (Mapping[str, int], {"a": 1}, {"a": 1}),
    (list[datetime.datetime], ["2024-03-01T12:00:00Z", NOON], [NOON, NOON]),
    (Item, {"name": "tea", "price": "2"}, Item("tea", Decimal(2))),
    (list[Item], [Item("x", Decimal(1))], [Item("x", Decimal(1))]),
    (Place, [1, 2.5], Place(1.0, 2.5)),
    (Place, {"x": 1, "y": 2}, Place(1.0, 2.0)),
    (Options, {"deep": True, "day": "2024-03-01"}, {"deep": True, "day": DAY}),
    (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(1, [Tree(2)])),
    (Literal["a", 3], 3, 3),
    (int | datetime.date, "2024-03-01", DAY),
    (int | str | None, None, None),
    (Annotated[list[int], "marked"], [1], [1]),
    (list[UserId], [1], [1]),
    (list[Any], [1, "x"], [1, "x"]),
    (list[float | None], [None, 1, "NaN"][:2], [None, 1.0]),
    (Own, OWN, OWN),
]


@pytest.mark.parametrize(("hint", "given", "kept"), GOOD)
def test_a_value_becomes_what_was_declared(hint: Any, given: Any, kept: Any) -> None:
    value = as_declared(given, hint)
    assert value == kept
    assert type(value) is type(kept)
    assert value_of(given, field_of("x", hint)) == kept if given is not None else True


BAD: list[tuple[Any, Any, str]] = [
    (Decimal, 1.1, r"expected Decimal, got 1.1 \(float\); a float is not exact"),
    (Decimal, "n/a", r"expected Decimal, got 'n/a' \(str\)$"),
    (datetime.date, NOON, "it has a time of day"),
    (datetime.date, "yesterday", "expected date, got 'yesterday'"),
    (uuid.UUID, 7, "expected UUID, got 7"),
    (Size, "huge", "its values are 'small', 'large'"),
    (list[int], [1, "x"], r"expected list\[int\], got \[1, 'x'\]"),
    (list[int], [True], r"expected list\[int\]"),
    (list[int], "text", r"expected list\[int\]"),
    (list[datetime.datetime], [datetime.datetime(2024, 1, 1)], "without a time zone"),  # noqa: DTZ001
    (tuple[int, str], [1], "it must have 2 elements"),
    (Item, {"name": "tea", "price": "2", "colour": 1}, 'Item has no field "colour"'),
    (Item, {"name": "tea"}, "missing 1 required positional argument: 'price'"),
    (Item, 5, "expected Item, got 5"),
    (Place, [1, 2, 3], "expected Place"),
    (Options, {"deep": True}, 'it has no key "day"'),
    (Options, {"deep": True, "day": DAY, "x": 1}, 'it must not have the key "x"'),
    (Literal["a", 3], "b", "it must be one of 'a', 3"),
    (int | datetime.date, "x", "got 'x'"),
    (Own, 3, r"expected Own, got 3 \(int\)"),
]


@pytest.mark.parametrize(("hint", "given", "words"), BAD)
def test_what_is_not_as_declared_is_refused(hint: Any, given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        value_of(given, field_of("x", hint))
    assert str(caught.value).startswith('column "x": expected ')


@pytest.mark.parametrize(
    "hint", [object, Any, Callable[[int], int] | None, list[Any] | Any], ids=str
)
def test_what_says_nothing_is_not_checked(hint: Any) -> None:
    assert value_of(len, Field("x", field_of("x", hint).type, True)) is len


def test_a_class_inside_a_function_is_refused() -> None:
    @dataclass
    class Hidden:
        n: int

    with pytest.raises(SchemaError, match='column "a": Hidden is defined inside a function'):
        Schema.of({"a": list[Hidden]})


def test_a_field_keeps_what_was_declared_when_it_is_pickled() -> None:
    schema = pickle.loads(pickle.dumps(Schema.of({"a": list[Item], "b": int})))
    assert [one.declared for one in schema] == [list[Item], None]
    assert Schema.of({"a": list[int]}) == Schema.of({"a": object})


@pytest.mark.parametrize(("hint", "given", "kept"), GOOD)
def test_json_holds_it_or_says_why_not(hint: Any, given: Any, kept: Any) -> None:
    if why_not_json(hint) is None:
        text = json.dumps(to_json_value(kept), allow_nan=False)
        assert as_declared(json.loads(text), hint) == kept


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (dict[int, str], "the keys of dict[int, str] are not texts"),
        (list[bytes], "bytes has no form in JSON"),
        (Own, "Own has no form in JSON"),
        (list[datetime.date | str], "JSON does not say which of datetime.date | str a value is"),
        (list[Item], None),
        (Tree, None),
        (dict[str, set[uuid.UUID]], None),
        (Any, None),
    ],
)
def test_what_json_cannot_hold(hint: Any, why: str | None) -> None:
    assert why_not_json(hint) == why


def test_what_a_type_leaves_open_must_come_back_from_json() -> None:
    hint = dict[str, Any]
    assert json_values_of([{"a": [1, "x"]}, None], hint) == [{"a": [1, "x"]}, None]
    with pytest.raises(ValueError, match="would not be the same when it is read again"):
        json_values_of([{"a": DAY}], hint)
    assert json_values_of([{"a": DAY}], dict[str, datetime.date]) == [{"a": "2024-03-01"}]


def test_json_of_floats_and_sets() -> None:
    assert to_json_value([float("nan"), float("inf"), 1.5]) == ["NaN", "Infinity", 1.5]
    assert as_declared("-Infinity", list[float] | float) == float("-inf")
    assert to_json_value({"b", "a"}) == ["a", "b"]
    assert to_json_value(NOON) == "2024-03-01T12:00:00Z"


def test_what_a_cell_of_csv_can_hold() -> None:
    assert all(map(is_written_as_text, (Decimal, datetime.date, uuid.UUID, Size)))
    assert not any(map(is_written_as_text, (list[int], Item, None, object)))
