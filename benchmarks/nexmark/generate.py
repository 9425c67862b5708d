"""NEXMark data by Spark: `python -m benchmarks.nexmark.generate FOLDER [--events N] ...`.

Writes FOLDER/persons, FOLDER/auctions and FOLDER/bids as Parquet, at any scale: every row follows
from the seed and its number, so the parts are made independently and the data is the same whatever
their number. The files of a stream, sorted by name, are its records in the order they come.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.nexmark.events import STREAMS
from benchmarks.nexmark.schema import Shape
from benchmarks.support.spark_draws import SparkDraws
from benchmarks.support.spark_session import generated, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS_OF_A_PART = 500_000


def frame(
    spark: SparkSession, stream: str, shape: Shape, rows_of_a_part: int = ROWS_OF_A_PART
) -> DataFrame:
    """A stream as a data frame; its partitions one after the other are the records in order."""
    rows = shape.rows(stream)
    numbers = spark.range(0, rows, 1, max(1, -(-rows // rows_of_a_part)))
    columns = STREAMS[stream](SparkDraws(shape.seed), shape, F.col("id"))
    return numbers.select(*(column.alias(name) for name, column in columns.items()))


def frames(spark: SparkSession, shape: Shape) -> dict[str, DataFrame]:
    """All three streams."""
    return {stream: frame(spark, stream, shape) for stream in STREAMS}


def generate(spark: SparkSession, shape: Shape, folder: Path) -> None:
    for stream, made in frames(spark, shape).items():
        write(made, folder / stream, f"{shape.rows(stream):,} {stream}")


def main(given: list[str] | None = None) -> int:
    return generated("python -m benchmarks.nexmark.generate", Shape, generate, given)


if __name__ == "__main__":
    sys.exit(main())
