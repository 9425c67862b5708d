"""A Spark data frame as a source of records.

The frame is computed when `from_spark` is called, in Spark, and comes over as Arrow columns: no row
becomes a Python object. What Spark thinks is large goes through Parquet files instead, which are
read as a stream and never held whole. The order of the records is that of the frame: its partitions
one after the other.

    bids = job.source(plait.from_spark(frame, schema=Bid), event_time="ts")
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import SourceError
from plait.files import Files
from plait.model import Schema
from plait.records import describe
from plait.sources.columns import canonical
from plait.sources.memory import Table

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame

    from plait.sources.base import Source

LARGE_BYTES = 256 << 20
"""A frame that Spark thinks is larger, or knows nothing about, goes through files."""


def from_spark(
    frame: DataFrame,
    *,
    schema: Any = None,
    folder: str | os.PathLike[str] | None = None,
    label: str = "",
) -> Source:
    """The rows of a batch data frame as a source.

    Args:
        schema: the columns to read and their types, as a dataclass or a dict. Spark says of most
            columns that they may be null; an event time may not, so give the schema where there is
            one. Without it all columns are as Spark has them.
        folder: write Parquet files here and read them, whatever the size. The folder must not be
            there yet, and it stays. Nodes on other machines need one that all of them can see.
    """
    if not hasattr(frame, "toArrow") or not hasattr(frame, "isStreaming"):
        raise SourceError(f"from_spark: {describe(frame)} is no Spark data frame")
    if frame.isStreaming:
        raise SourceError("from_spark takes a batch data frame; this one is a stream of Spark's")
    wanted = None if schema is None else Schema.of(schema)
    if wanted is not None:
        frame = frame.select(*wanted.names)
    if folder is not None:
        return files(frame, Path(folder), wanted, label)
    if estimated_bytes(frame) > LARGE_BYTES:
        return temporary_files(frame, wanted, label)
    table = frame.toArrow()
    return Table(table if wanted is None else canonical(table, wanted), label=label)


def estimated_bytes(frame: DataFrame) -> int:
    """What Spark's optimiser thinks the rows take."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))


def files(frame: DataFrame, folder: Path, schema: Schema | None, label: str) -> Files:
    frame.write.mode("errorifexists").parquet(str(folder))
    paths = sorted(folder.glob("*.parquet"))
    return Files(paths, schema=schema, label=label)


def temporary_files(frame: DataFrame, schema: Schema | None, label: str) -> Files:
    """Files that are removed when the source is no longer used, or this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="plait-spark-"))
    try:
        source = files(frame, folder / "rows", schema, label)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(source, shutil.rmtree, folder, True)
    return source
