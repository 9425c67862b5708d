"""The partitions of a bounded read as one stream in an order that does not depend on when records
arrive: by time, then partition, then offset; or, of a live read that repeats what an earlier run
had, in the order in which that run handed them out. Pure.

The time of a record is here the greatest timestamp of its partition so far, so a partition never
goes back. What may be handed out is what no partition can still come before. So two runs over the
same offsets give the same stream, in an order that is good for event time too.

    >>> merge = TimeMerge({0: 0, 1: 0})
    >>> merge.add([Record(0, 0, 5, None, b"a", ()), Record(1, 0, 3, None, b"b", ())])
    >>> [record.value for record in merge.take(9)]
    [b'b']
    >>> merge.finish(1)
    >>> [record.value for record in merge.take(9)]
    [b'a']
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from plait.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from plait.connectors.kafka.client import Record
    from plait.connectors.kafka.positions import Choice

HELD, RESUMED = 200_000, 50_000
"""Records of a partition that wait for others, at which it is held, and read on."""
CHANGED = "the input has changed since: records of which the output is delivered are not there"


class TimeMerge:
    """Records that wait for those of other partitions."""

    def __init__(self, merged_ms: Mapping[int, int]) -> None:
        """`merged_ms`: the greatest time so far of each partition that is read."""
        self.newest = dict(merged_ms)
        """Of what was added."""
        self.waiting: dict[int, deque[tuple[int, Record]]] = {p: deque() for p in merged_ms}
        self.finished: set[int] = set()
        self.heads: list[tuple[int, int]] = []
        """A heap of (time, partition) of the first record of each partition that has one."""

    def add(self, records: Iterable[Record]) -> None:
        """Records of any partitions, those of one in the order of their offsets."""
        for record in records:
            partition = record.partition
            time = max(record.timestamp_ms, self.newest[partition])
            self.newest[partition] = time
            queue = self.waiting[partition]
            if not queue:
                heapq.heappush(self.heads, (time, partition))
            queue.append((time, record))

    def finish(self, partition: int) -> None:
        """All records of the partition were added."""
        self.finished.add(partition)

    @property
    def over(self) -> bool:
        return len(self.finished) == len(self.newest) and not self.heads

    def take(self, most: int) -> list[Record]:
        """The next records whose place is certain."""
        bound = min(
            ((time, p) for p, time in self.newest.items() if p not in self.finished),
            default=None,
        )
        taken: list[Record] = []
        while self.heads and len(taken) < most:
            head = self.heads[0]
            if bound is not None and head > bound:
                break
            partition = head[1]
            queue = self.waiting[partition]
            taken.append(queue.popleft()[1])
            if queue:
                heapq.heapreplace(self.heads, (queue[0][0], partition))
            else:
                heapq.heappop(self.heads)
        return taken


class Repeat:
    """Records that wait for their turn, as it was before."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices = deque(choices)
        """Those that are not repeated yet."""
        self.waiting: dict[int, deque[Record]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Records of any partitions, those of one in the order of their offsets."""
        for record in records:
            self.waiting.setdefault(record.partition, deque()).append(record)

    def lacking(self, reached: Callable[[int], int]) -> set[int]:
        """The partitions of which more must come before the next turn is whole; `reached`: up to
        where one was read."""
        return {
            partition
            for partition, _, end in self.choices[0].runs
            if self.read_up_to(partition) < end and reached(partition) < end
        }

    def read_up_to(self, partition: int) -> int:
        queue = self.waiting.get(partition)
        return queue[-1].offset + 1 if queue else -1

    def ahead(self, held: set[int]) -> set[int]:
        """The partitions of which enough waits."""
        return {
            partition
            for partition, queue in self.waiting.items()
            if len(queue) > (RESUMED if partition in held else HELD)
        }

    def take(self) -> tuple[Choice, list[Record]]:
        """The records of the next turn, when no partition lacks any. Raises a SourceError if they
        are not those of before."""
        choice = self.choices.popleft()
        taken: list[Record] = []
        for partition, count, end in choice.runs:
            queue = self.waiting.setdefault(partition, deque())
            run = []
            while queue and queue[0].offset < end:
                run.append(queue.popleft())
            if not run or len(run) != count or run[-1].offset != end - 1:
                raise SourceError(
                    f"{CHANGED}: before offset {end:,} of partition {partition} there were"
                    f" {count:,}, and now there are {len(run):,}"
                )
            taken += run
        return choice, taken

    def rest(self) -> list[Record]:
        """What waits when all is repeated: by partition."""
        waiting, self.waiting = self.waiting, {}
        return [record for partition in sorted(waiting) for record in waiting[partition]]
