"""Slow Python twins of the native structures.

Each twin says in a few plain lines what its C++ namesake in `include/plait/` must do when nothing
runs at the same time; property tests feed both the same operations and compare every answer. A twin
has no threads, but a callback may call back into it, which is how delegation and the taken flag
show up in one thread. The twins favour the obvious over the fast.

>>> buffer = ReorderBufferTwin[str](capacity=4)
>>> sent: list[str] = []
>>> take = lambda item: sent.append(item) is None
>>> buffer.send(1, "b", take), sent
(True, [])
>>> buffer.send(0, "a", take), sent
(True, ['a', 'b'])
"""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class RingTwin(Generic[T]):
    """SpscRing and MpmcRing: a bounded first-in first-out queue."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: deque[T] = deque()

    def try_push(self, item: T) -> bool:
        if len(self.items) == self.capacity:
            return False
        self.items.append(item)
        return True

    def try_pop(self) -> T | None:
        return self.items.popleft() if self.items else None

    def size_approx(self) -> int:
        return len(self.items)


class ReorderBufferTwin(Generic[T]):
    """ReorderBuffer and LockedReorderBuffer: items by serial, sent on from `next` without a gap."""

    def __init__(self, capacity: int, first: int = 0) -> None:
        self.capacity = capacity
        self.next = first
        self.waiting: dict[int, T] = {}
        self.sending = False

    def try_add(self, serial: int, item: T) -> bool:
        if not self.next <= serial < self.next + self.capacity:
            return False
        self.waiting[serial] = item
        return True

    def send_pending(self, send: Callable[[T], bool]) -> None:
        if self.sending:
            return
        self.sending = True
        while self.next in self.waiting and send(self.waiting[self.next]):
            del self.waiting[self.next]
            self.next += 1
        self.sending = False

    def send(self, serial: int, item: T, send: Callable[[T], bool]) -> bool:
        added = self.try_add(serial, item)
        self.send_pending(send)
        return added

    def ready(self) -> bool:
        return self.next in self.waiting


class HybridQueueTwin(Generic[T]):
    """HybridQueue: a master queue of partition numbers, a queue a partition, and delegation."""

    def __init__(self, partitions: int, capacity_per_partition: int) -> None:
        self.master: deque[int] = deque()
        self.queues = [RingTwin[T](capacity_per_partition) for _ in range(partitions)]
        self.counts = [0] * partitions

    def try_add(self, partition: int, item: T) -> bool:
        if not self.queues[partition].try_push(item):
            return False
        self.master.append(partition)
        return True

    def consume(self, operate: Callable[[int, T], None], max_items: int) -> int:
        processed = 0
        for _ in range(max_items):
            if not self.master:
                break
            partition = self.master.popleft()
            self.counts[partition] += 1
            if self.counts[partition] > 1:
                continue  # Delegated to the call further up the stack that is operating here.
            while self.counts[partition] > 0:
                item = self.queues[partition].try_pop()
                assert item is not None, "an entry in the master queue without an item behind it"
                operate(partition, item)
                processed += 1
                self.counts[partition] -= 1
        return processed

    def size_approx(self) -> int:
        return sum(queue.size_approx() for queue in self.queues)


class HistogramTwin:
    """Histogram: every value kept; answers rounded up to the edge of a bucket 1/32 wide."""

    def __init__(self) -> None:
        self.values: Counter[int] = Counter()
        self.sum = 0.0

    def record(self, value: int, count: int = 1) -> None:
        if count > 0:
            self.values[value] += count
            self.sum += float(value) * float(count)

    def merge(self, other: HistogramTwin) -> None:
        self.values += other.values
        self.sum += other.sum

    def count(self) -> int:
        return self.values.total()

    def max(self) -> int:
        return max(self.values, default=0)

    def mean(self) -> float:
        return self.sum / self.count() if self.values else 0.0

    def percentile(self, percent: float) -> int:
        rank = max(1, math.ceil(percent / 100.0 * self.count()))
        seen = 0
        for value in sorted(self.values):
            seen += self.values[value]
            if seen >= rank:
                return min(self.upper_edge(value), self.max())
        return self.max()

    @staticmethod
    def upper_edge(value: int) -> int:
        """The largest value in the same bucket: all bits below the leading six are ones."""
        below = max(0, value.bit_length() - 6)
        return value | ((1 << below) - 1)
