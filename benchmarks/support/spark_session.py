"""A Spark session for generators and answers: this machine, loopback only, its own folder.

The session leaves nothing behind but what a job wrote where it was told to; times are UTC, and
Parquet has them as microseconds, as plait has.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.support.common import clear_progress, progress
from plait.connectors.spark_java import set_java_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

Shape = TypeVar("Shape", bound=Any)

EVERY_S = 1.0


@contextmanager
def spark_session(cores: int | str = "*", memory: str = "1g") -> Iterator[SparkSession]:
    """A session on `cores` threads of this machine; it is stopped and its folder removed."""
    with tempfile.TemporaryDirectory(prefix="plait-spark-") as folder:
        set_java_home(Path(folder) / "java")
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {
            "spark.driver.memory": memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -XX:+UseSerialGC",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "spark.sql.shuffle.partitions": "2",
        }
        builder = SparkSession.builder.master(f"local[{cores}]").appName("plait")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
            end_java()


def end_java() -> None:
    """Ends the process that PySpark started for its sessions, and waits for it: it would go on
    until this one ends. The next session starts another."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait()


def write(frame: DataFrame, path: Path, name: str) -> None:
    """Writes a data frame as Parquet, one file a partition, and shows how far it is."""
    over = threading.Event()
    began = time.monotonic()
    watcher = threading.Thread(target=watch, args=(frame.sparkSession, name, over), daemon=True)
    watcher.start()
    try:
        frame.write.mode("errorifexists").parquet(str(path))
    finally:
        over.set()
        watcher.join()
    clear_progress()
    print(f"{name}: written to {path} in {time.monotonic() - began:.1f} s", file=sys.stderr)


def watch(session: SparkSession, name: str, over: threading.Event) -> None:
    """Says how many parts of the running stage are done, until told that it is over."""
    tracker = session.sparkContext.statusTracker()
    said = ""
    while not over.wait(EVERY_S):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            text = f"{name}: {info.numCompletedTasks} of {info.numTasks} parts" if info else said
            if text != said:
                progress(text)
            said = text


def generated(
    prog: str,
    shape: type[Shape],
    generate: Callable[[SparkSession, Shape, Path], None],
    given: list[str] | None,
) -> int:
    """The command line of a generator: a folder, the fields of its shape, what Spark may use."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("folder", type=Path, help="where the three folders are made")
    for field in dataclasses.fields(shape):
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=field.default, metavar="N")
    parser.add_argument("--cores", default="*", help="threads of Spark (default: all cores)")
    parser.add_argument("--memory", default="1g", help="memory of Spark (default: 1g)")
    asked = vars(parser.parse_args(given))
    folder, cores, memory = asked.pop("folder"), asked.pop("cores"), asked.pop("memory")
    with spark_session(cores, memory) as spark:
        generate(spark, shape(**asked), folder)
    return 0
