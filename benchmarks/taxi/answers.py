"""The right answers of `examples/taxi_drives.py` by Spark SQL over the whole data: plait has no
part in it. Rows have no order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

RECORDS = """
    records as (
        select ride, driver, ts, 0L as cents from rides
        union all select ride, driver, ts, total as cents from fares
    )
"""

NEXT = "((s.seed * 1103515245 + 12345) % 2147483648)"
"""The number after the last one of a simulation, `s`."""


def simulated(seed: str, added: str, result: str, paths: int) -> str:
    """What a loop with a sum gives: `added` is what a step adds to it."""
    return f"""aggregate(
        sequence(1, {paths}),
        named_struct('seed', {seed} % 2147483648, 'sum', 0L),
        (s, i) -> named_struct('seed', {NEXT}, 'sum', s.sum + {added}),
        s -> {result}
    )"""


def trips(paths: int) -> str:
    cents = f"500 + (us div 60000000) * (20 + ({NEXT} div 65536) % 81)"
    return f"""
        with {RECORDS}, whole as (
            select ride, sum(cents) as cents, unix_micros(max(ts)) - unix_micros(min(ts)) as us
            from records group by ride having count(*) = 3
        )
        select ride, cents,
            {simulated("ride", f"if({cents} < cents, 1L, 0L)", f"s.sum * 1000 div {paths}", paths)}
            as dearer_than
        from whole
    """


def drivers(paths: int) -> str:
    added = f"({NEXT} div 65536) % 3000 * (60 - minute(ts)) div 60"
    return f"""
        with {RECORDS}, looked as (
            select *,
                {simulated("(driver * 31 + cents)", added, f"s.sum div {paths}", paths)} as outlook
            from records
        )
        select driver, w.start as window_start, w.end as window_end, count(*) as records,
            sum(cents) as cents, avg(outlook) as outlook
        from (select *, window(ts, '1 hour') as w from looked)
        group by driver, w
    """


ANSWERS = {"trips": trips, "drivers": drivers}


def answer(
    spark: SparkSession, query: str, streams: Mapping[str, DataFrame], paths: int
) -> DataFrame:
    """The rows of a sink over both streams, with so many simulated paths."""
    for name, frame in streams.items():
        frame.createOrReplaceTempView(name)
    return spark.sql(ANSWERS[query](paths))
