"""Items and tables as sources: inference, what does not fit, positions."""

from __future__ import annotations

import datetime
import json
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.connectors.columns import cut_chunks, infer, to_batch
from plait.connectors.memory_sources import Items, Table
from plait.errors import SchemaError, SourceError
from plait.model.records import records_of
from plait.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.connectors.base import Source

NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)


@dataclass
class Click:
    user: str
    price: float | None


class Point(NamedTuple):
    x: int
    y: float


def rows(source: Source, position: Any = None, at_once: int = 7) -> list[dict[str, Any]]:
    reader = source.open(position)
    found: list[dict[str, Any]] = []
    while (batch := reader.poll(at_once)) is not None:
        assert 0 < batch.num_rows <= at_once
        assert batch.schema == source.schema.to_arrow()
        found += batch.to_pylist()
    assert reader.poll(at_once) is None
    reader.close()
    return found


@pytest.mark.parametrize(
    ("records", "schema"),
    [
        ([{"a": 1, "b": "x"}], "a: int64, b: string"),
        ([{"a": 1}, {"a": 2.5}], "a: float64"),
        ([{"a": 1}, {"a": None}], "a: int64?"),
        ([{"a": 1}, {"b": 2}], "a: int64?, b: int64?"),
        ([{"a": 1}, {"a": "x"}], "a: object"),
        ([{"a": True}, {"a": 1}], "a: object"),
        ([{"a": None}], "a: object?"),
        ([{"a": [1]}], "a: object"),
        ([{"a": NOON, "b": b"x", "c": False}], "a: timestamp, b: bytes, c: bool"),
        ([Click("ann", 1.0)], "user: string, price: float64?"),
        ([Point(1, 2.0)], "x: int64, y: float64"),
        ([(1, "x")], "c0: int64, c1: string"),
        ([1, 2, None], "value: int64?"),
        ([np.int32(1), np.int64(2)], "value: int64"),
        (["a"], "value: string"),
    ],
)
def test_the_schema_of_the_first_records(records: list[Any], schema: str) -> None:
    assert str(Items(records).schema) == schema


def test_no_item_of_an_iterator_is_lost() -> None:
    source = Items(iter(range(2500)))
    assert str(source.schema) == "value: int64"
    assert [row["value"] for row in rows(source)] == list(range(2500))


def test_an_iterator_is_read_once() -> None:
    source = Items(iter([1, 2]))
    rows(source)
    with pytest.raises(SourceError, match="can be read once"):
        source.open()


def test_an_iterator_cannot_go_on_at_a_position() -> None:
    with pytest.raises(SourceError, match="from its start"):
        Items(iter([1, 2])).open(1)


def test_a_function_is_called_for_each_reading() -> None:
    def numbers() -> Iterator[int]:
        yield from range(10)

    source = Items(numbers)
    assert rows(source) == rows(source)
    assert [row["value"] for row in rows(source, position=8)] == [8, 9]


@given(st.integers(0, 30), st.integers(1, 9))
def test_a_reader_goes_on_at_the_position_of_another(polls: int, at_once: int) -> None:
    source = Items(list(range(40)))
    reader = source.open()
    before = [b for _ in range(polls) if (b := reader.poll(at_once)) is not None]
    read = [value for b in before for value in b.column(0).to_pylist()]
    assert read + [row["value"] for row in rows(source, reader.position())] == list(range(40))


def test_a_position_behind_the_end_is_told() -> None:
    with pytest.raises(SourceError, match="after record 5 but has 2 now"):
        Items([1, 2]).open(5)


def test_nothing_without_a_schema() -> None:
    with pytest.raises(SourceError, match=r"name the columns: plait.Items"):
        _ = Items([], label="none").schema
    assert rows(Items([], schema={"a": int})) == []


def test_a_source_with_a_schema_is_not_touched_before_it_is_opened() -> None:
    def never() -> Iterator[int]:
        raise AssertionError

    assert Items(never, schema={"value": int}).schema.names == ("value",)


def test_what_is_no_iterable_is_refused() -> None:
    wrong: Any = 5
    with pytest.raises(SourceError, match="neither an iterable nor a function"):
        Items(wrong)


