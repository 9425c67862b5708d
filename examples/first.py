"""The first job: made-up bids, running figures of each auction, and the proof against a plain loop.

The same job runs on every core, and its output is compared with what a `for` loop over the bids
gives: the same rows, in the same order. Then both are timed.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

import plait
from plait import col

N = 2_000_000
random = np.random.default_rng(7)
bids = pa.table(
    {"auction": random.integers(0, 10_000, N), "price": random.integers(1, 1_000, N)},
    schema=pa.schema(
        [pa.field("auction", pa.int64(), False), pa.field("price", pa.int64(), False)]
    ),
)


def totals(stream: plait.Stream) -> plait.Stream:
    """For every bid above 100: how many there were in its auction so far, and their sum."""
    return (
        stream.filter(col("price") > 100)
        .key_by("auction")
        .aggregate(bids=plait.count(), total=plait.sum("price"))
    )


def plain_loop() -> list[tuple[int, int, int]]:
    counts: dict[int, int] = {}
    sums: dict[int, int] = {}
    rows = []
    for auction, price in zip(*(column.to_pylist() for column in bids.columns), strict=True):
        if price > 100:
            counts[auction] = counts.get(auction, 0) + 1
            sums[auction] = sums.get(auction, 0) + price
            rows.append((auction, counts[auction], sums[auction]))
    return rows


totals(plait.stream(bids)).show(5)

job = plait.Job("first")
totals(job.source(plait.Table(bids), name="bids")).sink(plait.Collect(), name="totals")
print()
job.explain()
print()

result = plait.run(job)
began = time.perf_counter()
expected = plain_loop()
loop_s = time.perf_counter() - began

made = result.outputs["totals"]
assert list(zip(*(column.to_pylist() for column in made.columns), strict=True)) == expected
print(f"{made.num_rows:,} rows, the same as the loop's, in the same order")
print(f"account: {result.account}")
print(f"plait:   {N / result.seconds / 1e6:6.1f} million bids a second")
print(f"loop:    {N / loop_s / 1e6:6.1f} million bids a second")
