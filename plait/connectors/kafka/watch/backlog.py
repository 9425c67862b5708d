"""Where the partitions of a topic end, and how far a reader is: samples for its rate.

Every fetch tells the high-water mark of its partition, so marks that have moved are taken as they
come. A reader that is held back fetches nothing and an idle partition has nothing to tell; so the
brokers are asked once a second as well, on another connection and by the thread that samples. The
one that polls only notes how far it is. Records count that are not committed yet: they came in.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.connectors.kafka.client import connect
from plait.errors import EnvironmentFailure
from plait.protocol.rates import Looks, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.connectors.kafka.client import EndsFinder
    from plait.connectors.kafka.reader import KafkaReader

ASK_EVERY_S = 1.0
REACHED_EVERY_S = 0.05
MARKS_PER_S = 100
"""So many marks of fetches are looked at, so that a topic with many partitions costs no more CPU
than one with ten: of 50, each is looked at twice a second."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far reading is; replaced as a whole, since two threads use it."""

    positions: Mapping[int, int]
    records: int


class TopicBacklog:
    """Of one open reader."""

    def __init__(self, reader: KafkaReader) -> None:
        self.reader = reader
        self.began = dict(reader.next)
        self.progress = Progress(dict(reader.next), 0)
        self.reached_at = 0.0
        self.finder: EndsFinder | None = None
        self.asked_at = self.marks_at = float("-inf")
        self.known: dict[int, int] = {}

    # By the thread that polls

    def note(self, records: int) -> None:
        """After each read, which gave so many records."""
        now = time.monotonic()
        if records == 0 and now - self.reached_at < REACHED_EVERY_S:
            return
        positions = dict(self.reader.next)
        if records == 0:
            self.reached_at = now
            positions = {p: max(at, self.reached(p)) for p, at in positions.items()}
        self.progress = Progress(positions, self.progress.records + records)

    def reached(self, partition: int) -> int:
        """How far a partition is read, over marks of transactions and removed records, when all
        that was fetched is handed out."""
        reader = self.reader
        if reader.repeat is not None or reader.over:
            return -1
        if reader.merge is None:
            return reader.consumer.reached(partition)
        assert reader.places.end is not None
        over = partition in reader.merge.finished and not reader.merge.waiting[partition]
        return reader.places.end[partition] if over and not reader.ready else -1

    # By the thread that samples

    def look(self) -> Looks:
        progress = self.progress
        end = self.reader.places.end
        ends: dict[int, tuple[float, int]] = {}
        if end is not None:  # it is known, and does not move
            now = time.monotonic()
            ends = {p: (now, max(at, end.get(p, 0))) for p, at in self.began.items()}
        else:
            if time.monotonic() - self.asked_at >= ASK_EVERY_S:
                ends = self.ask(list(progress.positions))
            if time.monotonic() - self.marks_at >= len(progress.positions) / MARKS_PER_S:
                self.marks_at = time.monotonic()
                ends |= self.moved_marks(progress.positions)
        self.known |= {partition: at for partition, (_, at) in ends.items()}
        return Looks(
            samples={
                str(p): Sample(at=at, position=progress.positions.get(p, 0), end=offset)
                for p, (at, offset) in ends.items()
            },
            positions={str(p): at for p, at in progress.positions.items()},
            passed=sum(at - self.began.get(p, at) for p, at in progress.positions.items()),
            records=progress.records,
        )

    def ask(self, partitions: list[int]) -> dict[int, tuple[float, int]]:
        """What the brokers say; nothing if they are away."""
        before = self.asked_at = time.monotonic()
        try:
            if self.finder is None:
                source = self.reader.source
                self.finder = connect(source.connection).ends_finder(source.topic)
            found = self.finder.find(partitions)
        except EnvironmentFailure:  # the reader itself says what is wrong
            return {}
        at = (before + time.monotonic()) / 2.0
        return {partition: (at, offset) for partition, offset in found.items()}

    def moved_marks(self, partitions: Mapping[int, int]) -> dict[int, tuple[float, int]]:
        """A mark that has not moved may be an old one, and says nothing."""
        found = {}
        for partition in partitions:
            mark = self.reader.consumer.highwater(partition)
            if mark > self.known.get(partition, -1):
                found[partition] = (time.monotonic(), mark)
        return found

    def close(self) -> None:
        if self.finder is not None:
            self.finder.close()
            self.finder = None