@pytest.mark.parametrize(
    ("record", "schema", "said"),
    [
        ({"a": "x"}, {"a": int}, 'record 2, column "a": expected int64, got'),
        ({"a": 1.5}, {"a": int}, "expected int64"),
        ({"a": True}, {"a": int}, "expected int64"),
        ({"a": 2**63}, {"a": int}, "beyond 64 bits"),
        ({"a": None}, {"a": int}, "got None"),
        ({}, {"a": int}, 'column "a": missing'),
        ({"a": 1, "b": 1}, {"a": int}, 'record 2: "b" is not a column; the columns are a'),
        ({"a": datetime.datetime(2024, 1, 1)}, {"a": datetime.datetime}, "without a time zone"),  # noqa: DTZ001
        ({"a": "\ud800"}, {"a": str}, "surrogate"),
        ({"a": lambda: 0}, {"a": object}, "cannot be pickled"),
        ((1, 2, 3), {"a": int}, "record 2: expected 1 values"),
        (7, {"a": int, "b": int}, "expected a record with the columns a, b"),
    ],
)
def test_what_does_not_fit_is_named(record: Any, schema: Any, said: str) -> None:
    good: dict[str, Any] = dict.fromkeys(schema, 1)
    if schema["a"] is not int:
        good = record
    with pytest.raises(SourceError) as caught:
        to_batch([good, record] if good is not record else [record], Schema.of(schema))
    assert said in str(caught.value)


def test_a_misfit_after_the_first_records_says_where_the_schema_came_from() -> None:
    source = Items([{"a": 1}] * 1500 + [{"a": "x"}], label="clicks")
    with pytest.raises(SourceError, match=r"Items clicks: record 1,501, .*first 1,000 records"):
        rows(source)


def test_a_new_key_after_the_first_records_is_not_dropped() -> None:
    with pytest.raises(SourceError, match='record 1,001: "b" is not a column; the columns are a'):
        rows(Items([{"a": 1}] * 1000 + [{"a": 1, "b": 2}]))


def test_a_key_outside_a_given_schema_is_not_dropped() -> None:
    with pytest.raises(SourceError, match='record 2: "b" is not a column; the columns are a'):
        rows(Items([{"a": 1}, {"a": 1, "b": 2}], schema={"a": int}))


def test_a_given_schema_lets_a_record_leave_out_what_may_be_null() -> None:
    source = Items([{"a": 1}, {"a": 2, "b": 3}], schema={"a": int, "b": int | None})
    assert rows(source) == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


def test_records_are_numbered_from_where_a_reader_is() -> None:
    with pytest.raises(SourceError, match='record 4,098, column "a"'):
        to_batch([{"a": 1}, {"a": "x"}], Schema.of({"a": int}), 4096)


def test_a_key_that_is_no_name() -> None:
    with pytest.raises(SchemaError, match="keys must be column names"):
        infer([{1: 2}])


def test_records_come_back_as_they_were() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    record = {"i": 1, "f": 2, "s": "ü", "b": b"\0", "t": NOON.astimezone(zone), "o": {"x": [1]}}
    schema = Schema.of(
        {"i": int, "f": float, "s": str, "b": bytes, "t": datetime.datetime, "o": object}
    )
    (back,) = records_of(to_batch([record], schema), schema)
    assert (back.i, back.f, back.s, back.b, back.t, back.o) == tuple(record.values())


def test_a_table_in_canonical_types_is_not_copied() -> None:
    table = pa.table({"a": pa.array([1, 2], pa.int64())})
    assert Table(table).arrow().column("a").chunk(0).buffers()[1].address == (
        table.column("a").chunk(0).buffers()[1].address
    )


def test_a_table_is_read_in_slices_and_from_a_position() -> None:
    source = Table(pa.table({"a": list(range(20))}), rate_per_s=5)
    assert source.rate_per_s == 5
    assert [row["a"] for row in rows(source)] == list(range(20))
    assert [row["a"] for row in rows(source, 18)] == [18, 19]
    with pytest.raises(SourceError, match="row 21"):
        source.open(21)


