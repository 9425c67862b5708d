"""Spark streams in and out through a batch log, with a real session: every value once and in the
order of the log, whatever fails in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait.connectors.batch_log.retire import tell_read
from plait.connectors.batch_log.storage import LogFolder

pytestmark = pytest.mark.integration
QUICK = (
    "test_a_streaming_frame_is_a_source",
    "test_spark_reads_what_plait_wrote",
)


def write_files(folder: Path, files: int, rows: int) -> None:
    """Files with the values 0, 1, 2, ..., one after the other by age."""
    import pyarrow.parquet as pq

    folder.mkdir()
    for file in range(files):
        values = list(range(file * rows, (file + 1) * rows))
        pq.write_table(pa.table({"n": values}), folder / f"{file:05d}.parquet")
        os.utime(folder / f"{file:05d}.parquet", (1_700_000_000 + file, 1_700_000_000 + file))


def numbers(spark: Any, folder: Path, files: int = 1) -> Any:
    stream = spark.readStream.schema("n long").option("maxFilesPerTrigger", files)
    return stream.parquet(str(folder))


def write_log(frame: Any, log: Path, saved: Path, **options: str) -> None:
    """Runs a query to its end."""
    writer = frame.writeStream.format("plait").option("checkpointLocation", str(saved))
    for name, value in options.items():
        writer = writer.option(name, value)
    query = writer.trigger(availableNow=True).start(str(log))
    query.awaitTermination()


def values_of(log: Path) -> list[int]:
    plait.BatchLog(log).end()
    return [row.n for row in plait.stream(plait.BatchLog(log)).collect()]


def test_a_streaming_frame_is_a_source(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 4, 10)
    frame = numbers(spark, tmp_path / "in")
    source = plait.from_spark(frame, log=tmp_path / "log", trigger="available_now", required=["n"])
    job = plait.Job("streams")
    job.source(source, "numbers").sink(plait.Files(tmp_path / "out.jsonl"), "out")
    result = plait.run(job, checkpoint=tmp_path / "saved", workers=2)
    assert result.account.read == 40
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(40))
    assert LogFolder(tmp_path / "log").range() == (0, 3)
    assert not spark.streams.active


def test_without_a_log_nothing_is_left(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "in", 3, 5)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    source = plait.from_spark(numbers(spark, tmp_path / "in"), trigger="available_now")
    assert [row.n for row in plait.stream(source).collect()] == list(range(15))
    job = plait.Job("temporary")
    job.source(source).sink(plait.Discard())
    with pytest.raises(plait.PlaitError, match="can be read only once"):
        plait.run(job, checkpoint=tmp_path / "saved")
    del source, job


def test_event_time_sorts_each_batch(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 2, 1000)
    frame = numbers(spark, tmp_path / "in", files=2).selectExpr(
        "n", "timestamp_micros(1000000 * (n % 500)) as ts"
    )
    source = plait.from_spark(
        frame, log=tmp_path / "log", trigger="available_now", required=["n", "ts"]
    )
    counted = plait.stream(source, event_time="ts").tumbling("100s").count()
    assert [row.count for row in counted.collect()] == [400] * 5
    with pytest.raises(plait.SourceError, match='order_by="ts"'):
        plait.stream(plait.BatchLog(tmp_path / "log", required=["ts"]), event_time="ts")


def test_a_task_that_fails_after_its_rows_is_repeated_once(tmp_path: Path) -> None:
    """In a session of its own, with retries."""
    write_files(tmp_path / "in", 2, 20)
    done = run_driver(tmp_path, "fail-task")
    assert done.returncode == 0, done.stderr
    assert values_of(tmp_path / "log") == list(range(40))
    assert len(os.listdir(tmp_path / "log" / "segments")) > 2


def test_a_failure_between_the_batch_file_and_sparks_commit(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 3, 20)
    done = run_driver(tmp_path, "fail-commit")
    assert done.returncode == 7, done.stderr
    before = (tmp_path / "log" / "batches" / "000000001.json").read_bytes()
    assert LogFolder(tmp_path / "log").range() == (0, 1)
    done = run_driver(tmp_path, "two-partitions")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log" / "batches" / "000000001.json").read_bytes() == before
    assert sorted(values_of(tmp_path / "log")) == list(range(60))


def test_a_job_goes_back_to_its_oldest_checkpoint(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 6, 10)
    write_log(numbers(spark, tmp_path / "in"), tmp_path / "log", tmp_path / "query")
    log = plait.BatchLog(tmp_path / "log")
    job = plait.Job("back")
    job.source(log, "numbers").sink(plait.BatchLog(tmp_path / "out"), "out")
    saved = plait.Checkpoint(str(tmp_path / "saved"), every="1h", keep=3)
    running = plait.start(job, checkpoint=saved, workers=1, epoch_records=10)
    while running.engine.records_read() < 60:
        time.sleep(0.01)
    assert running.saved is not None
    running.saved.take()
    running.stop()
    running.wait()
    log.end()
    for manifest in sorted((tmp_path / "saved" / "back" / "manifests").iterdir())[2:]:
        manifest.write_bytes(b"damaged")
    plait.run(job, checkpoint=saved, workers=2)
    assert values_of(tmp_path / "out") == list(range(60))


def test_spark_reads_what_plait_wrote(spark: Any, tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    for number in range(5):
        rows = pa.table(
            {
                "n": pa.array([number * 2, number * 2 + 1], pa.int64()),
                "x": pa.array([0.5, None], pa.float64()),
                "s": ["ü", "b"],
                "b": [b"\x00", b""],
                "t": pa.array([0, 1_767_225_600_000_001], pa.timestamp("us", "UTC")),
                "a b": [True, False],
            }
        )
        log.append(number, rows, writer="me")
    frame = spark.read.format("plait").option("place", "true").load(str(tmp_path / "log"))
    found = frame.toArrow()
    assert found["n"].to_pylist() == list(range(10))
    assert found["_batch"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert found["_row"].to_pylist() == [0, 1] * 5
    assert found["t"].cast(pa.int64()).to_pylist() == [0, 1_767_225_600_000_001] * 5
    assert found["a b"].to_pylist() == [True, False] * 5
    assert found["x"].to_pylist() == [0.5, None] * 5

    def copy(until: int) -> list[int]:
        stream = spark.readStream.format("plait").option("maxBatches", 2)
        query = (
            stream.load(str(tmp_path / "log"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "query"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "copy"))
        )
        query.awaitTermination()
        assert len(query.recentProgress) >= (until + 1) // 2
        return sorted(
            row.n for row in spark.read.parquet(str(tmp_path / "copy")).select("n").collect()
        )

    assert copy(5) == list(range(10))
    log.append(5, rows, writer="me")
    assert copy(1) == [*range(8), 8, 8, 9, 9]


def test_spark_says_how_far_it_has_read(spark: Any, tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    for number in range(8):
        log.append(number, pa.table({"n": [number]}), writer="me")
    stream = spark.readStream.format("plait").option("maxBatches", 1)
    query = (
        stream.option("reader", "report")
        .load(str(tmp_path / "log"))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "query"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    (reader,) = log.folder.read_readers()
    assert reader.name == "report"
    assert 0 < reader.needed <= reader.read < 8
    there = log.folder.range()
    assert there is not None
    assert there[0] == reader.needed


@pytest.mark.parametrize("mode", ["complete", "async"])
def test_what_cannot_be_exact_is_refused(spark: Any, tmp_path: Path, mode: str) -> None:
    write_files(tmp_path / "in", 1, 3)
    frame = numbers(spark, tmp_path / "in")
    if mode == "complete":
        frame = frame.groupBy("n").count()
    writer = frame.writeStream.format("plait").option("checkpointLocation", str(tmp_path / "q"))
    if mode == "complete":
        writer = writer.outputMode("complete")
    else:
        writer = writer.option("asyncProgressTrackingEnabled", "true")
    with pytest.raises(Exception, match=r"appends|async progress tracking"):
        writer.trigger(availableNow=True).start(str(tmp_path / "log")).awaitTermination()
    assert LogFolder(tmp_path / "log").range() is None


def test_another_query_may_not_write_the_log(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 1, 3)
    write_log(numbers(spark, tmp_path / "in"), tmp_path / "log", tmp_path / "one")
    with pytest.raises(Exception, match="belongs to Spark query"):
        write_log(numbers(spark, tmp_path / "in"), tmp_path / "log", tmp_path / "two")


def test_a_full_log_fails_the_query_if_asked(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 4, 3)
    frame = numbers(spark, tmp_path / "in")
    with pytest.raises(Exception, match="is full"):
        write_log(frame, tmp_path / "log", tmp_path / "q", when_full="fail", most_batches="2")
    tell_read(LogFolder(tmp_path / "log"), "job", read=1, needed=0)
    with pytest.raises(Exception, match="is full"):
        write_log(frame, tmp_path / "log", tmp_path / "q", when_full="fail", most_batches="2")
    tell_read(LogFolder(tmp_path / "log"), "job", read=4, needed=0)
    write_log(frame, tmp_path / "log", tmp_path / "q", when_full="fail", most_batches="2")
    assert values_of(tmp_path / "log") == list(range(12))


def test_types_come_as_the_table_says(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 1, 1)
    frame = numbers(spark, tmp_path / "in").selectExpr(
        "cast(n as byte) as a",
        "cast(1.5 as float) as b",
        "true as c",
        "date '2026-01-02' as d",
        "timestamp '2026-01-01 00:00:01' as e",
        "timestamp_ntz '2026-07-01 12:00:00' as f",
        "cast(12.34 as decimal(10,2)) as g",
        "named_struct('x', 7, 'y', cast(null as string)) as h",
        "interval '1' second as i",
        "X'00ff' as j",
        "'z' as `a b`",
    )
    with pytest.raises(plait.SchemaError, match='column "f" is a time without a zone'):
        plait.from_spark(frame)
    with pytest.raises(plait.SchemaError, match=r'column "g" is decimal\(10,2\); say what'):
        plait.from_spark(frame, ntz="UTC")
    with pytest.raises(plait.SchemaError, match='column "h" is a struct; give flatten=True'):
        plait.from_spark(frame, ntz="UTC", decimals="scaled")
    source = plait.from_spark(
        frame,
        log=tmp_path / "log",
        ntz="Europe/Berlin",
        decimals="scaled",
        flatten=True,
        trigger="available_now",
    )
    table = plait.stream(source).to_arrow()
    (row,) = table.to_pylist()
    times = {name: row.pop(name).isoformat() for name in "def"}
    assert times == {
        "d": "2026-01-02T00:00:00+00:00",
        "e": "2026-01-01T00:00:01+00:00",
        "f": "2026-07-01T10:00:00+00:00",
    }
    assert row == {
        "a": 0,
        "b": 1.5,
        "c": True,
        "g": 1234,
        "h_x": 7,
        "h_y": None,
        "i": 1_000_000,
        "j": b"\x00\xff",
        "a b": "z",
    }


# A driver of its own: what it does is told by a word.

DRIVER = """
import os, sys
from pathlib import Path
from benchmarks.support.spark_session import spark_session

