"""The rate source and the conversions of `plait.stream(x)`."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.connectors.base import Wait
from plait.connectors.convert import to_source
from plait.connectors.files import Files
from plait.connectors.memory_sources import Items, Table
from plait.connectors.rate import Rate, RateReader
from plait.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

START = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)


@given(st.integers(1, 10**9), st.integers(0, 10**12), st.integers(1, 5))
def test_times_are_exact(rate: int, first: int, count: int) -> None:
    batch = Rate(rate).arrow_slice(first, count)
    times = batch.column("ts").cast(pa.int64()).to_pylist()
    assert times == [i * 10**6 // rate for i in range(first, first + count)]


def test_a_rate_with_a_fraction() -> None:
    batch = Rate(0.5, start=START).arrow_slice(0, 3)
    assert batch.column("ts").to_pylist() == [
        START + datetime.timedelta(seconds=s) for s in (0, 2, 4)
    ]


def test_a_total_is_read_to_its_end_and_from_a_position() -> None:
    source = Rate(10, total=7)
    assert source.bounded
    reader = source.open()
    first = reader.poll(5)
    again = source.open(reader.position())
    second = again.poll(5)
    assert first.column("seq").to_pylist() + second.column("seq").to_pylist() == list(range(7))
    assert again.poll(5) is None
    assert first.schema == source.schema.to_arrow()
    assert Rate(10, total=0).open().poll(1) is None


def test_without_a_total_it_keeps_to_the_rate() -> None:
    now = 100.0
    source = Rate(10)
    assert not source.bounded
    reader = RateReader(source, 5, clock=lambda: now)
    assert reader.poll(100).column("seq").to_pylist() == [5]
    wait = reader.poll(100)
    assert isinstance(wait, Wait)
    assert wait.seconds == pytest.approx(0.1)
    now += 0.35
    assert reader.poll(2).column("seq").to_pylist() == [6, 7]
    assert reader.poll(9).column("seq").to_pylist() == [8]


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_must_be_above_zero(rate: float) -> None:
    with pytest.raises(SourceError, match="must be above 0"):
        Rate(rate)


def test_a_start_needs_a_zone() -> None:
    with pytest.raises(SourceError, match="no time zone"):
        Rate(1, start=datetime.datetime(2024, 1, 1))  # noqa: DTZ001


def test_what_a_stream_is_made_of(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    source = Rate(1)
    assert to_source(source) is source
    assert isinstance(to_source(path), Files)
    assert isinstance(to_source(str(tmp_path / "*.csv")), Files)
    assert isinstance(to_source(pa.table({"a": [1]})), Table)
    assert isinstance(to_source([1]), Items)
    assert isinstance(to_source(lambda: iter([1])), Items)
    assert isinstance(to_source(range(3)), Items)


@dataclasses.dataclass
class Bid:
    price: int


async def asynchronous() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (pd.Series([1, 2], name="price"), "price"),
        (pd.Series([1, 2]), "value"),
        (pl.Series("price", [1, 2]), "price"),
        (pl.Series([1, 2]), "value"),
        (pa.array([1, 2]), "value"),
        (pa.chunked_array([[1], [2]]), "value"),
        (np.array([1, 2]), "value"),
        ({"a": 1, "b": 2}.values(), "value"),
    ],
    ids=lambda given: type(given).__module__.split(".")[0],
)
def test_a_column_is_a_stream(column: Any, name: str) -> None:
    source = to_source(column)
    assert source.schema.names == (name,)
    batch = source.open().poll(5)
    assert batch.column(name)[0].as_py() == 1


def test_a_stream_of_nothing_needs_a_schema() -> None:
    with pytest.raises(
        SourceError, match=r"source at .*; name the columns: plait.Items\(records, sc"
    ):
        plait.stream([])
    assert plait.stream(Items([], schema={"a": int})).collect() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": 1}, "a dict is one record"),
        (b"abc", "bytes are no stream"),
        (5, "cannot be read as records"),
        (Rate, "Rate is a class"),
        ("no/such.csv", "there is no folder no"),
        ("*.nothing", "matched no file"),
        ("hello", "for a stream of texts give a list"),
        ({1, 2}, r"a set has no order, and a stream does; give a list: sorted"),
        (frozenset("ab"), "a set has no order"),
        (Bid(1), r"Bid\(price=1\) \(Bid\) is one record; give a list of them"),
        (asynchronous(), "is asynchronous; read it into a list first"),
        (np.zeros((2, 2)), "an array of 2 dimensions has no names for its columns"),
        (pl.LazyFrame({"a": [1]}), r"a lazy frame is not computed yet; give frame.collect\(\)"),
        (pd.DataFrame(), "the table has no columns"),
    ],
)
def test_what_is_no_stream(
    given: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=said):
        to_source(given)
