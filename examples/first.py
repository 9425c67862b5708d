"""The first job: a hundred thousand made-up bids, the running price of each auction, ten rows."""

from __future__ import annotations

import plait
from plait import col

bids = plait.stream(
    {"auction": i * 7 % 13, "bidder": i % 101, "price": i * 31 % 1000} for i in range(100_000)
)
(
    bids.filter(col("price") > 900)
    .key_by("auction")
    .aggregate(bids=plait.count(), highest=plait.max("price"), mean=plait.mean("price"))
    .show(10)
)
