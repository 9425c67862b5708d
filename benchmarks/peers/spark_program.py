"""Spark Structured Streaming: files as a stream, SQL functions, `Trigger.AvailableNow`.

The time is that of the streaming query, from `start` to its end: Parquet is read in it, two files
(a million events) a micro-batch; the session stands before. State is in the default store. Windows
close when a later record came, so queries with windows read folders that have one an hour later,
and its own row is left out. Rows go to Spark's `noop` sink, and for a check through `foreachBatch`.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from benchmarks.peers.digest import digest_of_table
from benchmarks.peers.python_work import fee, score
from benchmarks.peers.serve import Answer, Request, serve
from benchmarks.support.spark_session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FILES_OF_A_BATCH = 2
TEN, TWO = "10 seconds", "2 seconds"
TIES = 16
"""More bids than so many are never the highest of a window together."""


def streamed(spark: SparkSession, folder: Path, stream: str, closed: bool) -> DataFrame:
    path = folder / (f"{stream}_closed" if closed else stream)
    schema = spark.read.parquet(str(path)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_OF_A_BATCH)
    return reader.parquet(str(path))


def count(bids: DataFrame) -> DataFrame:
    return bids.groupBy("auction").count()


def q1(bids: DataFrame) -> DataFrame:
    return bids.withColumn("price", F.expr("price * 908 div 1000"))


def q2(bids: DataFrame) -> DataFrame:
    return bids.where("auction % 123 = 0").select("auction", "price")


def called(function: Callable[[int, int], int], bids: DataFrame) -> DataFrame:
    """A Python function for each record, in the form that hands records over as Arrow."""
    made = F.udf(function, "long", useArrow=True)
    return bids.select("auction", made("auction", "price").alias("result"))


def q3(auctions: DataFrame, persons: DataFrame) -> DataFrame:
    near = persons.where("state in ('OR', 'ID', 'CA')").alias("p")
    sold = auctions.where("category = 10").alias("a")
    joined = sold.join(near, F.expr("a.seller = p.id"))
    return joined.select("p.name", "p.city", "p.state", F.col("a.id").alias("auction"))


def q5(bids: DataFrame) -> DataFrame:
    timed = bids.withWatermark("ts", "0 seconds")
    counts = timed.groupBy(F.window("ts", TEN, TWO), "auction").count()
    pairs = F.collect_list(F.struct("auction", "count"))
    tops = counts.groupBy("window").agg(F.max("count").alias("most"), pairs.alias("pairs"))
    found = tops.select("window", "most", F.explode("pairs").alias("pair"))
    chosen = found.where("pair.count = most")
    return chosen.select("pair.auction", "window.start", "window.end", "pair.count")


def q7(bids: DataFrame) -> DataFrame:
    """A few of the highest bids of each window, of which those are kept that equal the first."""
    timed = bids.withWatermark("ts", "0 seconds")
    few = F.max_by(F.struct("auction", "bidder", "price", "ts"), "price", TIES)
    tops = timed.groupBy(F.window("ts", TEN)).agg(few.alias("tops"))
    found = tops.select("window", "tops", F.explode("tops").alias("top"))
    chosen = found.where("top.price = tops[0].price")
    return chosen.select("top.*", "window.start", "window.end")


def q8(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    new = persons.withWatermark("ts", "0 seconds").withColumn("window", F.window("ts", TEN))
    opened = auctions.withWatermark("ts", "0 seconds").withColumn("window", F.window("ts", TEN))
    sellers = opened.select("window", F.col("seller").alias("id"))
    return new.join(sellers, ["window", "id"], "leftsemi").select("id", "name")


QUERIES: dict[str, tuple[Callable[..., DataFrame], tuple[str, ...]]] = {
    "count": (count, ("bids",)),
    "q1": (q1, ("bids",)),
    "q2": (q2, ("bids",)),
    "q3": (q3, ("auctions", "persons")),
    "q5": (q5, ("bids",)),
    "q7": (q7, ("bids",)),
    "q8": (q8, ("persons", "auctions")),
    "fee": (partial(called, fee), ("bids",)),
    "score": (partial(called, score), ("bids",)),
}
WINDOWED = ("q5", "q7", "q8")


class Program:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def run(self, request: Request) -> Answer:
        build, streams = QUERIES[request.query]
        closed = request.query in WINDOWED
        given = [streamed(self.spark, request.folder, stream, closed) for stream in streams]
        frame = build(*given)
        batches: list[pa.Table] = []
        with tempfile.TemporaryDirectory(prefix="plait-peers-") as folder:
            writer: Any = frame.writeStream.option("checkpointLocation", folder)
            writer = writer.outputMode("update" if request.query == "count" else "append")
            if request.check:
                writer = writer.foreachBatch(lambda part, _: batches.append(part.toArrow()))
            else:
                writer = writer.format("noop")
            began = perf_counter()
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            seconds = perf_counter() - began
        return Answer(seconds=seconds, digest=checked(request, batches) if request.check else None)


def checked(request: Request, batches: list[pa.Table]) -> str:
    found = pa.concat_tables(batches)
    if request.query == "count":
        last = dict(zip(*(column.to_pylist() for column in found.columns), strict=True))
        found = pa.table({"auction": list(last), "count": list(last.values())})
    return digest_of_table(found)


if __name__ == "__main__":
    with spark_session(sys.argv[1], "2g") as session:
        serve(Program(session).run)
