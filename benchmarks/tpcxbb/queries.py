"""The five streaming queries of TPCx-BB: Q1, Q2, Q3, Q4 and Q15.

Where the benchmark asks for one table over all data, these give a table for every window of event
time. All are native: no Python runs for a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import plait
from benchmarks.tpcxbb.parameters import GIVEN, LAST_STORE, TOP_ITEMS, TOP_PAIRS, VIEWS
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait import Stream

ALL = 1_000_000
"""More views than a session has."""


def q1(sales: Stream) -> Stream:
    """The 100 pairs of items most often sold together in some stores, every hour.

    A pair counts for every two lines of a sale with these items, the lower number first. The lines
    of a sale have the same time, so a line needs no other but those of its own microsecond.
    """
    lines = sales.filter(col("store") <= LAST_STORE).select("ticket", "item", "ts")
    pairs: Stream = lines.join(lines, on="ticket", between=("0s", "0s"))
    counts = (
        pairs.filter(col("item") < col("item_right"))
        .key_by("item", with_item=col("item_right"))
        .tumbling("1h")
        .count()
    )
    return counts.by_window().top(TOP_PAIRS, by="count", ties=True)


def q2(clicks: Stream) -> Stream:
    """The 30 items seen in most sessions in which a given item was seen, every six hours.

    A session is a user's views less than an hour apart; it counts where it ends. All its views come
    out then, and stay if the given item is among them.
    """
    views = clicks.filter(col("user").is_not_null() & (col("page") == "view"))
    seen = (
        views.select("user", "item", "ts")
        .key_by("user")
        .session(gap="60m")
        .top(ALL, by="ts", least=True)
        .select("user", "item", session="window_start", ended="window_end")
    )
    given = seen.filter(col("item") == GIVEN)
    together: Stream = seen.filter(col("item") != GIVEN).join(
        given, on=["user", "session"], between=("0s", "0s"), how="semi"
    )
    once = together.key_by("user", "session", "item").tumbling("6h").count()
    counts = once.key_by("item").tumbling("6h").count()
    return counts.by_window().top(TOP_ITEMS, by="count", ties=True)


def q3(clicks: Stream) -> Stream:
    """The 30 items most often among the last five that users viewed before they ordered a given
    item, in the ten days before, every six hours."""
    known = clicks.filter(col("user").is_not_null())
    orders = known.filter((col("page") == "order") & (col("item") == GIVEN)).select("user", "ts")
    views = known.filter(col("page") == "view").select("user", "item", "ts")
    before: Stream = orders.join(views, on="user", between=("-10d", "-1us"))
    last = before.key_by("user", "ts").tumbling("6h").top(VIEWS, by="ts_right")
    counts = last.select("item", ended="window_end").key_by("item").tumbling("6h").count()
    return counts.by_window().top(TOP_ITEMS, by="count", ties=True)


def q4(clicks: Stream) -> Stream:
    """How many pages sessions had, on average, in which something was put into the cart and nothing
    was ordered, every six hours."""
    abandoned = (
        clicks.filter(col("user").is_not_null())
        .key_by("user")
        .session(gap="60m")
        .aggregate(
            pages=plait.count(),
            filled=plait.any(col("page") == "cart"),
            bought=plait.any(col("page") == "order"),
        )
        .filter(col("filled") & ~col("bought"))
    )
    return abandoned.tumbling("6h").aggregate(pages=plait.mean("pages"))


def q15(sales: Stream, items: Any) -> Stream:
    """The categories of items whose sales in some stores fell or stayed, every six hours.

    The slope is that of the line of least squares through the sales of each hour; hours without
    sales are no points. `items` is the table of items, with their categories.
    """
    hourly = (
        sales.filter(col("store") <= LAST_STORE)
        .enrich(items.select(["item", "category"]), on="item", how="inner")
        .key_by("category")
        .tumbling("1h")
        .aggregate(y=plait.sum(col("quantity") * col("price")))
    )
    sums = (
        hourly.with_columns(x=col("window_start").hour() % 6)
        .key_by("category")
        .tumbling("6h")
        .aggregate(
            n=plait.count(),
            sx=plait.sum("x"),
            sy=plait.sum("y"),
            sxx=plait.sum(col("x") * col("x")),
            sxy=plait.sum(col("x") * col("y")),
        )
        .filter(col("n") > 1)
    )
    rise = col("n") * col("sxy") - col("sx") * col("sy")
    run = col("n") * col("sxx") - col("sx") * col("sx")
    return sums.filter(rise <= 0).select("category", "window_start", "window_end", slope=rise / run)


@dataclass(frozen=True, slots=True)
class Query:
    """A query and the stream that it reads; Q15 has the table of items beside it."""

    stream: str
    build: Callable[..., Stream]

    def over(self, given: Stream, items: Any) -> Stream:
        return self.build(given, items) if self.build is q15 else self.build(given)


QUERIES = {
    "q1": Query("sales", q1),
    "q2": Query("clicks", q2),
    "q3": Query("clicks", q3),
    "q4": Query("clicks", q4),
    "q15": Query("sales", q15),
}
