"""Taxi rides and their fares: the two streams, and the shape of a data set.

A ride has a record when it starts and one when it ends, and a fare when it ends. Few zones and
drivers have most rides, and the evening has more of them than the night. Money is in cents.
"""

from dataclasses import dataclass

import plait

PERIODS = (4, 2, 9, 8, 8, 10, 12, 9)
"""Rides in each three hours of a day, as shares."""
DAY_US = 86_400_000_000


@dataclass
class Ride:
    ride: int
    taxi: int
    driver: int
    starts: bool
    """Or ends."""
    zone: int
    lon: float
    lat: float
    passengers: int
    ts: plait.Timestamp


@dataclass
class Fare:
    ride: int
    taxi: int
    driver: int
    payment: str
    tip: int
    tolls: int
    total: int
    ts: plait.Timestamp


SCHEMAS = {"rides": Ride, "fares": Fare}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything that a data set follows from."""

    events: int = 1_000_000
    """Records of rides; a fare comes with each that ends."""
    seed: int = 7
    rides_per_day: int = 200_000
    start_us: int = 1_767_225_600_000_000
    """2026-01-01."""
    out_of_order_us: int = 60_000_000
    """Up to so much an event time lies before that of an event that came earlier; 0: in order."""

    @property
    def block(self) -> int:
        """Rides that begin in ten minutes, on average: a ride takes one to three times as long."""
        return max(1, self.rides_per_day // 144)

    @property
    def before_ends(self) -> int:
        """Rides that begin before the first one ends."""
        return 2 * self.block

    def rows(self, stream: str, events: int | None = None) -> int:
        """How many records of a stream are among the first `events` of the rides."""
        events = self.events if events is None else events
        return events if stream == "rides" else max(0, events - self.before_ends) // 2
