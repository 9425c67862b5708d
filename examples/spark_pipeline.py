"""Spark and plait together: Spark cleans clicks and joins them with a table of items, plait finds
the carts that were abandoned, in order and exactly once, and Spark reports what they were worth.

    files of clicks -> Spark: no bots, with items -> batch log -> plait: sessions by user
        -> Parquet -> Spark: report by category

With --kafka the clicks come from a topic and the carts go to another one too, through a broker that
the example starts (the first time that fetches 45 MB from Maven). Needs `plait[spark]` and Java 17
or newer; with --kafka `plait[kafka]` as well.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plait
from plait import col

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

USERS, CLICKS, FILES = 60, 6_000, 4
CATEGORIES = ("books", "garden", "games", "tea")
CLICK = {"user": str, "item": int, "action": str, "agent": str, "ts": plait.Timestamp}


def clicks() -> Iterator[dict[str, Any]]:
    """Users look at items, some fill a cart, and not all of these order. A tenth are bots."""
    start = datetime.datetime(2026, 1, 1, 8, tzinfo=datetime.UTC)
    for n in range(CLICKS):
        user = n * 7 % USERS
        step = n // USERS + user
        action = "cart" if step % 5 == 0 else "order" if step % 45 == 7 else "view"
        yield {
            "user": f"user-{user}",
            "item": n * 7 % 40,
            "action": action,
            "agent": "bot" if user % 10 == 3 else "browser",
            "ts": start + datetime.timedelta(seconds=n + (n // 2_000) * 3_600),
        }


def write_files(folder: Path) -> None:
    """What a web server would leave behind: one file after the other."""
    folder.mkdir()
    rows = [{**click, "ts": click["ts"].isoformat()} for click in clicks()]
    each = len(rows) // FILES
    for number in range(FILES):
        lines = (json.dumps(row) for row in rows[number * each : (number + 1) * each])
        path = folder / f"clicks-{number}.json"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def from_files(spark: SparkSession, folder: Path) -> DataFrame:
    write_files(folder / "clicks")
    schema = "user string, item long, action string, agent string, ts timestamp"
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return stream.json(str(folder / "clicks"))


def from_kafka(spark: SparkSession, folder: Path, servers: str) -> DataFrame:
    """The topic as a log that Spark reads. Where Spark has its own connector for Kafka, it reads
    the topic itself."""
    plait.stream(plait.Items(list(clicks()), CLICK)).sink(
        plait.Kafka("clicks", key="user", servers=servers)
    ).run()
    raw = plait.BatchLog(folder / "raw")
    topic = plait.Kafka("clicks", CLICK, servers=servers, end="latest")
    plait.stream(topic).sink(raw).run()
    raw.end()
    return spark.readStream.format("plait").load(str(folder / "raw"))


def clean(spark: SparkSession, stream: DataFrame) -> DataFrame:
    """Spark's part: rows that are wanted, with what the table says of their items."""
    rows = [(item, CATEGORIES[item % 4], 5 + item) for item in range(40)]
    items = spark.createDataFrame(rows, "item long, category string, price long")
    return stream.where("agent <> 'bot'").drop("agent").join(items, "item")


def find_abandoned(source: plait.Source) -> plait.Stream:
    """plait's part: sessions of each user, in order, and what they left in their carts."""
    visits = plait.Job("abandoned").source(source, "clicks", event_time="ts", out_of_order="5s")
    carts = visits.key_by("user").session(gap="30m")
    in_cart = col("action") == "cart"
    return (
        carts.aggregate(
            items=plait.sum(plait.when(in_cart).then(1).otherwise(0)),
            worth=plait.sum(plait.when(in_cart).then(col("price")).otherwise(0)),
            category=plait.last("category"),
            ordered=plait.any(col("action") == "order"),
        )
        .filter(~col("ordered") & (col("items") > 0))
        .select("user", "window_end", "items", "worth", "category")
    )


def report(spark: SparkSession, folder: Path) -> str:
    """Spark again: any question about what plait wrote."""
    carts = spark.read.parquet(str(folder))
    found = carts.groupBy("category").agg({"user": "count", "worth": "sum"}).orderBy("category")
    lines = [f"{row[0]:8} {row[1]:4} carts {row[2]:7}" for row in map(by_name, found.collect())]
    return "\n".join(lines)


def by_name(row: Any) -> tuple[str, int, int]:
    return row["category"], row["count(user)"], row["sum(worth)"]


def main(spark: SparkSession, folder: Path, servers: str) -> None:
    stream = from_kafka(spark, folder, servers) if servers else from_files(spark, folder)
    source = plait.from_spark(
        clean(spark, stream),
        log=folder / "clean",
        trigger="available_now",
        required=["ts", "user", "price"],
    )
    abandoned = find_abandoned(source)
    abandoned.sink(plait.Files(folder / "abandoned", format="parquet"), "lake")
    if servers:
        abandoned.sink(plait.Kafka("abandoned", key="user", servers=servers), "shop")
    result = plait.run(abandoned.job, checkpoint=folder / "checkpoints")
    print(f"{result.account.read:,} clicks of people")
    print(report(spark, folder / "abandoned"))


@contextlib.contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("pipeline")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    try:
        yield found
    finally:
        found.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kafka", action="store_true", help="clicks and carts as topics, too")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        given = ""
        if asked.kafka:
            from plait.testing.broker import broker

            running = stack.enter_context(broker())
            for topic, partitions in (("clicks", 3), ("abandoned", 1)):
                running.make_topic(topic, partitions, numbered=False)
            given = running.servers
        main(stack.enter_context(session(place)), place, given)
