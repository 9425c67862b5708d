"""The canonical typed hash of a key, in plain Python: the twin of `key_hash.hpp`.

A key's bin is the top bits of this hash, on every node and in every language, so it may never
change: bins that were written once must still find their keys. `1`, `1.0` and `True` hash apart,
`-0.0` is `0.0`, NaN is no key, and a null is a key of its own. One fixed-width column: a
multiplication, one to one; one string or bytes column: XXH64 of its bytes; several columns: XXH64
of their encoding; no column: 0.

    >>> bin_of((7,), (Type.INT64,), 10)
    334
"""

from __future__ import annotations

import datetime
import struct
from typing import TYPE_CHECKING, Any

from plait.model.schema import Type

if TYPE_CHECKING:
    from collections.abc import Sequence

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15

SALT = {
    Type.INT64: 0,
    Type.FLOAT64: 0x910A2DEC89025CC1,
    Type.BOOL: 0x975835DE1C9756CF,
    Type.STRING: 0x1D0B14E4DB018FED,
    Type.BYTES: 0x6E73E372E2338ACB,
    Type.TIMESTAMP: 0xC91F66B33BD2B49D,
}
NULL_HASH = {
    Type.INT64: 0x93C5B3E9DFF51D03,
    Type.FLOAT64: 0x5AF3C4F0D9F0B7E1,
    Type.BOOL: 0xC2D1A86F3E917B45,
    Type.STRING: 0x2F8E07B5641DCA99,
    Type.BYTES: 0x78B94D12A5E3F06B,
    Type.TIMESTAMP: 0xE61C935A07D84F27,
}

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)


def rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & MASK


def mix(lane: int, word: int) -> int:
    return rotate((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 as published."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at + 32 <= size:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [mix(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        h = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            h = ((h ^ mix(0, lane)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + size) & MASK
    while at + 8 <= size:
        h = (rotate(h ^ mix(0, int.from_bytes(data[at : at + 8], "little")), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= size:
        word = int.from_bytes(data[at : at + 4], "little")
        h = (rotate(h ^ (word * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ (byte * P5 & MASK), 11) * P1 & MASK
    h = (h ^ (h >> 33)) * P2 & MASK
    h = (h ^ (h >> 29)) * P3 & MASK
    return h ^ (h >> 32)


def fixed_bits(value: Any, kind: Type) -> int:
    """The 64 bits of a value of a fixed-width type. A timestamp may come as microseconds."""
    match kind:
        case Type.FLOAT64:
            if value != value:
                raise ValueError("NaN cannot be a key")
            return int.from_bytes(struct.pack("<d", value + 0.0), "little")
        case Type.BOOL:
            return int(bool(value))
        case Type.TIMESTAMP if isinstance(value, datetime.datetime):
            return (value - EPOCH) // MICROSECOND & MASK
        case _:
            return int(value) & MASK


def value_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def encode_key(values: Sequence[Any], types: Sequence[Type]) -> bytes:
    """Several columns as bytes that are equal exactly when the keys are."""
    parts: list[bytes] = []
    for value, kind in zip(values, types, strict=True):
        parts.append(bytes((kind.code, value is None)))
        if value is None:
            continue
        if kind in (Type.STRING, Type.BYTES):
            text = value_bytes(value)
            parts.append(len(text).to_bytes(4, "little") + text)
        else:
            parts.append(fixed_bits(value, kind).to_bytes(8, "little"))
    return b"".join(parts)


def key_hash(values: Sequence[Any], types: Sequence[Type]) -> int:
    """The hash of a key: one value for each key column, None for null."""
    for kind in types:
        if kind not in SALT:
            raise ValueError(f"a column of type {kind.value} cannot be a key")
    if not types:
        return 0
    if len(types) > 1:
        return xxh64(encode_key(values, types))
    (value,), (kind,) = values, types
    if value is None:
        return NULL_HASH[kind]
    if kind in (Type.STRING, Type.BYTES):
        return xxh64(value_bytes(value), SALT[kind])
    return (fixed_bits(value, kind) ^ SALT[kind]) * GOLDEN & MASK


def bin_of(values: Sequence[Any], types: Sequence[Type], bin_bits: int) -> int:
    """The bin of a key: the top `bin_bits` bits of its hash."""
    return key_hash(values, types) >> (64 - bin_bits)
