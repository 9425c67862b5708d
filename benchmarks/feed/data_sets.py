"""The data sets that can be fed, each as: its shape, its streams, and any piece of them as a frame.

An event is one of NEXMark's, a click or a ticket of TPCx-BB, a record of taxi rides, a point to
classify. A piece of events is a piece of each stream, in order, and pieces that follow each other
leave nothing out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from benchmarks.knn import records as knn
from benchmarks.knn.schema import Shape as KnnShape
from benchmarks.nexmark import events as nexmark
from benchmarks.nexmark.schema import Shape as NexmarkShape
from benchmarks.support.spark_draws import SparkDraws
from benchmarks.taxi import records as taxi
from benchmarks.taxi.schema import Shape as TaxiShape
from benchmarks.tpcxbb import records as shop
from benchmarks.tpcxbb.schema import Shape as ShopShape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """What is fed."""

    shape: type[Any]
    keys: dict[str, str]
    """Of each stream: the column that is the key of its Kafka records."""
    rows: Callable[[Any, str, int], int]
    """(shape, stream, events): how many of a stream's numbers are among the first events."""
    frame: Callable[[SparkSession, Any, str, int, int], DataFrame]
    """(session, shape, stream, first, end): these numbers of a stream, in order, in one partition.
    """


def piece(spark: SparkSession, columns: dict[str, Any], first: int, end: int) -> DataFrame:
    numbers = spark.range(first, end, 1, 1)
    return numbers.select(*(column.alias(name) for name, column in columns.items()))


def numbered(
    streams: Mapping[str, Any],
) -> Callable[[SparkSession, Any, str, int, int], DataFrame]:
    """The frames of streams whose records are numbered as the events are."""

    def frame(spark: SparkSession, shape: Any, stream: str, first: int, end: int) -> DataFrame:
        columns = streams[stream](SparkDraws(shape.seed), shape, F.col("id"))
        return piece(spark, columns, first, end)

    return frame


def nexmark_rows(shape: Any, stream: str, events: int) -> int:
    return int(replace(shape, events=events).rows(stream))


def shop_rows(shape: Any, stream: str, events: int) -> int:
    """Clicks and tickets as their times have it; a ticket is several records."""
    clicks = events * shape.clicks_per_s // (shape.clicks_per_s + shape.tickets_per_s)
    return int(clicks if stream == "clicks" else events - clicks)


def shop_frame(spark: SparkSession, shape: Any, stream: str, first: int, end: int) -> DataFrame:
    draws, number = SparkDraws(shape.seed), F.col("id")
    if stream == "clicks":
        return piece(spark, shop.clicks(draws, shape, number), first, end)
    lines = F.explode(F.sequence(F.lit(0).cast("long"), shop.lines_of(draws, number) - 1))
    tickets = spark.range(first, end, 1, 1).select(number.alias("ticket"), lines.alias("line"))
    columns = shop.sales(draws, shape, F.col("ticket"), F.col("line"))
    return tickets.select(*(column.alias(name) for name, column in columns.items()))


def knn_rows(shape: Any, stream: str, events: int) -> int:
    return events


def taxi_rows(shape: Any, stream: str, events: int) -> int:
    return int(shape.rows(stream, events))


DATA_SETS = {
    "nexmark": DataSet(
        shape=NexmarkShape,
        keys={"persons": "id", "auctions": "id", "bids": "auction"},
        rows=nexmark_rows,
        frame=numbered(nexmark.STREAMS),
    ),
    "tpcxbb": DataSet(
        shape=ShopShape,
        keys={"clicks": "user", "sales": "ticket"},
        rows=shop_rows,
        frame=shop_frame,
    ),
    "knn": DataSet(
        shape=KnnShape, keys={"points": "point"}, rows=knn_rows, frame=numbered(knn.STREAMS)
    ),
    "taxi": DataSet(
        shape=TaxiShape,
        keys={"rides": "taxi", "fares": "taxi"},
        rows=taxi_rows,
        frame=numbered(taxi.STREAMS),
    ),
}
