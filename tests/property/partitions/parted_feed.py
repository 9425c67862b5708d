"""A live source of several partitions, fed by a test, whose time is the least of theirs."""

from __future__ import annotations

import copy
import datetime
from typing import TYPE_CHECKING, Any

import plait
from plait.connectors.base import Reader, Source
from plait.connectors.kafka.partition_clock import NO_TIME, PartitionClock
from plait.model.records import microseconds_of
from plait.model.schema import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = {"part": int, "k": int, "at": plait.Timestamp}
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
Push = list[tuple[int, int, int]] | set[int]
"""The rows of an epoch, (partition, key, seconds), or the partitions that are idle from now on."""


class PartedFeed(Source):
    """Rows of an epoch each; all of them are there from the start."""

    bounded = False
    label = "feed"

    def __init__(self, partitions: int, pushes: Sequence[Push]) -> None:
        self.schema = Schema.of(COLUMNS)
        self.partitions = partitions
        self.pushes = pushes
        self.max_jump_us = 0

    def by_partition(self, column: str, max_jump_us: int, idle_us: int) -> Source:
        assert column == "at"
        parted = copy.copy(self)
        parted.schema = Schema((*self.schema.fields, Field("clock", Type.INT64)))
        parted.max_jump_us = max_jump_us
        return parted

    def open(self, position: Any = None) -> Reader:
        return PartedReader(self, position or {"push": 0, "row": 0})


class PartedReader(Reader):
    def __init__(self, feed: PartedFeed, position: Any) -> None:
        self.feed = feed
        self.push, self.row = position["push"], position["row"]
        self.clock = PartitionClock(
            range(feed.partitions),
            max_jump_us=feed.max_jump_us,
            times=dict(position.get("times", ())),
            now=position.get("now", NO_TIME),
        )

    def poll(self, max_rows: int) -> Any:
        if self.push == len(self.feed.pushes):
            return None
        pushed = self.feed.pushes[self.push]
        if isinstance(pushed, set):
            self.clock.rest(pushed)
            self.push += 1
            return plait.Wait(0.0)
        taken = pushed[self.row : self.row + max_rows]
        self.row += len(taken)
        if self.row == len(pushed):
            self.push, self.row = self.push + 1, 0
        rows = [(part, key, START + plait.seconds(at)) for part, key, at in taken]
        if len(self.feed.schema) == len(COLUMNS):
            return rows
        times = [microseconds_of(at) for _, _, at in rows]
        clocks = self.clock.read([part for part, _, _ in rows], times).tolist()
        return [(*row, clock) for row, clock in zip(rows, clocks, strict=True)]

    def position(self) -> Any:
        times = [[partition, at] for partition, at in self.clock.times.items()]
        return {"push": self.push, "row": self.row, "times": times, "now": self.clock.now}