folder, what = Path(sys.argv[1]), sys.argv[2]

with spark_session(cores="2,4", memory="512m") as spark:
    frame = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    frame = frame.parquet(str(folder / "in"))
    if what == "two-partitions":
        frame = frame.repartition(2)
    format = "plait"
    if what in ("fail-task", "fail-commit"):
        from planted_faults import FaultySource

        spark.dataSource.register(FaultySource)
        format = "faulty"
    out = frame.writeStream.format(format).option("checkpointLocation", str(folder / "query"))
    query = out.trigger(availableNow=True).start(str(folder / "log"))
    try:
        query.awaitTermination()
    except Exception as error:
        print(error, file=sys.stderr)
        os._exit(7)
"""


def start_driver(folder: Path, what: str) -> subprocess.Popen[str]:
    paths = [str(Path(__file__).parents[3])]
    if what in ("fail-task", "fail-commit"):
        paths.insert(0, str(faulty(folder)))
    path = os.pathsep.join(paths)
    environment = {**os.environ, "PLAIT_TEST_FAULT": what, "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder), what],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_driver(folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    driver = start_driver(folder, what)
    out, error = driver.communicate()
    return subprocess.CompletedProcess([], driver.returncode, out, error)


FAULTY = """
import os
from pyspark import TaskContext
from plait.connectors.spark.writer import LogStreamWriter
from pyspark_plait import DefaultSource

WHAT = os.environ["PLAIT_TEST_FAULT"]


class Faulty(LogStreamWriter):
    def write(self, iterator):
        done = super().write(iterator)
        if WHAT == "fail-task" and TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the task fails after its rows")
        return done

    def commit(self, messages, batchId):
        super().commit(messages, batchId)
        if WHAT == "fail-commit" and batchId == 1:
            raise RuntimeError("the driver fails after the batch file")


class FaultySource(DefaultSource):
    @classmethod
    def name(cls):
        return "faulty"

    def streamWriter(self, schema, overwrite):
        made = super().streamWriter(schema, overwrite)
        made.__class__ = Faulty
        return made
"""


def faulty(folder: Path) -> Path:
    """A folder for PYTHONPATH with a writer that fails."""
    place = folder / "faulty"
    place.mkdir(exist_ok=True)
    (place / "planted_faults.py").write_text(FAULTY)
    return place
