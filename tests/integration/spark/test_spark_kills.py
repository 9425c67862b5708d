"""`kill -9` of Spark while it writes one batch log and reads another: with plait between them every
row goes through both once, in order."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.connectors.batch_log.storage import LogFolder

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PATIENCE_S = 600.0
TRIES = 5
FILES, ROWS, KEYS = 200, 20, 7
DRIVER = """
import sys, time
from pathlib import Path
from benchmarks.support.spark_session import spark_session
from plait.connectors.batch_log.storage import LogFolder

folder, what = Path(sys.argv[1]), sys.argv[2]


def write(spark, **trigger):
    frame = spark.readStream.schema("n long").option("maxFilesPerTrigger", 2)
    out = frame.parquet(str(folder / "in")).writeStream.format("plait")
    out = out.option("checkpointLocation", str(folder / "writes"))
    return (out.trigger(**trigger) if trigger else out).start(str(folder / "there"))


def read(spark, **trigger):
    frame = spark.readStream.format("plait").option("place", "true").option("maxBatches", 10)
    out = frame.load(str(folder / "back")).writeStream.format("parquet")
    out = out.option("checkpointLocation", str(folder / "reads"))
    return (out.trigger(**trigger) if trigger else out).start(str(folder / "out"))


with spark_session(cores=2, memory="512m") as spark:
    if what == "live":
        write(spark)
        while LogFolder(folder / "back").range() is None:
            time.sleep(0.01)
        read(spark)
        spark.streams.awaitAnyTermination()
    elif what == "write":
        write(spark, availableNow=True).awaitTermination()
    else:
        read(spark, availableNow=True).awaitTermination()
        frame = spark.read.parquet(str(folder / "out")).orderBy("_batch", "_row")
        frame.select("k", "n", "count").coalesce(1).write.json(str(folder / "found"))
"""


def driver(folder: Path, what: str) -> subprocess.Popen[bytes]:
    errors = (folder / "errors.txt").open("ab")
    with errors:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(folder), what],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=folder,
            stdout=errors,
            stderr=errors,
        )


def finish(folder: Path, what: str) -> None:
    """On a busy machine Spark gives up a Python process that is slow to start: then once more."""
    assert any(driver(folder, what).wait() == 0 for _ in range(TRIES)), errors_in(folder)


def errors_in(folder: Path) -> str:
    return (folder / "errors.txt").read_text(errors="replace")[-5000:]


def kill(process: subprocess.Popen[bytes]) -> None:
    """With the Java and the Python processes that it started."""
    if process.poll() is not None:
        return
    everyone = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for one in everyone:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
    psutil.wait_procs(everyone, PATIENCE_S)


def kill_in_the_middle(folder: Path, chance: random.Random) -> None:
    """When both queries have done something, anywhere in a batch."""
    end = time.monotonic() + PATIENCE_S
    written, read = last_batch(folder / "there"), batches_read(folder)
    process = driver(folder, "live")
    try:
        while last_batch(folder / "there") <= written or batches_read(folder) <= read:
            assert time.monotonic() < end, errors_in(folder)
            if process.poll() is not None:
                process = driver(folder, "live")
            time.sleep(0.01)
        time.sleep(chance.random() * 0.3)
    finally:
        kill(process)


def last_batch(log: Path) -> int:
    found = LogFolder(log).range()
    return -1 if found is None else found[1]


def batches_read(folder: Path) -> int:
    return len(list((folder / "reads" / "commits").glob("[0-9]*")))


def test_spark_is_killed_on_both_sides(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        path = tmp_path / "in" / f"{file:05d}.parquet"
        pq.write_table(pa.table({"n": list(range(file * ROWS, (file + 1) * ROWS))}), path)
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))
    job = plait.Job("between")
    rows = job.source(plait.BatchLog(tmp_path / "there", schema={"n": int}, required=["n"]))
    keyed = rows.with_columns(k=plait.col("n") % KEYS).key_by("k")
    totals = keyed.aggregate(n=plait.last("n"), count=plait.count())
    totals.sink(plait.BatchLog(tmp_path / "back"))
    saved = plait.Checkpoint(str(tmp_path / "saved"), every="100ms")
    running = plait.start(job, checkpoint=saved, workers=1)
    try:
        for _ in range(2):
            kill_in_the_middle(tmp_path, chance)
        assert last_batch(tmp_path / "there") < FILES // 2 - 1, "there is nothing left to do"
        finish(tmp_path, "write")
        plait.BatchLog(tmp_path / "there").end()
        running.wait()
    except BaseException:
        running.abort()
        with contextlib.suppress(plait.PlaitError):
            running.wait()
        raise
    plait.BatchLog(tmp_path / "back").end()
    finish(tmp_path, "read")
    (found,) = (tmp_path / "found").glob("*.json")
    lines = [json.loads(line) for line in found.read_text().splitlines()]
    assert lines == [{"k": n % KEYS, "n": n, "count": n // KEYS + 1} for n in range(FILES * ROWS)]
