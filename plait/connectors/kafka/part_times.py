"""The event times of the partitions of a live topic, as its reader sees them.

A partition is idle if it has been empty for a while: the brokers said, not long ago, that all of it
was read, and the client had nothing left to hand out. A timer alone would take one whose broker is
away, or whose records wait in the client, for idle, and its records would be late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.connectors.kafka.partition_clock import NO_TIME, REST, PartitionClock
from plait.connectors.kafka.watch.watching import GAP_S

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from plait.connectors.kafka.client import Bounds, Record
    from plait.connectors.kafka.kafka import TimeOfParts
    from plait.connectors.kafka.positions import Choice, Places

REST_S = 0.05
"""How often idle partitions are looked for."""
RESUMED = 2
"""A partition that waits goes on when it is ahead by this part of what is allowed."""


class PartTimes:
    """The clock of a reader, and when each partition was last known to be busy."""

    def __init__(self, how: TimeOfParts, places: Places) -> None:
        self.how = how
        self.clock = PartitionClock(
            places.next,
            max_jump_us=how.max_jump_us,
            times=places.times,
            now=NO_TIME if places.now is None else places.now,
        )
        self.ends: Mapping[int, Bounds] = {}
        """What the brokers said."""
        self.looked_s = 0.0
        self.busy_s: dict[int, float] = {}
        """When a partition last had records, or was first seen."""
        self.full_s = 0.0
        """When the client last had more to hand out than was taken."""
        self.rested_s = 0.0

    def take_look(self, look: Mapping[int, Bounds], now_s: float) -> None:
        self.ends = look
        self.looked_s = now_s

    def note(self, came: Collection[int], full: bool, now_s: float) -> None:
        """After each fetch: the partitions of what came, and whether there may be more in the
        client."""
        self.busy_s |= dict.fromkeys(came, now_s)
        self.clock.idle.difference_update(came)  # before any of them counts
        if full:
            self.full_s = now_s

    def is_due(self, now_s: float) -> bool:
        """Whether to look again for partitions that are idle."""
        return now_s - self.rested_s >= REST_S

    def rest(self, reached: Mapping[int, int], now_s: float) -> None:
        """Finds the partitions that are idle; `reached`: up to where each was read."""
        self.rested_s = now_s
        idle_s = self.how.idle_us / 1e6
        known = now_s - self.looked_s <= GAP_S
        self.clock.rest(
            [
                partition
                for partition, at in reached.items()
                if now_s - max(self.busy_s.setdefault(partition, now_s), self.full_s) > idle_s
                and known
                and partition in self.ends
                and self.ends[partition].high <= at
            ]
        )

    def put_back(self, choice: Choice) -> None:
        """Before rows that are repeated: time is where it was before them."""
        self.clock.times |= dict(choice.fresh)
        self.clock.idle = set(choice.idle)
        if choice.now is not None:
            self.clock.now = choice.now

    def clock_of(self, rows: Any, records: Sequence[Record]) -> Any:
        """The time of the topic at each of these rows, and the records that they are of."""
        import numpy as np
        import pyarrow as pa

        times = rows.column(self.how.column).cast(pa.int64()).to_numpy()
        partitions = np.fromiter((r.partition for r in records), np.int64, len(records))
        return pa.array(self.clock.read(partitions, times), pa.int64())

    def ahead(self, held: Collection[int]) -> set[int]:
        """The partitions that are to wait for the slowest one: those further ahead than
        `max_drift`, and of those that wait already (`held`) until it is half of that."""
        if self.how.max_drift_us is None:
            return set()
        return find_ahead(self.clock.times, self.clock.least(), held, self.how.max_drift_us)


def find_ahead(
    times: Mapping[int, int], least: int, held: Collection[int], max_drift_us: int
) -> set[int]:
    """The partitions that are too far ahead of the least time. As long as nothing is known of one
    of them none waits: it may be the one that is read next.

    >>> sorted(find_ahead({0: 5, 1: 70, 2: 40}, 5, {2}, 60))
    [1, 2]
    >>> find_ahead({0: 15, 1: 70, 2: 40}, 15, {2}, 60)
    set()
    """
    if least in (NO_TIME, REST):
        return set()
    return {
        partition
        for partition, at in times.items()
        if at - least > (max_drift_us // RESUMED if partition in held else max_drift_us)
    }
