"""Values that are Arrow streams: their rows, polls that take a part of one, and bad ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.connectors.kafka.arrow_values import ArrowValues, rows_of_value
from plait.connectors.kafka.client import Record
from plait.model.schema import Schema

SCHEMA = Schema.of({"n": int, "s": str | None})
ARROW = pa.schema({"n": pa.int32(), "s": pa.dictionary(pa.int8(), pa.string())})
WIDE = pa.schema({"n": pa.int32(), "s": pa.large_string()})
"""Of files, which have a dictionary once."""


def stream(rows: list[dict[str, Any]], *, file: bool = False, schema: Any = ARROW) -> bytes:
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_file if file else pa.ipc.new_stream
    with make(sink, schema) as writer:
        for row in rows:  # a batch each
            writer.write_batch(pa.RecordBatch.from_pylist([row], schema=schema))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def record(offset: int, value: bytes | None) -> Record:
    return Record(0, offset, 0, None, value, ())


@given(
    counts=st.lists(st.integers(0, 5), max_size=6),
    most=st.integers(1, 7),
    file=st.booleans(),
)
def test_rows_of_all_values_in_order(counts: list[int], most: int, file: bool) -> None:
    values = ArrowValues(SCHEMA)
    wanted = []
    for offset, count in enumerate(counts):
        rows = [{"n": 10 * offset + n, "s": "a" if n % 2 else None} for n in range(count)]
        wanted += [(offset, row) for row in rows]
        schema = WIDE if file else ARROW
        values.add(record(offset, stream(rows, file=file, schema=schema)), -1)
    found = []
    while values.waiting:
        first = values.waiting[0]
        records, decoded = values.take(most)
        assert (len(records) == most) or not values.waiting
        assert first.record is records[0]
        found += list(zip((r.offset for r in records), decoded.batch.to_pylist(), strict=True))
        if values.waiting:  # what a reader that goes on would skip
            part = values.waiting[0]
            assert part.taken == sum(offset == part.record.offset for offset, _ in found)
    assert found == wanted


def test_a_reader_that_goes_on_skips_rows() -> None:
    values = ArrowValues(SCHEMA)
    values.add(record(4, stream([{"n": n, "s": None} for n in range(5)])), -1, skip=3)
    assert [row["n"] for row in values.take(9)[1].batch.to_pylist()] == [3, 4]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "tombstone"),
        (b"", "no Arrow stream"),
        (b"ARROW1 not", "no Arrow stream"),
        (stream([{"n": 1, "s": None}])[:-40], "no Arrow stream"),
        (stream([{"m": 1}], schema=pa.schema({"m": pa.int64()})), 'no column "n"'),
    ],
)
def test_a_bad_value_is_one_bad_row(value: bytes | None, why: str) -> None:
    rows = rows_of_value(value, SCHEMA)
    assert rows.good.num_rows == 0
    (bad,) = rows.bad
    assert why in bad.reason


def test_a_row_that_does_not_fit_is_bad_alone() -> None:
    values = ArrowValues(SCHEMA)
    values.add(record(0, stream([{"n": 1, "s": None}, {"n": None, "s": None}])), -1)
    values.add(record(1, b"no"), -1)
    values.add(record(2, stream([{"n": 3, "s": "x"}])), -1)
    records, decoded = values.take(9)
    assert [r.offset for r in records] == [0, 0, 1, 2]
    assert decoded.numbers == [0, 3]
    assert sorted(decoded.reasons) == [1, 2]


@given(st.binary(max_size=60))
def test_any_bytes_are_rows_or_a_reason(value: bytes) -> None:
    rows_of_value(value, SCHEMA)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_stream_is_rows_or_a_reason(at: int, byte: int) -> None:
    value = bytearray(stream([{"n": 1, "s": "a"}, {"n": 2, "s": None}]))
    value[at % len(value)] = byte
    rows_of_value(bytes(value), SCHEMA)


def test_arrow_is_not_written() -> None:
    with pytest.raises(plait.JobError, match='format="arrow" is for reading'):
        plait.stream([{"n": 1}]).sink(plait.Kafka("t", format="arrow"))
