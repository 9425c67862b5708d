"""How far the event time of a source with partitions is, at each of its rows. Pure.

The time of a partition is the greatest event time of its rows so far, but one row moves it by at
most `max_jump`. The time of the source is the least of its partitions that are not idle, so a
partition that lags behind has no late rows; it never falls. When all are idle it is the greatest of
them. A partition that is idle counts again from its next row.

    >>> clock = PartitionClock([0, 1])
    >>> clock.read([0, 1, 1, 0], [50, 10, 30, 20]).tolist() == [NO_TIME, 10, 30, 30]
    True
    >>> clock.rest([1])
    >>> clock.read([0], [60]).tolist()
    [60]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.model.durations import LONGEST_US

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

NO_TIME = -(2**63)
"""As the engine has it; it sorts before every time."""
REST = 2**63 - 1
"""Stands for the time of an idle partition."""
FARTHEST_US = 2**62
"""Event times are within this of 1970; others move nothing."""


class PartitionClock:
    """The times of the partitions of a source."""

    def __init__(
        self,
        partitions: Iterable[int],
        *,
        max_jump_us: int = LONGEST_US,
        times: Mapping[int, int] | None = None,
        now: int = NO_TIME,
    ) -> None:
        """`times` and `now` are those of a clock that is gone on with; partitions that are not in
        `times` begin with `now`."""
        known = times or {}
        self.times = {partition: known.get(partition, now) for partition in partitions}
        self.now = now
        """The time of the source."""
        self.idle: set[int] = set()
        self.max_jump_us = max_jump_us

    def add(self, partitions: Iterable[int]) -> None:
        """New partitions begin with the time of the source: they do not hold it back by what is
        long gone."""
        self.times |= dict.fromkeys(partitions, self.now)

    def rest(self, idle: Collection[int]) -> None:
        """From now on these partitions are idle, and no others."""
        self.idle = set(idle) & self.times.keys()
        if self.idle and len(self.idle) == len(self.times):
            self.now = max(self.now, *self.times.values())

    def least(self) -> int:
        """The least time of the partitions that are not idle; REST: all are."""
        return min((at for p, at in self.times.items() if p not in self.idle), default=REST)

    def read(self, partitions: Any, times: Any) -> Any:
        """The time of the source at each of these rows, given their partitions and event times."""
        import numpy as np

        numbers = np.asarray(partitions, np.int64)
        row_times = np.asarray(times, np.int64)
        out = np.empty(len(numbers), np.int64)
        changes = np.flatnonzero(np.diff(numbers)) + 1
        if not len(numbers):
            return out
        starts = [0, *changes.tolist()]
        for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            partition = int(numbers[start])
            before = self.times[partition]
            self.times[partition] = REST
            self.idle.discard(partition)
            others = self.least()
            moved = moved_by(row_times[start:end], before, self.max_jump_us)
            self.times[partition] = int(moved[-1])
            run = np.maximum(np.minimum(moved, others), self.now)
            self.now = int(run[-1])
            out[start:end] = run
        return out


def moved_by(times: Any, before: int, max_jump_us: int) -> Any:
    """The time of a partition behind each of its rows."""
    import numpy as np

    near = (times >= -FARTHEST_US) & (times <= FARTHEST_US)
    counted = np.where(near, times, NO_TIME)
    moved = np.maximum(np.maximum.accumulate(counted), before)
    first = before if before != NO_TIME else int(moved[0])
    if first != NO_TIME and int(moved[-1]) - first <= max_jump_us:
        return moved
    now = before
    for row, time in enumerate(counted.tolist()):
        if time != NO_TIME:
            now = time if now == NO_TIME else max(now, min(time, now + max_jump_us))
        moved[row] = now
    return moved
