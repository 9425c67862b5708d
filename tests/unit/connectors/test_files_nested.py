"""Nested columns of declared types in Parquet: written as Arrow's lists and structs, and read back
as what they were; what has no Arrow type is refused when the job is built."""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Mapping  # noqa: TC003 (a field of Order)
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: float
    y: float


class Size(TypedDict):
    width: int
    unit: str


@dataclass
class Item:
    name: str
    price: Decimal
    tags: list[str] = field(default_factory=list)


@dataclass
class Order:
    number: int
    items: list[Item]
    on: datetime.date
    at: datetime.time
    seen: list[datetime.datetime]
    colour: Colour
    id: uuid.UUID
    total: Decimal | None
    notes: dict[str, list[int]]
    first: Item | None
    kinds: set[str]
    corners: tuple[Point, ...]
    size: Size
    mode: Literal["fast", "slow"] | None
    raw: list[bytes]
    truths: Mapping[str, bool]


UTC = datetime.UTC
ORDERS = [
    Order(
        number=1,
        items=[Item("tea", Decimal("1.50"), ["hot", "é"]), Item("cup", Decimal(3))],
        on=datetime.date(2024, 2, 29),
        at=datetime.time(1, 2, 3, 4),
        seen=[datetime.datetime(2024, 1, 1, tzinfo=UTC)],
        colour=Colour.RED,
        id=uuid.UUID(int=7),
        total=Decimal("-4.000000000000000001"),
        notes={"a": [1, 2], "b": []},
        first=None,
        kinds={"x", "y"},
        corners=(Point(0.5, -1.0),),
        size={"width": 3, "unit": "cm"},
        mode="fast",
        raw=[b"\x00\xff"],
        truths={"yes": True},
    ),
    Order(
        number=2,
        items=[],
        on=datetime.date(1, 1, 1),
        at=datetime.time(0),
        seen=[],
        colour=Colour.BLUE,
        id=uuid.UUID(int=8),
        total=None,
        notes={},
        first=Item("pot", Decimal("99999999999999999999")),
        kinds=set(),
        corners=(),
        size={"width": 0, "unit": ""},
        mode=None,
        raw=[],
        truths={},
    ),
]


def test_all_kinds_read_back_as_they_were(
    entry_point: Callable[..., plait.Result], tmp_path: Path
) -> None:
    path = str(tmp_path / "orders.parquet")
    entry_point(plait.stream(ORDERS).sink(plait.Files(path)).job)
    assert plait.stream(plait.Files(path, schema=Order)).collect() == ORDERS


def test_the_types_are_those_that_others_read(tmp_path: Path) -> None:
    path = str(tmp_path / "orders.parquet")
    plait.stream(ORDERS).sink(plait.Files(path)).run()
    schema = pq.read_schema(path)
    item = pa.struct(
        {"name": pa.string(), "price": pa.decimal128(38, 18), "tags": pa.list_(pa.string())}
    )
    assert schema.field("items").type.value_type.equals(item)
    assert schema.field("first").type.equals(item)
    assert schema.field("on").type == pa.date32()
    assert schema.field("at").type == pa.time64("us")
    assert schema.field("colour").type == pa.string()
    assert schema.field("notes").type.key_type == pa.string()
    table = pq.read_table(path)
    assert table.column("items")[0].as_py()[0]["price"] == Decimal("1.50")
    assert table.column("kinds")[0].as_py() == ["x", "y"]


@dataclass
class Tree:
    value: int
    left: Tree | None


@dataclass
class Holder:
    value: Any


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (dict[int, str], "the keys of .* are not texts"),
        (list[int | str], "values of .* have several types"),
        (tuple[int, str], "has no type in Arrow"),
        (Tree, "holds itself"),
        (list, "does not say what is in it"),
        (Holder, "has no type in Arrow"),
    ],
)
def test_others_are_refused_when_the_job_is_built(tmp_path: Path, declared: Any, why: str) -> None:
    stream = plait.stream(plait.Items([], schema={"n": int, "x": declared}))
    with pytest.raises(plait.SinkError, match=f'column "x" cannot be written as parquet: .*{why}'):
        stream.sink(plait.Files(str(tmp_path / "x.parquet")))


def test_a_column_that_says_nothing_of_its_values(tmp_path: Path) -> None:
    stream = plait.stream([{"x": [1, "a"]}])
    with pytest.raises(plait.SinkError, match="declare what it holds"):
        stream.sink(plait.Files(str(tmp_path / "x.parquet")))


@pytest.mark.parametrize("value", [Decimal("1e-19"), Decimal("1e21")])
def test_a_value_that_would_not_be_the_same_is_named(tmp_path: Path, value: Decimal) -> None:
    stream = plait.stream(plait.Items([{"x": value}], schema={"x": Decimal}))
    with pytest.raises(plait.SinkError, match='column "x"'):
        stream.sink(plait.Files(str(tmp_path / "x.parquet"))).run()
