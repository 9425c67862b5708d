"""Where a reader of a topic is: the next offset of every partition. Pure.

A bounded reader also keeps its end, which is found once, and the time up to which each partition is
merged, so that a run that goes on has the records in the same order. Of a live one the order
depends on when records come; `Choice` is what it handed out in one poll.

    >>> found = Places(next={0: 7, 1: 4})
    >>> Places.of(found.to_plain()) == found
    True
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.checkpoints.cuts import NoteReader, put_number, put_signed
from plait.errors import JobError, SourceError
from plait.model.records import microseconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.connectors.kafka.client import Bounds, Consumer

Start = str | datetime.datetime | dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """A position in a topic."""

    next: Mapping[int, int]
    """The offset to read next, of each partition."""
    end: Mapping[int, int] | None = None
    """Where reading ends; None: it does not."""
    merged_ms: Mapping[int, int] = field(default_factory=dict)
    """Of a bounded reader: the greatest time so far, of each partition."""
    rows: Mapping[int, int] = field(default_factory=dict)
    """Of values with several rows: how many of the next record were handed out, if any."""
    times: Mapping[int, int] = field(default_factory=dict)
    """Of a live reader whose event time is used: that of each partition."""
    now: int | None = None
    """And that of the topic."""

    def to_plain(self) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        plain: dict[str, Any] = {"next": pairs(self.next)}
        if self.end is not None:
            plain |= {"end": pairs(self.end), "merged_ms": pairs(self.merged_ms)}
        if self.rows:
            plain["rows"] = pairs(self.rows)
        if self.now is not None:
            plain |= {"times": pairs(self.times), "now": self.now}
        return plain

    @classmethod
    def of(cls, plain: Any) -> Places:
        """The position that `to_plain` gave."""
        try:
            end = plain.get("end")
            return cls(
                next=dict(plain["next"]),
                end=None if end is None else dict(end),
                merged_ms=dict(plain.get("merged_ms", ())),
                rows=dict(plain.get("rows", ())),
                times=dict(plain.get("times", ())),
                now=plain.get("now"),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SourceError(f"{plain!r} is not a position of a Kafka topic") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a poll of a live reader handed out, and how it took the time of the partitions.

    >>> choice = Choice(runs=((0, 3, 7), (2, 1, 900)), now=-5, idle=(1,), fresh=((2, -5),))
    >>> Choice.of(choice.to_bytes()) == choice
    True
    """

    runs: tuple[tuple[int, int, int], ...]
    """Partitions, in this order: how many records of each, and the offset after the last."""
    now: int | None = None
    """The time of the topic before these rows, if it was not that behind the ones before."""
    idle: tuple[int, ...] = ()
    """The partitions that were idle."""
    fresh: tuple[tuple[int, int], ...] = ()
    """The partitions that were new since the last poll with rows, and the time each began with."""

    def to_bytes(self) -> bytes:
        out = bytearray()
        put_number(out, len(self.runs))
        for run in self.runs:
            for number in run:
                put_number(out, number)
        out.append(self.now is not None)
        if self.now is not None:
            put_signed(out, self.now)
        put_number(out, len(self.idle))
        for partition in self.idle:
            put_number(out, partition)
        put_number(out, len(self.fresh))
        for partition, at in self.fresh:
            put_number(out, partition)
            put_signed(out, at)
        return bytes(out)

    @classmethod
    def of(cls, choice: bytes) -> Choice:
        """What `to_bytes` gave. Raises a StateError unless every byte is right."""
        read = NoteReader(choice, 0, len(choice), "the choices of a Kafka topic")
        found = cls(
            runs=tuple((read.number(), read.number(), read.number()) for _ in range(read.number())),
            now=read.signed() if read.byte() else None,
            idle=tuple(read.number() for _ in range(read.number())),
            fresh=tuple((read.number(), read.signed()) for _ in range(read.number())),
        )
        if read.at != read.end:
            raise read.damaged()
        return found


def pairs(numbers: Mapping[int, int]) -> list[list[int]]:
    return [[partition, numbers[partition]] for partition in sorted(numbers)]


def check_start(name: str, given: Any, words: Sequence[str]) -> Start:
    """`start=` or `end=`, checked."""
    if isinstance(given, str) and given in words:
        return given
    if isinstance(given, datetime.datetime):
        if given.utcoffset() is None:
            raise JobError(f"Kafka: {name}= has no time zone; add one, such as tzinfo=datetime.UTC")
        return given
    if isinstance(given, dict) and all(
        type(number) is int and number >= 0 for pair in given.items() for number in pair
    ):
        return given
    known = ", ".join(f'"{word}"' for word in words)
    raise JobError(
        f"Kafka: {name} is {given!r}; write {known}, a datetime, or a dict of partitions to offsets"
    )


def resolve(
    given: Start, consumer: Consumer, bounds: Mapping[int, Bounds], otherwise: str
) -> dict[int, int]:
    """The offset of each partition that `start=` or `end=` stands for. Partitions that a dict does
    not name are at `otherwise`."""
    if isinstance(given, str):
        return {p: b.low if given == "earliest" else b.high for p, b in bounds.items()}
    if isinstance(given, datetime.datetime):
        found = consumer.offsets_at(list(bounds), -(-microseconds_of(given) // 1000))
        there = {partition: found.get(partition) for partition in bounds}
        return {p: bounds[p].high if at is None else at for p, at in there.items()}
    unknown = [partition for partition in given if partition not in bounds]
    if unknown:
        raise SourceError(
            f"partition {unknown[0]} is named, and the topic has the partitions"
            f" {', '.join(map(str, sorted(bounds)))}"
        )
    return resolve(otherwise, consumer, bounds, otherwise) | given


def find_lost(next: Mapping[int, int], bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """Partitions whose next record is no longer there, and how many records are gone."""
    return {
        partition: bounds[partition].low - at
        for partition, at in next.items()
        if at < bounds[partition].low
    }


def check_same_topic(topic: str, next: Mapping[int, int], bounds: Mapping[int, Bounds]) -> None:
    """Raises if a position cannot be one of this topic, which was perhaps made anew."""
    for partition, at in next.items():
        if partition not in bounds:
            raise SourceError(
                f'"{topic}" is to go on in partition {partition}, which it does not have any more;'
                " was the topic made anew?"
            )
        if at > bounds[partition].high:
            raise SourceError(
                f'"{topic}" is to go on at offset {at:,} of partition {partition}, which ends at'
                f" {bounds[partition].high:,}; was the topic made anew?"
            )
