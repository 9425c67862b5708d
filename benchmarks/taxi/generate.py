"""Taxi rides and fares by Spark: `python -m benchmarks.taxi.generate FOLDER [--events N] ...`.

Writes FOLDER/rides and FOLDER/fares as Parquet, at any scale; as with NEXMark the data follows from
the seed alone, and the files of a stream sorted by name are its records in order.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.support import spark_draws
from benchmarks.support.spark_session import generated
from benchmarks.taxi.records import STREAMS
from benchmarks.taxi.schema import Shape

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def frames(
    spark: SparkSession, shape: Shape, rows_of_a_part: int = spark_draws.ROWS_OF_A_PART
) -> dict[str, DataFrame]:
    """Both streams as data frames; their partitions one after the other are the records in
    order."""
    return spark_draws.frames(spark, STREAMS, shape, rows_of_a_part)


def generate(spark: SparkSession, shape: Shape, folder: Path) -> None:
    spark_draws.write_frames(spark, STREAMS, shape, folder)


def main(given: list[str] | None = None) -> int:
    return generated("python -m benchmarks.taxi.generate", Shape, generate, given)


if __name__ == "__main__":
    sys.exit(main())
