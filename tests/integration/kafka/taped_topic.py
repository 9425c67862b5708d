"""A live topic whose polls are kept: the run reads the brokers, the sequential run reads the tape.

Which partition came when is up to the network, so a second live read has another order. Whether the
tape itself is right is judged by `committed`, which reads each partition by itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import plait
from plait.connectors.bad_rows import PolledRows

if TYPE_CHECKING:
    from plait.testing.broker import LocalBroker

Place = tuple[int, int]
"""A partition and an offset."""


class Tape(plait.Source):
    """A live topic that ends after `count` records, good and bad. What is opened second plays the
    polls of the first."""

    bounded = False

    def __init__(self, topic: plait.Kafka, count: int, polls: list[PolledRows] | None = None):
        self.topic = topic
        self.schema = topic.schema
        self.count = count
        self.polls: list[PolledRows] = [] if polls is None else polls

    def by_partition(self, column: str, max_jump_us: int, idle_us: int) -> plait.Source | None:
        parted = self.topic.by_partition(column, max_jump_us, idle_us)
        return None if parted is None else Tape(parted, self.count, self.polls)

    def open(self, position: Any = None) -> plait.Reader:
        return Playing(self.polls) if self.polls else Taping(self)

    @property
    def read(self) -> int:
        return sum(map(len, self.polls))

    def places(self) -> dict[int, list[int]]:
        """The offsets of what was read of each partition, in the order it came."""
        found: dict[int, list[int]] = {}
        for poll in self.polls:
            bad = {one.row: (one.record["partition"], one.record["offset"]) for one in poll.bad}
            columns = (poll.good.column(name).to_pylist() for name in ("partition", "offset"))
            good = iter(zip(*columns, strict=True))
            for row in range(len(poll)):
                partition, offset = bad[row] if row in bad else next(good)
                found.setdefault(partition, []).append(offset)
        return found


class Taping(plait.Reader):
    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.inner: Any = tape.topic.open()
        self.left = tape.count

    def poll_with_bad(self, max_rows: int) -> Any:
        if self.left == 0:
            return None
        rows = self.inner.poll_with_bad(min(max_rows, self.left))
        if isinstance(rows, PolledRows):
            self.left -= len(rows)
            self.tape.polls.append(rows)
        return rows

    def position(self) -> Any:
        return self.inner.position()

    def close(self) -> None:
        self.inner.close()


class Playing(plait.Reader):
    def __init__(self, polls: list[PolledRows]) -> None:
        self.polls = iter(polls)

    def poll_with_bad(self, max_rows: int) -> Any:
        return next(self.polls, None)


def committed(kafka: LocalBroker, topic: str) -> dict[int, list[int]]:
    """The offsets of the committed records of each partition."""
    found: dict[int, list[int]] = {}
    for record in kafka.read(topic):
        found.setdefault(record.partition, []).append(record.offset)
    return found


def value_of(n: int) -> bytes:
    """A record of key n % 7, a tenth of a second after the last one; some are not JSON."""
    if n % 41 == 40:
        return b"bad %d" % n
    return json.dumps({"k": n % 7, "n": n, "at": 1_700_000_000_000 + n * 100}).encode()
