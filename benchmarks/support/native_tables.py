"""Data sets as Arrow tables, made by numpy block by block so that the work stays in the cache."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.support.draws import NumpyDraws
from plait.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BLOCK = 1 << 14
CHUNK_BLOCKS = 64
"""The table's chunks are of so many blocks: a chunk's end is the end of a batch in the engine."""


def streams(
    columns: Mapping[str, Callable[[Any, Any, Any], dict[str, Any]]],
    schemas: Mapping[str, type],
    shape: Any,
) -> dict[str, Any]:
    """All streams of a data set. `columns` has a function (draws, shape, row numbers) for each."""
    draws = NumpyDraws(shape.seed)
    return {
        stream: made(partial(columns_of, draws, shape), schemas[stream], shape.rows(stream))
        for stream, columns_of in columns.items()
    }


def made(
    columns: Callable[[Any], dict[str, Any]], schema: type, rows: int, block: int = BLOCK
) -> Any:
    """A pyarrow Table: `columns` gives the columns of the rows with these numbers."""
    import pyarrow as pa

    arrow = Schema.of(schema).to_arrow()
    chunks, batches = [], []
    for first in range(0, rows, block):
        numbers = np.arange(first, min(first + block, rows), dtype=np.int64)
        found = columns(numbers)
        arrays = [pa.array(found[field.name], field.type) for field in arrow]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=arrow))
        if len(batches) == CHUNK_BLOCKS or first + block >= rows:
            chunks.append(pa.Table.from_batches(batches, arrow).combine_chunks())
            batches = []
    return pa.concat_tables(chunks) if chunks else arrow.empty_table()
