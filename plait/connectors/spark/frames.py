"""Spark data frames as sources of records, and results as data frames. Both ways go through Arrow
columns: no row becomes a Python object.

A batch frame is computed when `from_spark` is called, in Spark. What Spark thinks is large goes
through Parquet files, which are read as a stream and never held whole. The order of the records is
that of the frame: its partitions one after the other. A streaming frame is a query that runs as
long as the job does (`query`).

    bids = job.source(from_spark(frame, required=["ts"]), event_time="ts")
    closed = plait.to_spark(prices, spark)  # runs what makes the stream
    closed.groupBy("category").avg("price").show()
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.connectors.columns import canonical
from plait.connectors.files import Files
from plait.connectors.memory_sources import Table
from plait.connectors.spark.types import TypeOptions, plan_type
from plait.errors import SinkError, SourceError
from plait.model.records import describe
from plait.model.schema import Field, Schema, Type
from plait.results.result import Result

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from plait.connectors.base import Source
    from plait.connectors.spark.types import Decimals

LARGE_BYTES = 256 << 20
"""A frame that Spark thinks is larger, or knows nothing about, goes through files."""


def from_spark(
    frame: DataFrame,
    *,
    schema: Any = None,
    required: Sequence[str] = (),
    folder: str | os.PathLike[str] | None = None,
    log: str | os.PathLike[str] | None = None,
    trigger: str = "1s",
    order_by: str = "",
    ntz: str = "",
    decimals: Decimals = "",
    flatten: bool = False,
    options: Mapping[str, str] | None = None,
    label: str = "",
) -> Source:
    """The rows of a data frame as a source: of a batch frame all of them, of a streaming frame
    those that come while the job runs.

    Args:
        schema: the columns to read and their types, as a dataclass or a dict. Without it all
            columns are as Spark has them.
        required: columns that are never null: Spark says of most that they may be, and an event
            time may not. A null in one of them is an error.
        folder: write Parquet files here and read them, whatever the size. The folder must not be
            there yet, and it stays. Nodes on other machines need one that all of them can see.
        log: of a streaming frame: the folder of the batch log between Spark and plait. It stays,
            with the query's own checkpoint, so that the next run goes on. Without it, a temporary
            one: the job cannot have `checkpoint=`.
        trigger: of a streaming frame: the time between two batches, or "available_now": what is
            there, and then the end.
        order_by: of a streaming frame: the column that each batch is sorted by. Without it, the
            event time.
        ntz: the zone of times that have none, such as "UTC". Without it they are refused.
        decimals: what decimals become: "float" (rounded), "text", or "scaled" (a whole number,
            times 10 to the power of the scale). Without it they are refused.
        flatten: of a streaming frame: structs become columns, a_b.
        options: of a streaming frame: those of the format "plait", such as {"most": "10GB"}.
        label: its name in results and errors.

    >>> bids = plait.from_spark(frame, required=["ts"])  # doctest: +SKIP
    >>> plait.stream(bids, event_time="ts")              # doctest: +SKIP
    """
    if not hasattr(frame, "toArrow") or not hasattr(frame, "isStreaming"):
        raise SourceError(f"from_spark: {describe(frame)} is not a Spark data frame")
    given = None if schema is None else Schema.of(schema)
    types = TypeOptions(ntz=ntz, decimals=decimals, flatten=flatten, required=frozenset(required))
    types.check("from_spark")
    if frame.isStreaming:
        if folder is not None:
            raise SourceError("from_spark: folder= is for batch frames; a stream has log=")
        from plait.connectors.spark.query import stream_source

        frame = frame if given is None else frame.select(*given.names)
        return stream_source(
            frame,
            types,
            schema=given,
            log=log,
            trigger=trigger,
            order_by=order_by,
            options=options or {},
            label=label,
        )
    if log is not None:
        raise SourceError("from_spark: log= is for streaming frames; a batch frame has folder=")
    missing = [name for name in required if name not in (given.names if given else frame.columns)]
    if missing:
        raise SourceError(f'from_spark: required names no column "{missing[0]}"')
    wanted = WantedColumns(schema=given, required=frozenset(required))
    if given is not None:
        frame = frame.select(*given.names)
    frame = in_plain_types(frame, types, given)
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


def in_plain_types(frame: DataFrame, types: TypeOptions, given: Schema | None) -> DataFrame:
    """The frame without times that have no zone and without decimals, as the user wants them; they
    are refused otherwise. A declared float is wish enough for a decimal."""
    from pyspark.sql import functions as sql

    columns = []
    for field in frame.schema.jsonValue()["fields"]:
        name, kind = field["name"], field["type"]
        column = frame[f"`{name.replace('`', '``')}`"]
        wish = types
        if given is not None and given[name].type is Type.FLOAT64 and not types.decimals:
            wish = replace(types, decimals="float")
        if isinstance(kind, str) and kind.startswith(("decimal", "timestamp_ntz")):
            _, how = plan_type(kind, name, wish, "from_spark")
            match how:
                case "ntz":
                    column = sql.convert_timezone(sql.lit(wish.ntz), sql.lit("UTC"), column)
                case "float":
                    column = column.cast("double")
                case "text":
                    column = column.cast("string")
                case "scaled":
                    scale = int(kind.rstrip(")").split(",")[1])
                    column = (column * sql.lit(10**scale).cast("decimal(19,0)")).cast("bigint")
            column = column.alias(name)
        columns.append(column)
    return frame.select(*columns)


def estimated_bytes(frame: DataFrame) -> int:
    """What Spark's optimiser thinks the rows take. A client of Spark Connect is not told: there the
    rows come in one piece, unless folder= is given."""
    java = getattr(frame, "_jdf", None)
    if java is None:
        return 0
    return int(str(java.queryExecution().optimizedPlan().stats().sizeInBytes()))


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
