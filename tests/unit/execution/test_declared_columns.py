"""A function gets what was declared, from every source and on every route; sinks give it back."""

from __future__ import annotations

import datetime
import enum
import json
import uuid
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import col
from plait.testing import sequential
from plait.testing.check import compare_letters, rows_of_arrow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    EntryPoint = Callable[..., plait.Result]

SETTINGS: dict[str, Any] = {"epoch_records": 8, "bin_bits": 4}
ROWS = 40


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Item:
    name: str
    price: Decimal
    day: datetime.date


@dataclass
class Order:
    id: uuid.UUID
    size: Size
    items: list[Item]
    total: Decimal | None
    notes: dict[str, list[int]]
    n: int


@dataclass
class Line:
    id: uuid.UUID
    size: Size
    day: datetime.date
    price: Decimal | None


def order(n: int) -> Order:
    items = [Item(f"item {i}", Decimal(i) / 4, datetime.date(2024, 3, 1 + i)) for i in range(n % 3)]
    total = None if n % 4 == 0 else Decimal(f"12345678901234567890.{n:03}")
    return Order(uuid.UUID(int=n), (Size.SMALL, Size.LARGE)[n % 2], items, total, {"n": [n]}, n)


def as_dict(one: Order) -> dict[str, Any]:
    return {
        "id": str(one.id),
        "size": one.size.value,
        "items": [
            {"name": item.name, "price": str(item.price), "day": item.day.isoformat()}
            for item in one.items
        ],
        "total": None if one.total is None else str(one.total),
        "notes": one.notes,
        "n": one.n,
    }


ORDERS = [order(n) for n in range(ROWS)]


def checked(one: Order) -> Order:
    """Fails unless every value has its declared type."""
    kinds = (uuid.UUID, Size, list, Decimal | None, dict, int)
    values = (one.id, one.size, one.items, one.total, one.notes, one.n)
    for value, kind in zip(values, kinds, strict=True):
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is not {kind}")
    for item in one.items:
        if not isinstance(item, Item) or type(item.day) is not datetime.date:
            raise TypeError(f"{item!r} is not as declared")
    return replace(one, n=one.n + 1)


def as_plain(one: Order) -> Order:
    return as_dict(one)  # type: ignore[return-value]


async def checked_later(one: Order) -> Order:
    return checked(one)


def jsonl(folder: Path) -> plait.Files:
    """Prices and totals are numbers in this file, with more digits than a float has."""
    path = folder / "orders.jsonl"
    text = "".join(json.dumps(as_dict(one)) + "\n" for one in ORDERS)
    for one in ORDERS:
        for number in (one.total, *(item.price for item in one.items)):
            text = text.replace(f'"{number}"', f"{number}")
    path.write_text(text)
    return plait.Files(path, schema=Order)


def parquet(folder: Path) -> plait.Files:
    rows = [as_dict(one) | {"notes": None} for one in ORDERS]
    for row, one in zip(rows, ORDERS, strict=True):
        row["items"] = [vars(item) for item in one.items]
        row["notes"] = one.notes
    pq.write_table(pa.Table.from_pylist(rows), folder / "orders.parquet")
    return plait.Files(folder / "orders.parquet", schema=Order)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "dicts": lambda _: plait.Items([as_dict(one) for one in ORDERS], schema=Order),
    "objects": lambda _: plait.Items(ORDERS),
    "jsonl": jsonl,
    "parquet": parquet,
}
JOBS: dict[str, Callable[[Any], Any]] = {
    "as they come": lambda s: s,
    "map": lambda s: s.map(checked),
    "map of plain values": lambda s: s.map(as_plain).map(checked),
    "map_async": lambda s: s.map_async(checked_later),
    "behind a key": lambda s: (
        s.with_columns(n=col("n") + 1).key_by("n").stateful(0, lambda t, r: (t + 1, checked(r)))
    ),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", JOBS)
def test_a_job(entry_point: EntryPoint, tmp_path: Path, name: str, source: str) -> None:
    job = plait.Job("declared")
    read = job.source(SOURCES[source](tmp_path), name="given")
    JOBS[name](read).sink(plait.Collect(), name="out")
    wanted = sequential(job.graph(), epoch_records=SETTINGS["epoch_records"])
    result = entry_point(job, **SETTINGS)
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    first = tuple(vars(ORDERS[3]).values())[:-1]
    assert wanted.outputs["out"][3][:-1] == first


@pytest.mark.parametrize("source", SOURCES)
def test_json_lines_there_and_back(entry_point: EntryPoint, tmp_path: Path, source: str) -> None:
    job = plait.Job("there")
    path = tmp_path / "out.jsonl"
    job.source(SOURCES[source](tmp_path)).filter(col("n") >= 0).sink(plait.Files(path))
    entry_point(job, **SETTINGS)
    assert plait.stream(plait.Files(path, schema=Order)).collect() == ORDERS


def test_a_value_that_is_not_as_declared_fails_its_record(entry_point: EntryPoint) -> None:
    def wrong(one: Order) -> Order:
        size: Any = "huge" if one.n % 7 == 3 else one.size
        return replace(one, size=size)

    job = plait.Job("wrong")
    read = job.source(plait.Items(ORDERS), name="given")
    read.map(wrong, on_error="dead_letter").sink(plait.Collect(), name="out")
    wanted = sequential(job.graph(), epoch_records=SETTINGS["epoch_records"])
    result = entry_point(job, **SETTINGS)
    compare_letters("dead letters", result.dead_letters, wanted.dead_letters)
    words = "column \"size\": expected Size, got 'huge' (str); its values are 'small', 'large'"
    assert {letter.error for letter in result.dead_letters} == {words}
    assert [letter.row for letter in result.dead_letters] == [4, 11, 18, 25, 32, 39]


def test_texts_of_csv_become_what_was_declared(tmp_path: Path) -> None:
    path = tmp_path / "lines.csv"
    path.write_text(
        f"id,size,day,price\n{uuid.UUID(int=3)},large,2024-03-01,1.10\n{ORDERS[1].id},small,2024-03-02,\n"
    )
    assert plait.stream(plait.Files(path, schema=Line)).collect() == [
        Line(uuid.UUID(int=3), Size.LARGE, datetime.date(2024, 3, 1), Decimal("1.10")),
        Line(ORDERS[1].id, Size.SMALL, datetime.date(2024, 3, 2), None),
    ]


def test_what_a_file_cannot_hold_is_refused_when_the_job_is_built(tmp_path: Path) -> None:
    with pytest.raises(plait.SinkError, match=r'sink at .*"id" is object, which csv cannot hold'):
        plait.stream(ORDERS).sink(plait.Files(tmp_path / "out.csv"))
    anything = plait.stream(plait.Items([{"id": 1}], schema={"id": object}))
    with pytest.raises(plait.SinkError, match=r'sink at .*"id" is object, which parquet cannot ho'):
        anything.sink(plait.Files(tmp_path / "out.parquet"))
    keyed = plait.stream(plait.Items([{"a": {1: 2}}], schema={"a": dict[int, int]}))
    with pytest.raises(plait.SinkError, match=r'"a" cannot be written as jsonl: the keys of dict'):
        keyed.sink(plait.Files(tmp_path / "out.jsonl"))
    with pytest.raises(plait.SourceError, match=r'source at .*"items": a CSV file has no objects'):
        plait.stream(plait.Files(tmp_path / "orders.csv", schema=Order))
