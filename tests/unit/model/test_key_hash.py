"""The key hash may never change: golden vectors, the published XXH64, and the native twin."""

from __future__ import annotations

import datetime
import math
import random
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from plait.model.key_hash import bin_of, key_hash, xxh64
from plait.model.schema import Field, Schema, Type
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._state import KeyedStates

INT, F, B, S, Y, T = (
    Type.INT64,
    Type.FLOAT64,
    Type.BOOL,
    Type.STRING,
    Type.BYTES,
    Type.TIMESTAMP,
)


def at(microseconds: int) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(microseconds=microseconds)


GOLDEN: list[tuple[tuple[Any, ...], tuple[Type, ...], int]] = [
    ((), (), 0x0000000000000000),
    ((0,), (INT,), 0x0000000000000000),
    ((1,), (INT,), 0x9E3779B97F4A7C15),
    ((-1,), (INT,), 0x61C8864680B583EB),
    ((2**63 - 1,), (INT,), 0xE1C8864680B583EB),
    ((0.0,), (F,), 0x9E6F5DEFF0E917D5),
    ((-0.0,), (F,), 0x9E6F5DEFF0E917D5),
    ((1.0,), (F,), 0x531F5DEFF0E917D5),
    ((math.inf,), (F,), 0x931F5DEFF0E917D5),
    ((False,), (B,), 0x8095EB786F4C62FB),
    ((True,), (B,), 0xE25E71BEF001E6E6),
    ((at(1),), (T,), 0x37F550EB90DC60CC),
    (("",), (S,), 0x3AA22BBF85A70231),
    (("plait",), (S,), 0xF261E8BA4B9686EC),
    (("ü" * 40,), (S,), 0xA93ED13B62605D6E),
    ((b"",), (Y,), 0x19238967068362DF),
    ((b"plait",), (Y,), 0x1E60C50754E5789A),
    ((None,), (INT,), 0x93C5B3E9DFF51D03),
    ((None,), (F,), 0x5AF3C4F0D9F0B7E1),
    ((None,), (B,), 0xC2D1A86F3E917B45),
    ((None,), (T,), 0xE61C935A07D84F27),
    ((None,), (S,), 0x2F8E07B5641DCA99),
    ((None,), (Y,), 0x78B94D12A5E3F06B),
    ((1, "a"), (INT, S), 0x2BBABA42A4B32CBA),
    ((1, None), (INT, S), 0x7C1252463724BF89),
    ((None, None), (INT, S), 0xC072EBFBA88EBFA6),
    (("a", "bc"), (S, S), 0xC1986F0ED16D734C),
    (("ab", "c"), (S, S), 0xFA6935AA12159999),
    ((1, 2), (INT, INT), 0x002DC9EF3737C90F),
    ((1.5, True, b"x", at(1_767_225_600_000_000)), (F, B, Y, T), 0xBE36FCEEF60AEA0D),
]


def native_hashes(rows: list[tuple[Any, ...]], types: tuple[Type, ...]) -> list[int]:
    fields = [Field(f"k{i}", kind, nullable=True) for i, kind in enumerate(types)]
    schema = Schema((*fields, Field("v", Type.INT64)))
    columns = [[row[i] for row in rows] for i in range(len(types))] + [[0] * len(rows)]
    arrow = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema.to_arrow(), strict=True)],
        schema=schema.to_arrow(),
    )
    states = KeyedStates(list(enumerate(types)), [], bin_bits=10, lane_bits=0)
    return states.hashes(NativeBatch.from_arrow(arrow, schema))


@pytest.mark.parametrize(("values", "types", "expected"), GOLDEN)
def test_golden_vectors(values: tuple[Any, ...], types: tuple[Type, ...], expected: int) -> None:
    assert key_hash(values, types) == expected
    assert native_hashes([values], types) == [expected]


def test_known_xxh64() -> None:
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"abc") == 0x44BC2CF5AD770999


def test_xxh64_is_the_published_one_at_every_length() -> None:
    draw = random.Random(1)
    for size in range(130):
        data, seed = draw.randbytes(size), draw.getrandbits(64)
        assert xxh64(data, seed) == xxhash.xxh64_intdigest(data, seed)
        assert native_hashes([(data,)], (Y,)) == [key_hash((data,), (Y,))]


def test_types_hash_apart_and_zeros_together() -> None:
    apart = [key_hash((value,), (kind,)) for value, kind in [(1, INT), (1.0, F), (True, B), (1, T)]]
    assert len(set(apart)) == 4
    assert key_hash(("a",), (S,)) != key_hash((b"a",), (Y,))
    assert key_hash((-0.0,), (F,)) == key_hash((0.0,), (F,))
    assert key_hash((-0.0, 1), (F, INT)) == key_hash((0.0, 1), (F, INT))


def test_what_is_no_key_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN cannot be a key"):
        key_hash((math.nan,), (F,))
    with pytest.raises(ValueError, match="type object cannot be a key"):
        key_hash((1,), (Type.OBJECT,))


def test_timestamps_come_as_datetimes_or_microseconds() -> None:
    for us in (-(10**15), -1, 0, 1, 1_767_225_600_123_456):
        assert key_hash((at(us),), (T,)) == key_hash((us,), (T,))


def test_bins_are_the_top_bits() -> None:
    assert bin_of((1,), (INT,), 0) == 0
    assert bin_of((1,), (INT,), 4) == 0x9
    assert bin_of((1,), (INT,), 12) == 0x9E3
