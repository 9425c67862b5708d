"""The draws of `benchmarks.support.draws` as Spark columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from benchmarks.support.draws import PRICES
from benchmarks.support.spark_session import write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Streams = Mapping[str, Callable[[Any, Any, Any], dict[str, Any]]]
    """By name: the columns of (draws, shape, row numbers)."""

ROWS_OF_A_PART = 500_000


class SparkDraws:
    """Columns are Spark columns; numbers are longs."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def draw(self, what: int, at: Any, below: Any) -> Any:
        begun = (F.lit(self.seed).cast("long"), F.lit(what).cast("long"))
        return F.pmod(F.xxhash64(*begun, at.cast("long")), column(below))

    def div(self, a: Any, b: Any) -> Any:
        return F.call_function("div", column(a), column(b))

    def least(self, a: Any, b: Any) -> Any:
        return F.least(column(a), column(b))

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        return F.when(condition, yes).otherwise(no)

    def price(self, drawn: Any) -> Any:
        dollars = F.pow(F.lit(10.0), drawn / float(PRICES) * 6.0)
        return F.floor(dollars * 100.0 + 0.5).cast("long")

    def pick(self, index: Any, words: Sequence[str]) -> Any:
        return F.element_at(F.array(*(F.lit(word) for word in words)), (index + 1).cast("int"))

    def text(self, *parts: Any) -> Any:
        return F.concat(*(F.lit(part) if isinstance(part, str) else part for part in parts))

    def moment(self, microseconds: Any) -> Any:
        return F.timestamp_micros(microseconds)

    def null_where(self, condition: Any, value: Any) -> Any:
        return F.when(~condition, value)


def column(value: Any) -> Column:
    return value if isinstance(value, Column) else F.lit(value).cast("long")


def frames(
    spark: SparkSession, streams: Streams, shape: Any, rows_of_a_part: int = ROWS_OF_A_PART
) -> dict[str, DataFrame]:
    """All streams as data frames; the partitions of one, one after the other, are its records in
    order."""
    found = {}
    for stream, columns in streams.items():
        rows = shape.rows(stream)
        numbers = spark.range(0, rows, 1, max(1, -(-rows // rows_of_a_part)))
        named = columns(SparkDraws(shape.seed), shape, F.col("id"))
        found[stream] = numbers.select(*(column.alias(name) for name, column in named.items()))
    return found


def write_frames(spark: SparkSession, streams: Streams, shape: Any, folder: Path) -> None:
    """Each stream as Parquet in a folder of its name."""
    for stream, frame in frames(spark, streams, shape).items():
        write(frame, folder / stream, f"{shape.rows(stream):,} {stream}")
