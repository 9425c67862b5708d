"""TPCx-BB data by Spark: `python -m benchmarks.tpcxbb.generate FOLDER [--clicks N] ...`.

Writes FOLDER/clicks, FOLDER/sales and FOLDER/items as Parquet, at any scale; as with NEXMark the
data follows from the seed alone, and the files of a stream sorted by name are its records in order.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.spark_draws import SparkDraws
from benchmarks.spark_session import spark_session, write
from benchmarks.tpcxbb.records import clicks, items, lines_of, sales
from benchmarks.tpcxbb.schema import Shape

if TYPE_CHECKING:
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tpcxbb.generate")
    parser.add_argument("folder", type=Path, help="where the three folders are made")
    for field in dataclasses.fields(Shape):
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=field.default, metavar="N")
    parser.add_argument("--cores", default="*", help="threads of Spark (default: all cores)")
    parser.add_argument("--memory", default="1g", help="memory of Spark (default: 1g)")
    asked = vars(parser.parse_args(given))
    folder, cores, memory = asked.pop("folder"), asked.pop("cores"), asked.pop("memory")
    with spark_session(cores, memory) as spark:
        generate(spark, Shape(**asked), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
