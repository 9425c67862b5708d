"""TPCx-BB data by Spark: `python -m benchmarks.tpcxbb.generate FOLDER [--clicks N] ...`.

Writes FOLDER/clicks, FOLDER/sales and FOLDER/items as Parquet, at any scale; as with NEXMark the
data follows from the seed alone, and the files of a stream sorted by name are its records in order.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.support.spark_draws import SparkDraws
from benchmarks.support.spark_session import generated, write
from benchmarks.tpcxbb.records import clicks, items, lines_of, sales
from benchmarks.tpcxbb.schema import Shape

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS_OF_A_PART = 500_000


def frames(
    spark: SparkSession, shape: Shape, rows_of_a_part: int = ROWS_OF_A_PART
) -> dict[str, DataFrame]:
    """All streams as data frames; their partitions one after the other are the records in order."""
    draws = SparkDraws(shape.seed)

    def numbers(rows: int) -> DataFrame:
        return spark.range(0, rows, 1, max(1, -(-rows // rows_of_a_part)))

    number = F.col("id")
    lines = F.explode(F.sequence(F.lit(0).cast("long"), lines_of(draws, number) - 1))
    tickets = numbers(shape.tickets).select(number.alias("ticket"), lines.alias("line"))
    found = {
        "clicks": (numbers(shape.clicks), clicks(draws, shape, number)),
        "sales": (tickets, sales(draws, shape, F.col("ticket"), F.col("line"))),
        "items": (numbers(shape.items), items(draws, shape, number)),
    }
    return {
        stream: given.select(*(column.alias(name) for name, column in columns.items()))
        for stream, (given, columns) in found.items()
    }


def generate(spark: SparkSession, shape: Shape, folder: Path) -> None:
    for stream, made in frames(spark, shape).items():
        write(made, folder / stream, stream)


def main(given: list[str] | None = None) -> int:
    return generated("python -m benchmarks.tpcxbb.generate", Shape, generate, given)


if __name__ == "__main__":
    sys.exit(main())
