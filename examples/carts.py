"""Event time: abandoned carts by session, late clicks apart, and orders matched with payments.

Clicks come out of order. A session ends when its user has been away for ten minutes, judged by the
times in the clicks and not by the clock; results come in a defined order, the same on any number of
cores. What comes too late is not lost: it is a stream of its own.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import plait
from plait import col

START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


@dataclass
class Click:
    user: str
    page: str
    ts: plait.Timestamp


@dataclass
class Payment:
    user: str
    cents: int
    ts: plait.Timestamp


def click(user: str, page: str, minute: float) -> Click:
    return Click(user, page, START + plait.minutes(minute))


CLICKS = [
    click("ada", "home", 0),
    click("ada", "cart", 2),
    click("bob", "cart", 1.5),  # out of order, by less than the source allows
    click("bob", "order", 4),
    click("eve", "cart", 5),
    click("ada", "home", 40),
    click("eve", "home", 3),  # far too late: the session it was of has ended
    click("bob", "home", 60),
]
PAYMENTS = [Payment("bob", 4200, START + plait.minutes(5))]

job = plait.Job("carts")
clicks = job.source(plait.Items(CLICKS), name="clicks", event_time="ts", out_of_order="1m")
payments = job.source(plait.Items(PAYMENTS), name="payments", event_time="ts")

sessions = clicks.key_by("user").session(gap="10m")
abandoned = sessions.aggregate(
    pages=plait.count(),
    filled=plait.any(col("page") == "cart"),
    bought=plait.any(col("page") == "order"),
).filter(col("filled") & ~col("bought"))
abandoned.select("user", "pages", "window_start").sink(plait.Collect(), name="abandoned")

sessions.late().sink(plait.Collect(), name="late")

paid = clicks.filter(col("page") == "order").join(payments, on="user", between=("0s", "5m"))
paid.select("user", "cents").sink(plait.Collect(), name="paid")

# Epochs of one record, so that so few clicks show what many do: time goes on with every epoch.
result = plait.run(job, epoch_records=1)
for name in ("abandoned", "late", "paid"):
    print(f"{name}:")
    for row in result.outputs[name].to_pylist():
        print("  ", ", ".join(f"{key} {value}" for key, value in row.items()))
print(result.account)
