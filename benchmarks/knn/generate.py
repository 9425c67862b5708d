"""Points by Spark: `python -m benchmarks.knn.generate FOLDER [--events N] ...`.

Writes FOLDER/points and FOLDER/references as Parquet, at any scale; as with NEXMark the data
follows from the seed alone, and the files of a stream sorted by name are its records in order.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.knn.records import STREAMS
from benchmarks.knn.schema import Shape
from benchmarks.support import spark_draws
from benchmarks.support.spark_session import generated

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
    return generated("python -m benchmarks.knn.generate", Shape, generate, given)


if __name__ == "__main__":
    sys.exit(main())
