"""The right answers of `examples/knn.py` by Spark SQL, from all distances. Rows have no order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.knn.schema import COORDINATES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

DISTANCE = " + ".join(f"(r.{name} - p.{name}) * (r.{name} - p.{name})" for name in COORDINATES)


def answer(spark: SparkSession, streams: Mapping[str, DataFrame], k: int) -> DataFrame:
    """Each point with the label that most of its k nearest references have, the smallest of
    several; of references at the same distance the first are nearer."""
    for name, frame in streams.items():
        frame.createOrReplaceTempView(name)
    return spark.sql(f"""
        with ranked as (
            select point, label, row_number() over (
                partition by point order by {DISTANCE}, reference
            ) as place
            from points p cross join references r
        ), votes as (
            select point, label, count(*) as votes from ranked where place <= {k}
            group by point, label
        )
        select point, label from (
            select *, row_number() over (partition by point order by votes desc, label) as place
            from votes
        ) where place = 1
    """)
