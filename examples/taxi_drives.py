"""Taxi drives: rides and fares as one stream, and two expensive questions about it.

A ride has a record when it starts, one when it ends, and a fare. `trips` says of each trip how its
price compares with simulated trips of the same length; `drivers` says what each driver earned in
each hour, and may expect. The simulations stand for models that cost many microseconds a record.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa

import plait
from plait import col, lit

RIDES = 4_000 if "PLAIT_QUICK" in os.environ else 40_000
RECORDS_OF_A_TRIP = 3
TRIP_PATHS, DRIVER_PATHS = 6_000, 3_000
"""Simulated trips for a trip, and futures for each record of a driver."""


@plait.compiled
def dearer_than(ride: int, length_us: int, cents: int, paths: int) -> int:
    """How many of a thousand simulated trips of the same length cost less."""
    seed, cheaper = ride % 2147483648, 0
    for _ in range(paths):
        seed = (seed * 1103515245 + 12345) % 2147483648
        cents_a_minute = 20 + seed // 65536 % 81
        cheaper += 500 + length_us // 60000000 * cents_a_minute < cents
    return cheaper * 1000 // paths


@plait.compiled
def outlook(driver: int, minute: int, cents: int, paths: int) -> int:
    """What a driver may earn in the rest of the hour, in cents: the mean of simulated futures."""
    seed, total = (driver * 31 + cents) % 2147483648, 0
    for _ in range(paths):
        seed = (seed * 1103515245 + 12345) % 2147483648
        total += seed // 65536 % 3000 * (60 - minute) // 60
    return total // paths


def one_stream(rides: plait.Stream, fares: plait.Stream) -> plait.Stream:
    """What happens in a ride, with the money that it brought."""
    return rides.select("ride", "driver", "ts", cents=lit(0)).union(
        fares.select("ride", "driver", "ts", cents=col("total"))
    )


def trips(records: plait.Stream, paths: int = TRIP_PATHS) -> plait.Stream:
    """One row for each trip, when all of its records are there."""
    whole = (
        records.key_by("ride", ttl="6h")
        .aggregate(
            records=plait.count(),
            cents=plait.sum("cents"),
            started=plait.min("ts"),
            ended=plait.max("ts"),
        )
        .filter(col("records") == RECORDS_OF_A_TRIP)
    )
    length_us = col("ended") - col("started")
    return whole.select(
        "ride", "cents", dearer_than=dearer_than(col("ride"), length_us, col("cents"), paths)
    )


def drivers(records: plait.Stream, paths: int = DRIVER_PATHS) -> plait.Stream:
    """One row for each driver and hour."""
    minute = col("ts").minute()
    expected = outlook(col("driver"), minute, col("cents"), paths)
    return (
        records.with_columns(outlook=expected)
        .key_by("driver")
        .tumbling("1h")
        .aggregate(records=plait.count(), cents=plait.sum("cents"), outlook=plait.mean("outlook"))
    )


def draw(count: int) -> tuple[pa.Table, pa.Table]:
    """The rides of a day and their fares, in order of time; a few drivers have most of them."""
    random = np.random.default_rng(7)
    starts = np.sort(random.integers(0, 86_400, count))
    ends = starts + random.integers(180, 2_700, count)
    driver = random.zipf(1.3, count) % 1_000
    total = 500 + (ends - starts) * random.integers(20, 101, count) // 60

    def table(ride: np.ndarray, at_s: np.ndarray, **more: np.ndarray) -> pa.Table:
        ts = pa.array(at_s * 1_000_000 + 1_767_225_600_000_000).cast(pa.timestamp("us", "UTC"))
        found = pa.table({"ride": ride, "driver": driver[ride], "ts": ts, **more})
        return found.take(np.argsort(at_s, kind="stable"))

    number = np.arange(count)
    rides = table(np.concatenate([number, number]), np.concatenate([starts, ends]))
    return rides, table(number, ends, total=total)


def main() -> None:
    rides, fares = draw(RIDES)
    job = plait.Job("taxi-drives")
    records = one_stream(
        job.source(plait.Table(rides), name="rides", event_time="ts"),
        job.source(plait.Table(fares), name="fares", event_time="ts"),
    )
    trips(records).sink(plait.Collect(), name="trips")
    drivers(records).sink(plait.Collect(), name="drivers")
    result = plait.run(job)

    found, hours = result.outputs["trips"], result.outputs["drivers"]
    print(f"{RIDES:,} rides, {result.records_per_s:,.0f} records a second")
    dear = found["dearer_than"].to_numpy()
    print(f"{np.mean(dear >= 900):.1%} of the trips cost more than 9 of 10 of their length")
    print(f"{hours.num_rows:,} hours of drivers, {sum(hours['cents'].to_pylist()) / 100:,.2f} paid")
    assert sorted(found["ride"].to_pylist()) == list(range(RIDES))
    assert sum(hours["cents"].to_pylist()) == sum(fares["total"].to_pylist())
    print(result.account)


if __name__ == "__main__":
    main()
