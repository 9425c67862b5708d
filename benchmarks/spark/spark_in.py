"""Rows a second from a Spark stream through a batch log into plait.

Spark makes batches of rows and writes them as the format "plait", beside the same batches into
Spark's noop sink, which is what Spark itself costs; a rate is that of the batches' `addBatch`, the
first one left out. plait then reads the log that is there. Two columns, and eight with texts.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import plait
from benchmarks.support.common import (
    CheckFailed,
    Options,
    budget_of,
    interleave,
    millions,
    progress,
    ratio,
)
from benchmarks.support.spark_session import spark_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

CORES = 2
COLUMNS = {
    "columns_2": ("value", "timestamp"),
    "columns_8": (
        "value",
        "timestamp",
        "value % 1000 AS a",
        "value * 0.5D AS b",
        "value % 2 = 0 AS c",
        "concat('user-', value % 10000) AS d",
        "concat('page/', value % 97) AS e",
        "value * 7 AS f",
    ),
}


def batches(spark: SparkSession, kind: str, rows: int) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    return source.option("numPartitions", CORES).load().selectExpr(*COLUMNS[kind])


def write(spark: SparkSession, kind: str, sink: str, rows: int, count: int, folder: Path) -> float:
    """Rows a second while batches were added."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        writer = batches(spark, kind, rows).writeStream.format(sink)
        writer = writer.option("checkpointLocation", f"{place}/query").option("most", "64GB")
        query = writer.trigger(processingTime="0 seconds").start(f"{place}/log")
        try:
            found = finished(query, count + 1)
        finally:
            query.stop()
        if sink == "plait":
            check(Path(place) / "log", rows)
    return rows / median(found[1:])


def finished(query: Any, count: int) -> list[float]:
    """Seconds that each of the first batches took to be added."""
    while True:
        seen = {p["batchId"]: p for p in query.recentProgress if p["numInputRows"]}
        if len(seen) >= count:
            return [seen[n]["durationMs"]["addBatch"] / 1e3 for n in sorted(seen)][:count]
        if query.exception() is not None:
            raise CheckFailed(str(query.exception()))
        query.awaitTermination(0.1)


def check(log: Path, rows: int) -> None:
    """Every number of the log is there once."""
    found = plait.BatchLog(log)
    number = found.end() + 1
    totals = plait.stream(found).aggregate(n=plait.count(), last=plait.max("value")).to_arrow()
    if totals.num_rows != number * rows or totals["last"][-1].as_py() != number * rows - 1:
        raise CheckFailed(f"the log has {totals.num_rows:,} rows, not {number * rows:,}")


def read(log: Path, rows: int) -> float:
    """Rows a second of plait that reads a log."""
    result = plait.run(plait.stream(plait.BatchLog(log)).sink(plait.Discard()), progress=False)
    if result.account.read != rows:
        raise CheckFailed(f"plait read {result.account.read:,} of {rows:,} rows")
    return rows / result.seconds


def run(options: Options) -> dict[str, Any]:
    rows, count = options.pick(1_000_000, 4_000_000), options.pick(3, 5)
    budget = budget_of(options)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, spark_session(CORES, "2g") as spark:
        folder = Path(name)
        for number, kind in enumerate(COLUMNS):
            log = folder / kind
            progress(f"{kind}: a log to read")
            frame = spark.range(0, rows, 1, CORES).selectExpr(
                "id AS value", "timestamp_micros(id) AS timestamp"
            )
            table = frame.selectExpr(*COLUMNS[kind]).toArrow()
            target = plait.BatchLog(log)
            for batch in range(count):
                target.append(batch, table, writer="benchmark")
            target.end()
            variants = {
                "into_log": partial(write, spark, kind, "plait", rows, count, folder),
                "into_noop": partial(write, spark, kind, "noop", rows, count, folder),
                "read_by_plait": partial(read, log, rows * count),
            }
            part = budget.part(len(COLUMNS) - number)
            samples = interleave(variants, options.repeat(1, 5), part, kind)
            found[kind] = {
                **{f"{name}_m_rows_s": millions(s.median) for name, s in samples.items()},
                "of_noop": ratio(samples["into_log"].median, samples["into_noop"].median),
            }
    return found


def plot(figures: Mapping[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    panels = [
        (kind, "M rows/s", {kind: {n: v for n, v in f.items() if n.endswith("_s")}})
        for kind, f in figures.items()
    ]
    bars(file, panels)
