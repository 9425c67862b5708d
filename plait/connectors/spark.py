"""Spark data frames as sources of records, and results as data frames. Both ways go through Arrow
columns: no row becomes a Python object.

A frame that is read is computed when `from_spark` is called, in Spark. What Spark thinks is
large goes through Parquet files, which are read as a stream and never held whole. The order of the
records is that of the frame: its partitions one after the other.

    bids = job.source(from_spark(frame, required=["ts"]), event_time="ts")
    closed = plait.to_spark(prices, spark)  # runs what makes the stream
    closed.groupBy("category").avg("price").show()
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.connectors.columns import canonical
from plait.connectors.files import Files
from plait.connectors.memory_sources import Table
from plait.errors import SinkError, SourceError
from plait.model.records import describe
from plait.model.schema import Field, Schema
from plait.results.result import Result

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from plait.connectors.base import Source

LARGE_BYTES = 256 << 20
"""A frame that Spark thinks is larger, or knows nothing about, goes through files."""


def from_spark(
    frame: DataFrame,
    *,
    schema: Any = None,
    required: Sequence[str] = (),
    folder: str | os.PathLike[str] | None = None,
    label: str = "",
) -> Source:
    """The rows of a batch data frame as a source.

    Args:
        schema: the columns to read and their types, as a dataclass or a dict. Without it all
            columns are as Spark has them.
        required: columns that are never null: Spark says of most that they may be, and an event
            time may not. A null in one of them is an error.
        folder: write Parquet files here and read them, whatever the size. The folder must not be
            there yet, and it stays. Nodes on other machines need one that all of them can see.
        label: its name in results and errors.

    >>> bids = plait.from_spark(frame, required=["ts"])  # doctest: +SKIP
    >>> plait.stream(bids, event_time="ts")              # doctest: +SKIP
    """
    if not hasattr(frame, "toArrow") or not hasattr(frame, "isStreaming"):
        raise SourceError(f"from_spark: {describe(frame)} is not a Spark data frame")
    if frame.isStreaming:
        raise SourceError(
            "from_spark takes a batch data frame, and this one is a stream of Spark's: it has no"
            " end that could be waited for. Read its source with plait itself, or let Spark write"
            ' the stream (frame.writeStream.format("parquet")) and read those files'
        )
    given = None if schema is None else Schema.of(schema)
    missing = [name for name in required if name not in (given.names if given else frame.columns)]
    if missing:
        raise SourceError(f'from_spark: required names no column "{missing[0]}"')
    wanted = WantedColumns(schema=given, required=frozenset(required))
    if given is not None:
        frame = frame.select(*given.names)
    if folder is not None:
        return files(frame, Path(folder), wanted, label)
    if estimated_bytes(frame) > LARGE_BYTES:
        return temporary_files(frame, wanted, label)
    table = frame.toArrow()
    return Table(canonical(table, wanted.apply(Schema.of(table.schema))), label=label)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedColumns:
    """What the user says of the columns."""

    schema: Schema | None
    required: frozenset[str]

    def apply(self, found: Schema) -> Schema:
        """The schema of the source; `found` is what Spark's data has."""
        base = self.schema or found
        fields = [
            Field(field.name, field.type, field.nullable and field.name not in self.required)
            for field in base
        ]
        return Schema(tuple(fields), base.record_class)


def estimated_bytes(frame: DataFrame) -> int:
    """What Spark's optimiser thinks the rows take."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))


def files(frame: DataFrame, folder: Path, wanted: WantedColumns, label: str) -> Files:
    frame.write.mode("errorifexists").parquet(str(folder))
    paths = sorted(folder.glob("*.parquet"))
    return Files(paths, schema=wanted.apply(Files(paths).schema), label=label)


def temporary_files(frame: DataFrame, wanted: WantedColumns, label: str) -> Files:
    """Files that are removed when the source is no longer used, or this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="plait-spark-"))
    try:
        source = files(frame, folder / "rows", wanted, label)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(source, shutil.rmtree, folder, True)
    return source


def to_spark(
    given: Any, spark: SparkSession, *, output: str | None = None, **settings: Any
) -> DataFrame:
    """A data frame of a bounded result.

    Args:
        given: a stream (what makes it is run, with `settings` as of `plait.run`), the `Result` of a
            run, or a pyarrow Table.
        output: which sink of a `Result`, if it has several; that sink must be a `Collect`.

    >>> plait.to_spark(closed, spark).groupBy("category").avg("price").show()  # doctest: +SKIP
    """
    import pyarrow as pa

    if isinstance(given, pa.Table):
        table = given
    elif isinstance(given, Result):
        table = collected_table(given, output)
    elif hasattr(given, "to_arrow"):
        table = given.to_arrow(**settings)
    else:
        raise SinkError(
            f"to_spark: {describe(given)} is neither a stream nor a result nor a pyarrow table"
        )
    return spark.createDataFrame(table)


def collected_table(result: Result, output: str | None) -> Any:
    """The table that a run gave."""
    import pyarrow as pa

    tables = {name: made for name, made in result.outputs.items() if isinstance(made, pa.Table)}
    names = ", ".join(tables) or "none"
    if output is None and len(tables) != 1:
        raise SinkError(f"to_spark: choose one with output=; collected were: {names}")
    if output is not None and output not in tables:
        raise SinkError(f'to_spark: no output "{output}" was collected; collected were: {names}')
    return next(iter(tables.values())) if output is None else tables[output]
