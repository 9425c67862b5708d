"""The public Batch: anything with Arrow data in and out, uncopied where the layout is ours."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from plait.errors import SchemaError
from plait.model.schema import Schema, Type
from plait.node_runtime.functions.arrow_batch import Batch
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._records import Shape

UTC = datetime.UTC
NOON = datetime.datetime(2024, 3, 1, 12, tzinfo=UTC)
TABLE = pa.table(
    {
        "n": pa.array([1, 2, 3]),
        "x": pa.array([0.5, None, 2.5]),
        "ok": pa.array([True, False, None]),
        "name": pa.array(["a", None, "ccc"]),
        "raw": pa.array([b"a", b"", None]),
        "ts": pa.array([NOON, None, NOON], pa.timestamp("us", "UTC")),
    }
)


def addresses(column: Any) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in column.buffers()]


def test_a_pyarrow_table_is_shared() -> None:
    batch = Batch.from_arrow(TABLE)
    assert len(batch) == 3
    assert [field.type for field in batch.schema] == [
        Type.INT64, Type.FLOAT64, Type.BOOL, Type.STRING, Type.BYTES, Type.TIMESTAMP,
    ]  # fmt: skip
    for name in TABLE.column_names:
        assert addresses(batch.column(name)) == addresses(TABLE.column(name).chunk(0))


def test_the_capsules_share_memory_too() -> None:
    batch = Batch.from_arrow(TABLE)
    taken = pa.record_batch(batch)
    again = Batch.from_arrow(Capsule(batch))
    for name in TABLE.column_names:
        assert addresses(taken.column(name)) == addresses(batch.column(name))
        assert addresses(again.column(name)) == addresses(batch.column(name))
    assert pa.schema(batch) == TABLE.schema
    assert again == batch


class Capsule:
    """Somebody else's object that speaks the protocol, and nothing more."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.batch.__arrow_c_array__(requested_schema)


def test_the_engine_takes_it_without_a_copy() -> None:
    batch = Batch.from_arrow(TABLE)
    native = NativeBatch.from_arrow(batch.to_arrow(), batch.schema)
    back = native.to_arrow(batch.schema)
    for name in ("n", "x", "name", "raw", "ts"):
        assert addresses(back.column(name))[1:] == addresses(batch.column(name))[1:]
    assert Shape(batch.schema).rows(native) == batch.rows()


def test_numbers_and_times_of_pandas_are_shared() -> None:
    ticks = np.array(["2024-03-01T12:00:00", "2024-03-02"], "datetime64[us]")
    frame = pd.DataFrame(
        {"n": [1, 2], "x": [0.5, 1.5], "t": pd.Series(ticks).dt.tz_localize("UTC")}
    )
    batch = Batch.from_arrow(frame)
    assert [field.type for field in batch.schema] == [Type.INT64, Type.FLOAT64, Type.TIMESTAMP]
    for name in ("n", "x"):
        assert batch.column(name).buffers()[1].address == frame[name].to_numpy().ctypes.data
    values = frame["t"].to_numpy("datetime64[us]", copy=False)
    assert batch.column("t").buffers()[1].address == values.ctypes.data
    assert batch.rows()[0].t == NOON
    back = batch.to_pandas()
    back["x"] += 1  # a frame of its own
    assert back["x"].tolist() == [1.5, 2.5]
    assert batch.column("x").to_pylist() == [0.5, 1.5]


def test_numbers_and_times_of_polars_are_shared() -> None:
    frame = pl.DataFrame(
        {"n": [1, 2], "x": [0.5, 1.5], "name": ["a", "ü"], "t": [NOON, NOON]},
        schema_overrides={"t": pl.Datetime("us", "UTC")},
    )
    batch = Batch.from_arrow(frame)
    theirs = pa.table(frame)
    for name in ("n", "x", "t"):
        assert batch.column(name).buffers()[1].address == (
            theirs.column(name).chunk(0).buffers()[1].address
        )
    assert batch.rows()[1].name == "ü"
    assert batch.rows()[1].t == NOON
    back = batch.to_polars()
    assert back.equals(frame)
    assert pa.table(back).column("n").chunk(0).buffers()[1].address == (
        batch.column("n").buffers()[1].address
    )


def test_what_can_be_widened_is() -> None:
    table = pa.table(
        {
            "small": pa.array([1], pa.int8()),
            "single": pa.array([0.5], pa.float32()),
            "large": pa.array(["x"], pa.large_string()),
            "words": pa.array(["a"]).dictionary_encode(),
            "day": pa.array([datetime.date(2024, 3, 1)]),
            "naive": pa.array([datetime.datetime(2024, 3, 1)]),  # noqa: DTZ001
            "items": pa.array([[1, 2]]),
        }
    )
    (record,) = Batch.from_arrow(table).rows()
    midnight = datetime.datetime(2024, 3, 1, tzinfo=UTC)
    assert (record.small, record.single, record.large, record.words) == (1, 0.5, "x", "a")
    assert (record.day, record.naive, record.items) == (midnight, midnight, [1, 2])


def test_several_chunks_become_one() -> None:
    table = pa.concat_tables([TABLE, TABLE.slice(1)])
    assert [record.n for record in Batch.from_arrow(table).rows()] == [1, 2, 3, 2, 3]
    assert len(Batch.from_arrow(TABLE.slice(0, 0))) == 0


@pytest.mark.parametrize(
    ("table", "schema", "message"),
    [
        (
            {"n": pa.array([2**64 - 1], pa.uint64())},
            None,
            'column "n": uint64 does not become int64',
        ),
        ({"n": pa.array([1])}, {"m": int}, "expected the columns m, got n"),
        (
            {"n": pa.array([None], pa.int64())},
            {"n": int},
            "1 nulls, but the column is not nullable",
        ),
        (
            {"t": pa.array([1], pa.timestamp("ns", "UTC"))},
            None,
            "does not become timestamp",
        ),
    ],
)
def test_what_would_lose_something_is_refused(table: Any, schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Batch.from_arrow(pa.table(table), schema)


def test_what_has_no_arrow_data_is_refused() -> None:
    with pytest.raises(SchemaError, match="cannot make a batch of list"):
        Batch.from_arrow([1, 2])


def test_a_batch_never_changes() -> None:
    batch = Batch.from_arrow(TABLE)
    with pytest.raises(AttributeError, match="never changes"):
        batch.schema = Schema.of({"n": int})
    with pytest.raises(AttributeError, match="never changes"):
        del batch.schema
    with pytest.raises(KeyError, match='no column "m"; the batch has n, x'):
        batch.column("m")
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert batch != 5
    assert repr(batch).startswith("Batch(3 rows: n: int64?")