def test_foreign_types_become_plaits() -> None:
    source = Table(
        pa.table(
            {
                "small": pa.array([1, None], pa.uint8()),
                "half": pa.array([1.5, 2], pa.float32()),
                "big": pa.array(["a", "b"], pa.large_string()),
                "words": pa.array(["x", "y"]).dictionary_encode(),
                "day": pa.array([datetime.date(2024, 5, 1)] * 2),
                "nano": pa.array([1_001, -2_999], pa.timestamp("ns")),
                "list": pa.array([[1], None]),
            }
        ),
        rounding="down",
    )
    assert [field.type.value for field in source.schema] == [
        "int64", "float64", "string", "string", "timestamp", "timestamp", "object",
    ]  # fmt: skip
    second = rows(source)[1]
    assert (second["small"], second["half"], second["big"], second["words"]) == (None, 2, "b", "y")
    assert second["nano"].microsecond == 999_997
    assert second["list"] is None
    assert pickle.loads(rows(source)[0]["list"]) == [1]


def test_times_finer_than_a_microsecond_are_told() -> None:
    exact = pa.table({"t": pa.array([None, 5_000], pa.timestamp("ns", "UTC"))})
    assert rows(Table(exact))[1]["t"].microsecond == 5
    finer = pa.table({"t": pa.array([5_000, -1, 7], pa.timestamp("ns"))})
    told = 'column "t": 2 times are finer .* the first is -1 ns since 1970; .*rounding="down"'
    with pytest.raises(SourceError, match=told):
        Table(finer)
    with pytest.raises(SourceError, match=told):
        Table(finer.set_column(0, "t", finer.column("t").dictionary_encode()))
    with pytest.raises(SourceError, match="rounding is 'up'"):
        Table(exact, rounding="up")  # type: ignore[arg-type]


def test_long_texts_are_cut_into_chunks() -> None:
    texts = pa.chunked_array([["a" * 60, "b" * 30, None, "c" * 30], ["d"]], pa.large_string())
    cut = cut_chunks(texts, 100)
    assert [len(chunk) for chunk in cut.chunks] == [1, 1, 2, 1]
    assert cut.to_pylist() == texts.to_pylist()


def test_a_number_that_does_not_fit_is_told() -> None:
    with pytest.raises(SourceError, match='column "a": uint64 to int64'):
        Table(pa.table({"a": pa.array([2**63], pa.uint64())}))


def test_pandas_and_polars() -> None:
    frame = pd.DataFrame({"a": [1, 2], "s": ["x", None]})
    assert rows(Table(frame)) == [{"a": 1, "s": "x"}, {"a": 2, "s": None}]
    assert Table(frame[frame.a > 1]).schema.names == ("a", "s")
    assert Table(frame.set_index("a")).schema.names == ("a", "s")
    words = pl.DataFrame({"a": [1, 2], "s": ["x", None]}, schema_overrides={"s": pl.Categorical})
    assert rows(Table(words)) == [{"a": 1, "s": "x"}, {"a": 2, "s": None}]


class Unreadable:
    """Has the interface of a table, and does not keep to it."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise TypeError("out of order")


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(SourceError, match="is not a table"):
        Table([1])
    with pytest.raises(SourceError, match="cannot be read as a table"):
        Table(Unreadable())
    with pytest.raises(SourceError, match="must be above 0"):
        Table(pa.table({"a": [1]}), rate_per_s=0)


@pytest.mark.parametrize("kind", ["list", "table"])
def test_a_position_is_of_this_data(kind: str) -> None:
    """Other data than the run before had is refused; the same, in another process, is not."""

    def source(count: int, name: str = "a") -> Source:
        records = [{name: n} for n in range(count)]
        return Items(records) if kind == "list" else Table(pa.Table.from_pylist(records))

    reader = source(20).open()
    reader.poll(8)
    position = json.loads(json.dumps(reader.position()))
    assert position["row"] == 8
    assert position == source(20).position_at(8)
    assert [row["a"] for row in rows(source(20), position)] == list(range(8, 20))
    with pytest.raises(SourceError, match=r"after record 8, but .*: 20 records then, 21 now"):
        source(21).open(position)
    with pytest.raises(SourceError, match=r"after record 8, but its columns are not those"):
        source(20, "b").open(position)


def test_which_sources_can_be_read_again() -> None:
    assert Items([1, 2]).replayable
    assert Items(lambda: iter([1, 2])).replayable
    assert Table(pa.table({"a": [1]})).replayable
    assert not Items(iter([1, 2])).replayable


def test_the_position_of_a_function_has_no_length() -> None:
    source = Items(lambda: iter(range(10)))
    reader = source.open()
    reader.poll(4)
    assert reader.position()["rows"] is None
    assert [row["value"] for row in rows(source, reader.position())] == [4, 5, 6, 7, 8, 9]
