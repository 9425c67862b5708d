"""A topic in memory behind the port of Kafka's client libraries: which partitions come in a fetch,
and how many of their records, is up to a random source, as it is up to the network.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from plait.connectors.base import Reader, Source
from plait.connectors.kafka import part_times, reader
from plait.connectors.kafka.client import Bounds, Record
from plait.connectors.kafka.watch import backlog, lookout, watching

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

    import plait


class MemoryTopic:
    """The records of each partition. `connect` gives it in place of a client."""

    def __init__(self, partitions: Sequence[Sequence[bytes]], chance: random.Random) -> None:
        self.records = [
            [Record(p, offset, 0, None, value, ()) for offset, value in enumerate(values)]
            for p, values in enumerate(partitions)
        ]
        self.chance = chance
        self.order: Sequence[int] = ()
        """The partitions in the order in which they come, if that is not up to chance."""
        self.low = 0
        """The first offset that is there."""

    @property
    def count(self) -> int:
        return sum(map(len, self.records))

    @contextmanager
    def in_place_of_brokers(self) -> Iterator[None]:
        """Looks at the topic come often, and partitions are soon idle."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (reader, lookout, backlog):
                patch.setattr(module, "connect", lambda connection: self)
            patch.setattr(watching, "LOOK_S", 0.002)
            patch.setattr(part_times, "REST_S", 0.0)
            yield

    def consumer(self, topic: str) -> MemoryConsumer:
        return MemoryConsumer(self)

    def ends_finder(self, topic: str) -> MemoryConsumer:
        return MemoryConsumer(self)


class MemoryConsumer:
    def __init__(self, topic: MemoryTopic) -> None:
        self.topic = topic
        self.at: dict[int, int] = {}
        self.held: set[int] = set()

    def partitions(self) -> list[int]:
        return list(range(len(self.topic.records)))

    def partitions_now(self, patience_s: float) -> list[int]:
        return self.partitions()

    def bounds(self, partitions: Sequence[int], patience_s: float = 0.0) -> dict[int, Bounds]:
        return {p: Bounds(self.topic.low, len(self.topic.records[p])) for p in partitions}

    def assign(self, offsets: Mapping[int, int]) -> None:
        self.at = dict(offsets)

    def add(self, offsets: Mapping[int, int]) -> None:
        self.at |= offsets

    def fetch(self, most: int) -> list[Record]:
        topic = self.topic
        found: list[Record] = []
        order = list(topic.order) or topic.chance.sample(sorted(self.at), len(self.at))
        for partition in order:
            if partition in self.held:
                continue
            left = most - len(found)
            count = left if topic.order else topic.chance.randint(0, min(4, left))
            come = topic.records[partition][self.at[partition] :][:count]
            self.at[partition] += len(come)
            found += come
        return found

    def find(self, partitions: Sequence[int]) -> dict[int, int]:
        return {p: bound.high for p, bound in self.bounds(partitions).items()}

    def reached(self, partition: int) -> int:
        return self.at[partition]

    def highwater(self, partition: int) -> int:
        return len(self.topic.records[partition])

    def hold(self, partition: int, held: bool) -> None:
        (self.held.add if held else self.held.discard)(partition)

    def away_s(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


class Ending(Source):
    """A live topic that ends when all of it was read."""

    bounded = False

    def __init__(self, topic: plait.Kafka, count: int) -> None:
        self.topic = topic
        self.schema = topic.schema
        self.count = count

    def by_partition(self, column: str, max_jump_us: int, idle_us: int) -> Source | None:
        parted = self.topic.by_partition(column, max_jump_us, idle_us)
        return None if parted is None else Ending(parted, self.count)

    def row_at(self, position: Any) -> int:
        return 0 if position is None else sum(at for _, at in position["next"])

    def open(self, position: Any = None) -> Reader:
        return EndingReader(self.topic.open_reader(position), self.count)


class EndingReader(Reader):
    def __init__(self, inner: Any, count: int) -> None:
        self.inner = inner
        self.count = count

    def poll(self, max_rows: int) -> Any:
        if sum(self.inner.next.values()) == self.count:
            return None
        return self.inner.poll(max_rows)

    def position(self) -> Any:
        return self.inner.position()

    def log_choices(self, again: Sequence[bytes]) -> Any:
        return self.inner.log_choices(again)

    def close(self) -> None:
        self.inner.close()
