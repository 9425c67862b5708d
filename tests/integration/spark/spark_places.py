"""Frames in and out through plait, in a session that is not the usual one; run by
`test_spark_places.py`: `python spark_places.py connect FOLDER`; with "cluster", master, workers and
executors are processes of their own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import plait
from plait.connectors.spark_java import set_java_home

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}


def session(where: str, folder: Path) -> Any:
    from pyspark.sql import SparkSession

    set_java_home(folder / "java")
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    builder: Any = SparkSession.builder
    for name, value in {**CONF, "spark.local.dir": str(folder)}.items():
        builder = builder.config(name, value)
    if where == "connect":
        return builder.remote("local[2]").getOrCreate()
    return (
        builder.master("local-cluster[2,1,800]")
        .config("spark.executor.memory", "800m")
        .getOrCreate()
    )


def write_files(folder: Path) -> None:
    folder.mkdir()
    for file in range(3):
        lines = "".join(f'{{"n": {n}}}\n' for n in range(file * 100, file * 100 + 100))
        (folder / f"{file}.json").write_text(lines)
        os.utime(folder / f"{file}.json", (1_700_000_000 + file, 1_700_000_000 + file))


def main(where: str, folder: Path) -> None:
    spark = session(where, folder)
    master = str(spark.conf.get("spark.master"))
    found: dict[str, Any] = {
        "session": type(spark).__module__,
        "cluster": master.startswith("local-cluster"),
    }
    found["batch"] = [
        row.n
        for row in plait.stream(
            plait.from_spark(spark.range(20).withColumnRenamed("id", "n"))
        ).collect()
    ]
    write_files(folder / "in")
    stream = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    source = plait.from_spark(
        stream.json(str(folder / "in")), log=folder / "log", trigger="available_now", required=["n"]
    )
    found["stream"] = [row.n for row in plait.stream(source).collect()]
    out = plait.BatchLog(folder / "out")
    plait.stream([{"n": n} for n in range(50)]).sink(out).run()
    out.end()
    rows = spark.read.format("plait").load(str(folder / "out")).collect()
    found["read"] = [row["n"] for row in rows]
    back = spark.readStream.format("plait").load(str(folder / "out"))
    query = (
        back.writeStream.format("json")
        .option("checkpointLocation", str(folder / "saved"))
        .trigger(availableNow=True)
        .start(str(folder / "json"))
    )
    query.awaitTermination()
    found["read_stream"] = sorted(
        json.loads(line)["n"]
        for path in (folder / "json").glob("*.json")
        for line in path.read_text().splitlines()
    )
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
