"""Taxi rides and fares by Spark: `python -m benchmarks.taxi.generate FOLDER [--events N] ...`.

Writes FOLDER/rides and FOLDER/fares as Parquet, at any scale; as with NEXMark the data follows from
the seed alone, and the files of a stream sorted by name are its records in order.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.support.spark_draws import SparkDraws
from benchmarks.support.spark_session import generated, write
from benchmarks.taxi.records import STREAMS
from benchmarks.taxi.schema import Shape

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS_OF_A_PART = 500_000


def frames(
    spark: SparkSession, shape: Shape, rows_of_a_part: int = ROWS_OF_A_PART
) -> dict[str, DataFrame]:
    """Both streams as data frames; their partitions one after the other are the records in
    order."""
    found = {}
    for stream, columns in STREAMS.items():
        rows = shape.rows(stream)
        numbers = spark.range(0, rows, 1, max(1, -(-rows // rows_of_a_part)))
        named = columns(SparkDraws(shape.seed), shape, F.col("id"))
        found[stream] = numbers.select(*(column.alias(name) for name, column in named.items()))
    return found


def generate(spark: SparkSession, shape: Shape, folder: Path) -> None:
    for stream, made in frames(spark, shape).items():
        write(made, folder / stream, f"{shape.rows(stream):,} {stream}")


def main(given: list[str] | None = None) -> int:
    return generated("python -m benchmarks.taxi.generate", Shape, generate, given)


if __name__ == "__main__":
    sys.exit(main())
