"""A digest of result rows that does not depend on their order: the same in every program.

A row's hash folds its values in, one by one; the digest is the number of rows and the sum of their
hashes modulo 2^64. Times are microseconds, a text counts as the CRC-32 of its UTF-8. The Flink
program has the same function in Java. Imports nothing of plait: peers run it in environments of
their own.

    >>> digest([[1, 2], ["a", "b"]]) == digest([[2, 1], ["b", "a"]])
    True
    >>> digest([[1, 2], ["a", "b"]]) == digest([[1, 2], ["b", "a"]])
    False
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FACTOR = np.uint64(0x9E3779B97F4A7C15)
HALF = np.uint64(32)


def digest(columns: Sequence[Any]) -> str:
    """Of columns of integers or texts, all of the same length."""
    rows = len(columns[0]) if columns else 0
    hashes = np.zeros(rows, np.uint64)
    for column in columns:
        hashes = (hashes ^ numbers(column)) * FACTOR
        hashes ^= hashes >> HALF
    return f"{rows}:{int(hashes.sum(dtype=np.uint64)):016x}"


def digest_of_rows(rows: Sequence[tuple[Any, ...]]) -> str:
    return digest(list(zip(*rows, strict=True)))


def digest_of_table(table: Any) -> str:
    """Of a pyarrow Table."""
    return digest([arrow_column(column) for column in table.columns])


def arrow_column(column: Any) -> Any:
    """Its values; times in Arrow must be in microseconds."""
    kind = str(column.type)
    if kind.startswith("timestamp[us"):
        column = column.cast("int64")
    return column.to_pylist() if "string" in kind else column.to_numpy()


def numbers(column: Any) -> Any:
    """The values as unsigned 64-bit integers."""
    if len(column) and isinstance(column[0], str):
        return np.fromiter(checksums(column), np.uint64, len(column))
    return np.asarray(column, np.int64).view(np.uint64)


def checksums(texts: Iterable[str]) -> Iterable[int]:
    known: dict[str, int] = {}
    for text in texts:
        if text not in known:
            known[text] = zlib.crc32(text.encode())
        yield known[text]
