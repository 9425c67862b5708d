"""The right answers to TPCx-BB's queries by Spark SQL over the whole data: plait has no part in it.

What each of them means is said in `benchmarks.tpcxbb.queries`. Rows have no order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tpcxbb.parameters import GIVEN, LAST_STORE, TOP_ITEMS, TOP_PAIRS, VIEWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

ANSWERS = {
    "q1": f"""
        with lines as (
            select ticket, item, window(ts, '1 hour') as w from sales where store <= {LAST_STORE}
        ),
        counts as (
            select a.item, b.item as with_item, a.w, count(*) as count
            from lines a join lines b on a.ticket = b.ticket and a.item < b.item
            group by a.item, b.item, a.w
        )
        select item, with_item, w.start as window_start, w.end as window_end, count
        from (select *, rank() over (partition by w order by count desc) as place from counts)
        where place <= {TOP_PAIRS}
    """,
    "q2": f"""
        with views as (
            select user, item, ts,
                ts >= lag(ts) over (partition by user order by ts) + interval 60 minutes as begins
            from clicks where user is not null and page = 'view'
        ),
        numbered as (
            select user, item, ts, sum(if(begins, 1, 0)) over (
                partition by user order by ts rows between unbounded preceding and current row
            ) as session
            from views
        ),
        sessions as (
            select collect_set(item) as items,
                max(ts) + interval 60 minutes - interval 1 microsecond as ts
            from numbered group by user, session
        ),
        together as (
            select explode(items) as item, window(ts, '6 hours') as w
            from sessions where array_contains(items, {GIVEN})
        ),
        counts as (
            select item, w, count(*) as count from together where item != {GIVEN} group by item, w
        )
        select item, w.start as window_start, w.end as window_end, count
        from (select *, rank() over (partition by w order by count desc) as place from counts)
        where place <= {TOP_ITEMS}
    """,
    "q3": f"""
        with orders as (
            select user, ts from clicks
            where user is not null and page = 'order' and item = {GIVEN}
        ),
        before as (
            select v.item, window(o.ts, '6 hours') as w,
                row_number() over (partition by o.user, o.ts order by v.ts desc) as back
            from orders o join clicks v on o.user = v.user and v.page = 'view'
                and v.ts < o.ts and v.ts >= o.ts - interval 10 days
        ),
        counts as (
            select item, w, count(*) as count from before where back <= {VIEWS} group by item, w
        )
        select item, w.start as window_start, w.end as window_end, count
        from (select *, rank() over (partition by w order by count desc) as place from counts)
        where place <= {TOP_ITEMS}
    """,
    "q4": """
        with sessions as (
            select session_window(ts, '60 minutes') as s, count(*) as pages,
                max(page = 'cart') as filled, max(page = 'order') as bought
            from clicks where user is not null group by user, session_window(ts, '60 minutes')
        ),
        abandoned as (
            select pages, window(s.end - interval 1 microsecond, '6 hours') as w
            from sessions where filled and not bought
        )
        select w.start as window_start, w.end as window_end, avg(pages) as pages
        from abandoned group by w
    """,
    "q15": f"""
        with hourly as (
            select category, window(ts, '1 hour') as w, sum(quantity * sales.price) as y
            from sales join items using (item) where store <= {LAST_STORE}
            group by category, window(ts, '1 hour')
        ),
        points as (
            select category, window(w.start, '6 hours') as w, hour(w.start) % 6 as x, y from hourly
        ),
        sums as (
            select category, w, count(*) as n, sum(x) as sx, sum(y) as sy, sum(x * x) as sxx,
                sum(x * y) as sxy
            from points group by category, w
        )
        select category, w.start as window_start, w.end as window_end,
            (n * sxy - sx * sy) / (n * sxx - sx * sx) as slope
        from sums where n > 1 and n * sxy - sx * sy <= 0
    """,
}


def answer(spark: SparkSession, query: str, streams: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a query over clicks, sales and items."""
    for name, frame in streams.items():
        frame.createOrReplaceTempView(name)
    return spark.sql(ANSWERS[query])
