"""The right answers to NEXMark's queries by Spark SQL over the whole data: plait has no part in it.

What a stream of results is, as a table: a running mean has a row for every record, so it is a
window function here; windows of event time are Spark's own. Rows have no order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

CLOSED = """
    closed as (
        select a.id, a.category, a.seller, a.expires, max(b.price) as price
        from auctions a join bids b on a.id = b.auction and b.ts between a.ts and a.expires
        group by a.id, a.category, a.seller, a.expires
    )
"""
"""Auctions with their closing price; they close in the order of `expires`, then as they came, which
is the order of their ids."""

COUNTS = """
    counts as (
        select auction, w.start as window_start, w.end as window_end, count(*) as count
        from (select auction, window(ts, '10 seconds', '2 seconds') as w from bids)
        group by auction, w
    )
"""

ANSWERS = {
    "q1": "select auction, bidder, price * 908 div 1000 as price, ts from bids",
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """
        select p.name, p.city, p.state, a.id as auction
        from auctions a join persons p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        with {CLOSED}
        select category, avg(price) over (
            partition by category order by expires, id
            rows between unbounded preceding and current row
        ) as mean
        from closed
    """,
    "q5": f"""
        with {COUNTS}
        select auction, window_start, window_end, count
        from (
            select *, max(count) over (partition by window_start) as most from counts
        )
        where count = most
    """,
    "q6": f"""
        with {CLOSED}
        select seller, avg(price) over (
            partition by seller order by expires, id rows between 9 preceding and current row
        ) as mean
        from closed
    """,
    "q7": """
        select auction, bidder, price, ts, w.start as window_start, w.end as window_end
        from (
            select *, max(price) over (partition by w) as most
            from (select *, window(ts, '10 seconds') as w from bids)
        )
        where price = most
    """,
    "q8": """
        select p.id, p.name
        from (select *, window(ts, '10 seconds') as w from persons) p
        left semi join (select *, window(ts, '10 seconds') as w from auctions) a
        on p.id = a.seller and p.w = a.w
    """,
}


def answer(spark: SparkSession, query: str, streams: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a query over the three streams."""
    for name, frame in streams.items():
        frame.createOrReplaceTempView(name)
    return spark.sql(ANSWERS[query])
