"""Rows a second from plait through a batch log into a Spark stream.

plait writes a log of batches; Spark reads it as the format "plait", into its noop sink, until
nothing is left (`availableNow`). Two columns.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plait
from benchmarks.support.common import (
    CheckFailed,
    Options,
    budget_of,
    check_equal,
    interleave,
    millions,
    progress,
    replayed,
)
from benchmarks.support.spark_session import spark_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

CORES = 2
COPIES = 4


def write(table: Any, folder: Path) -> float:
    """Rows a second of plait that writes a log."""
    rows = COPIES * int(table.num_rows)
    source = plait.Table(replayed({n: table[n] for n in table.column_names}, rows))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        began = time.perf_counter()
        job = plait.stream(source).sink(plait.BatchLog(f"{place}/log"))
        plait.run(job, progress=False)
        return rows / (time.perf_counter() - began)


def read(spark: SparkSession, log: Path, rows: int) -> float:
    """Rows a second of Spark while it added its batches."""
    with tempfile.TemporaryDirectory() as saved:
        frame = spark.readStream.format("plait").option("maxBatches", 4).load(str(log))
        writer = frame.writeStream.format("noop").option("checkpointLocation", saved)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        done = [p for p in query.recentProgress if p["numInputRows"]]
    if sum(p["numInputRows"] for p in done) != rows:
        raise CheckFailed(f"Spark read {sum(p['numInputRows'] for p in done):,} of {rows:,} rows")
    seconds: float = sum(p["durationMs"]["addBatch"] / 1e3 for p in done)
    return rows / seconds


def run(options: Options) -> dict[str, Any]:
    rows, batches = options.pick(1_000_000, 4_000_000), options.pick(8, 16)
    with tempfile.TemporaryDirectory() as name, spark_session(CORES, "2g") as spark:
        folder = Path(name)
        progress("a log to read")
        log = plait.BatchLog(folder / "log")
        frame = spark.range(rows).selectExpr("id", "timestamp_micros(id) AS ts")
        table = frame.toArrow()
        for batch in range(batches):
            log.append(batch, table, writer="benchmark")
        log.end()
        got = spark.read.format("plait").load(str(folder / "log")).selectExpr("sum(id)").collect()
        check_equal("sum", got[0][0], batches * rows * (rows - 1) // 2)
        variants = {
            "into_log": partial(write, table, folder),
            "read_by_spark": partial(read, spark, folder / "log", rows * batches),
        }
        samples = interleave(variants, options.repeat(2, 5), budget_of(options), "spark_out")
    return {f"{name}_m_rows_s": millions(sample.median) for name, sample in samples.items()}


def plot(figures: Mapping[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    bars(file, [("through the log", "M rows/s", {"columns_2": dict(figures)})])
