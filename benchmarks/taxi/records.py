"""The records of taxi rides, written once for numpy and for Spark (`benchmarks.support.draws`).

Rides begin in the order of their numbers. After the first ones every other record of the stream is
the end of a ride: those of a block of rides end in the block after the next, in another order. So
the times of the stream go up, but for what is shaken, and rides are of different lengths.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from benchmarks.support.draws import PRICES
from benchmarks.taxi.schema import DAY_US, PERIODS

if TYPE_CHECKING:
    from benchmarks.support.draws import Draws
    from benchmarks.taxi.schema import Shape

RANKS = 1000
"""Zones, and tens of drivers."""
WEST, SOUTH = -74.25, 40.5
COLUMNS = 40
"""Of zones, each a hundredth of a degree wide."""
MIXED = 7919


class What(enum.IntEnum):
    """What is drawn."""

    DELAY = 1
    ORDER = 2
    DRIVER = 3
    DRIVER_OF_TEN = 4
    FROM = 5
    TO = 6
    LON = 7
    LAT = 8
    PASSENGERS = 9
    CASH = 10
    TIP = 11
    TOLLS = 12
    PRICE = 13


def rides(draws: Draws, shape: Shape, number: Any) -> dict[str, Any]:
    after = number - shape.before_ends
    slot = draws.div(draws.choose(after < 0, 0, after), 2)
    starts = (after < 0) | (after % 2 == 0)
    begins = draws.choose(after < 0, number, shape.before_ends + slot)
    ride = draws.choose(starts, begins, ending(draws, shape, slot))
    # The place is drawn for the record: a ride ends elsewhere.
    zone = ranked(draws, What.FROM, number)
    east, north = (draws.draw(what, number, 10_000) for what in (What.LON, What.LAT))
    return {
        **who(draws, ride),
        "starts": starts,
        "zone": zone,
        "lon": (zone % COLUMNS * 10_000 + east) / 1e6 + WEST,
        "lat": (draws.div(zone, COLUMNS) * 10_000 + north) / 1e6 + SOUTH,
        "passengers": draws.draw(What.PASSENGERS, ride, 6) + 1,
        "ts": draws.moment(shaken(draws, shape, number, time_of(draws, shape, begins))),
    }


def fares(draws: Draws, shape: Shape, number: Any) -> dict[str, Any]:
    ride = ending(draws, shape, number)
    cash = draws.draw(What.CASH, ride, 3) == 0
    fare = draws.draw(What.PRICE, ride, 4_000) + 500
    tip = draws.choose(cash, 0, draws.div(fare * draws.draw(What.TIP, ride, 30), 100))
    tolls = draws.choose(draws.draw(What.TOLLS, ride, 10) == 0, 612, 0)
    # At the place of the record that ends the ride, with its time.
    record = shape.before_ends + number * 2 + 1
    moment = time_of(draws, shape, shape.before_ends + number)
    return {
        **who(draws, ride),
        "payment": draws.pick(draws.choose(cash, 1, 0), ("card", "cash")),
        "tip": tip,
        "tolls": tolls,
        "total": fare + tip + tolls,
        "ts": draws.moment(shaken(draws, shape, record, moment)),
    }


STREAMS = {"rides": rides, "fares": fares}


def who(draws: Draws, ride: Any) -> dict[str, Any]:
    driver = ranked(draws, What.DRIVER, ride) * 10 + draws.draw(What.DRIVER_OF_TEN, ride, 10)
    return {"ride": ride, "taxi": draws.div(driver, 2), "driver": driver}


def ending(draws: Draws, shape: Shape, slot: Any) -> Any:
    """The ride that ends in a slot: its block in another order, shifted for each block."""
    size = shape.block
    block = draws.div(slot, size)
    shift = draws.draw(What.ORDER, block, size)
    return block * size + (slot % size * coprime(size) + shift) % size


def coprime(size: int) -> int:
    """A number without a common divisor, so that its multiples reach everything below `size`."""
    import math

    return next(
        step for step in range(max(1, size * 5 // 8), size + 2) if math.gcd(step, size) == 1
    )


def ranked(draws: Draws, what: int, at: Any) -> Any:
    """A number below RANKS, the n-th of them n times as rare as the first."""
    drawn = draws.div(draws.price(draws.draw(what, at, PRICES // 2)), 100) - 1
    return draws.least(drawn, RANKS - 1) * MIXED % RANKS


def time_of(draws: Draws, shape: Shape, ride: Any) -> Any:
    """When a ride begins: each three hours of a day have their share of its rides."""
    per_day, shares = shape.rides_per_day, sum(PERIODS)
    day = draws.div(ride, per_day)
    done = (ride - day * per_day) * shares
    length = DAY_US // len(PERIODS)
    passed, moment = 0, None
    for period, share in enumerate(PERIODS):
        inside = draws.div((done - passed * per_day) * (length // 1000), share * per_day) * 1000
        here = period * length + inside
        moment = here if moment is None else draws.choose(done < passed * per_day, moment, here)
        passed += share
    return shape.start_us + day * DAY_US + moment


def shaken(draws: Draws, shape: Shape, record: Any, moment: Any) -> Any:
    if shape.out_of_order_us == 0:
        return moment
    return moment - draws.draw(What.DELAY, record, shape.out_of_order_us + 1)
