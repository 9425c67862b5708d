"""How fast a job comes to the state of its history: `plait.backfill` over Parquet files, beside
Spark's own aggregation of the same files on as many cores.

Count, sum and maximum by key, running in plait and grouped in Spark, whose first run is not
counted; and the same in windows, where plait leaves out what no window that is open can hold.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.common import (
    Options,
    budget_of,
    check_equal,
    interleave,
    millions,
    progress,
)
from benchmarks.support.spark_session import spark_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

CORES = 2
KEYS = 200_000
STEP_US = 100
FILES = 4
SCHEMA = {"key": int, "v": int, "ts": plait.Timestamp}


def make_files(folder: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(7)
    folder.mkdir()
    each = rows // FILES
    for number in range(FILES):
        times = pa.array(np.arange(number * each, (number + 1) * each) * STEP_US, pa.int64())
        table = pa.table(
            {
                "key": random.integers(0, KEYS, each),
                "v": random.integers(0, 1000, each),
                "ts": times.cast(pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, folder / f"{number:03}.parquet")


def job_of(kind: str) -> plait.Job:
    job = plait.Job(f"backfill-{kind}")
    live = job.source(plait.Items([], SCHEMA), "rows", event_time="ts").key_by("key")
    keyed = live.tumbling("1m") if kind == "windows" else live
    totals = keyed.aggregate(n=plait.count(), total=plait.sum("v"), most=plait.max("v"))
    totals.named("totals").sink(plait.Discard(), "out")
    return job


def backfill(folder: Path, kind: str, *, cut: bool, saved: Path | None = None) -> float:
    """Seconds, with the savepoint."""
    with tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        plait.backfill(
            job_of(kind),
            history={"rows": plait.Files(str(folder / "*.parquet"))},
            until={"rows": 0},
            checkpoint=name if saved is None else saved,
            cut=cut,
            workers=CORES,
            progress=False,
        )
        return time.perf_counter() - began


def grouped(spark: SparkSession, folder: Path, kind: str) -> Any:
    from pyspark.sql import functions as F

    frame = spark.read.parquet(str(folder))
    keys = [F.window("ts", "1 minute"), "key"] if kind == "windows" else ["key"]
    return frame.groupBy(*keys).agg(
        F.count("*").alias("n"), F.sum("v").alias("total"), F.max("v").alias("most")
    )


def by_spark(spark: SparkSession, folder: Path, kind: str) -> float:
    began = time.perf_counter()
    grouped(spark, folder, kind).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def check(spark: SparkSession, folder: Path) -> None:
    """plait's state is Spark's table."""
    with tempfile.TemporaryDirectory() as name:
        backfill(folder, "running", cut=True, saved=Path(name))
        state = plait.read_state(name, "backfill-running", operator="totals", start="backfill")
    wanted = grouped(spark, folder, "running").toArrow().sort_by("key")
    state = state.sort_by("key")
    for column in ("key", "n", "total", "most"):
        check_equal(column, state[column].to_numpy(), wanted[column].to_numpy())


def run(options: Options) -> dict[str, Any]:
    rows = options.pick(2_000_000, 40_000_000)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, spark_session(CORES, "2g") as spark:
        small, folder = Path(name) / "small", Path(name) / "rows"
        progress("files and check")
        make_files(small, 400_000)
        make_files(folder, rows)
        check(spark, small)
        variants = {
            f"{kind}_{how}": run
            for kind in ("running", "windows")
            for how, run in {
                "plait": partial(backfill, folder, kind, cut=False),
                "plait_cut": partial(backfill, folder, kind, cut=True),
                "spark": partial(by_spark, spark, folder, kind),
            }.items()
            if not (kind == "running" and how == "plait_cut")
        }
        samples = interleave(variants, options.repeat(1, 5), budget_of(options), "backfill")
    for variant, sample in samples.items():
        kind, _, how = variant.partition("_")
        found.setdefault(kind, {})[f"{how}_m_rows_s"] = millions(rows / min(sample.values))
    return found


def plot(figures: Mapping[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    bars(file, [(kind, "M rows/s", {kind: dict(f)}) for kind, f in figures.items()])
