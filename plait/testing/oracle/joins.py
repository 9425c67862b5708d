"""Joins in the plain loop: each side's records of a key in a list, in the order in which they came.

A record that is not late meets the records of the other side that can still be met; how long that
is, is one function for each kind of `within`, `until`: the time up to which the watermark may go
before nothing can match the record any more. A left record without a match comes out at the mark
that takes the watermark above it, or at once if it is there already.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.graph.temporal import SIDE, AsOf, Between, Grid, JoinSpec, SpanSpec
from plait.testing.oracle.aggregates import Results, Running
from plait.testing.oracle.row_operators import Keys
from plait.testing.oracle.time import ALL_TIME, Fate, Time, TimedOperator
from plait.testing.oracle.windows import windows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.graph.operators import TimedOp
    from plait.graph.temporal import Side
    from plait.model.schema import Schema
    from plait.testing.oracle.values import Values

LEFT, RIGHT = 0, 1


@dataclass(slots=True, eq=False)
class Record:
    """A record of one side."""

    place: int
    time: int
    values: Values
    until: Time
    """It is over when the watermark is above this."""
    matched: bool = False
    results: list[Running] = field(default_factory=list)
    start: int = 0

    def spans(self, right: Record) -> bool:
        """Whether a right record is in the time from start to end of this left one."""
        return self.start <= right.time <= self.until


class Sides(TimedOperator):
    """The records of both sides, apart."""

    def __init__(self, op: TimedOp, schema: Schema, left: Side, right: Side) -> None:
        self.keys = Keys(op.keys, schema)
        self.side = schema.index(SIDE)
        self.columns = [[schema.index(name) for name in one.columns] for one in (left, right)]
        self.times = [schema.index(one.time) if one.time else -1 for one in (left, right)]
        self.kept: tuple[dict[Values, list[Record]], ...] = ({}, {})

    def record(self, place: int, values: Values, until: Time = ALL_TIME) -> Record:
        side = values[self.side]
        time = values[self.times[side]] if self.times[side] >= 0 else 0
        return Record(place, time, tuple(values[i] for i in self.columns[side]), until)

    def keep(self, side: int, key: Values, record: Record) -> None:
        self.kept[side].setdefault(key, []).append(record)

    def there(self, side: int, key: Values, watermark: Time) -> list[Record]:
        """The records of a side and key that are not over, in the order in which they came."""
        if None in key:
            return []
        mine = self.kept[side].get(key, [])
        mine[:] = [one for one in mine if one.until >= watermark]
        return mine


class Waiting:
    """Left records that come out when the watermark is above `until`, by that and their place."""

    def __init__(self) -> None:
        self.heap: list[tuple[Time, int, Record]] = []

    def add(self, record: Record) -> None:
        heapq.heappush(self.heap, (record.until, record.place, record))

    def pop(self, watermark: Time) -> Iterator[Record]:
        # With the last watermark records are over that otherwise never are.
        while self.heap and (watermark == ALL_TIME or self.heap[0][0] < watermark):
            yield heapq.heappop(self.heap)[2]


class Join(Sides):
    """Every join but that of `AsOf`."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        assert isinstance(op.spec, JoinSpec)
        self.spec = op.spec
        super().__init__(op, schema, self.spec.left, self.spec.right)
        self.unmatched = Waiting()

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        side: int = values[self.side]
        record = self.record(place, values)
        record.until = self.until(side, record.time)
        late = self.late(record) < watermark
        if self.spec.how == "late":
            return [record.values] if late and side == LEFT else Fate.LEFT_OUT
        if late:
            return Fate.LATE
        unmatched_too = side == LEFT and self.spec.how in ("left", "anti")
        if None in key and not unmatched_too:
            return Fate.LEFT_OUT
        rows: list[Values] = []
        for other in self.there(1 - side, key, watermark):
            left, right = (record, other) if side == LEFT else (other, record)
            for _ in range(self.pairs(left, right, watermark)):
                rows += self.row(left, right)
                left.matched = True
        self.keep(side, key, record)
        if unmatched_too and record.until < watermark:
            rows += self.alone(record)
        elif unmatched_too:
            self.unmatched.add(record)
        return rows

    def late(self, record: Record) -> Time:
        """The record is late if the watermark is above this. One that is not behind the watermark
        never is, even if all that it could meet is over."""
        in_past = isinstance(self.spec.within, Between)
        return max(record.until, record.time) if in_past else record.until

    def until(self, side: int, time: int) -> Time:
        match self.spec.within:
            case None:
                return time + self.spec.ttl_us if self.spec.ttl_us else ALL_TIME
            case Grid():
                return windows_of(self.spec.within, time)[-1][1] - 1
            case Between(low_us=low, high_us=high):
                return time + high if side == LEFT else time - low
        raise TypeError(f"{self.spec.within} is no part of this join")

    def pairs(self, left: Record, right: Record, watermark: Time) -> int:
        """How many times two records of one key match."""
        match self.spec.within:
            case Grid():
                windows = set(windows_of(self.spec.within, left.time))
                windows &= set(windows_of(self.spec.within, right.time))
                return sum(end > watermark for _, end in windows)
            case Between(low_us=low, high_us=high):
                return int(low <= right.time - left.time <= high)
        return 1

    def row(self, left: Record, right: Record) -> list[Values]:
        match self.spec.how:
            case "inner" | "left":
                return [left.values + right.values]
            case "semi":
                return [] if left.matched else [left.values]
            case "anti" | "late":
                return []

    def due(self, before: Time, watermark: Time) -> list[Values]:
        return [row for one in self.unmatched.pop(watermark) for row in self.alone(one)]

    def alone(self, left: Record) -> list[Values]:
        """What a left record gives of which it is known whether it has a match."""
        nulls = (None,) * len(self.columns[RIGHT]) if self.spec.how == "left" else ()
        return [] if left.matched else [left.values + nulls]


class AsOfJoin(Sides):
    """Left records wait for their time; right ones stay."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        assert isinstance(op.spec, JoinSpec)
        assert isinstance(op.spec.within, AsOf)
        self.spec = op.spec
        self.tolerance = op.spec.within.tolerance_us
        super().__init__(op, schema, self.spec.left, self.spec.right)
        self.waiting = Waiting()
        self.key_of: dict[int, Values] = {}
        """Of each waiting record, by its place."""

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        record = self.record(place, values)
        if self.spec.how == "late":
            late = values[self.side] == LEFT and record.time < watermark
            return [record.values] if late else Fate.LEFT_OUT
        if values[self.side] == LEFT:
            if record.time < watermark:
                return Fate.LATE
            record.until = record.time
            self.waiting.add(record)
            self.key_of[place] = key
            return []
        if self.tolerance and record.time + self.tolerance < watermark:
            return Fate.LATE
        self.keep(RIGHT, key, record)
        return []

    def due(self, before: Time, watermark: Time) -> list[Values]:
        return [
            row
            for left in self.waiting.pop(watermark)
            for row in self.row(left, self.best(self.key_of.pop(left.place), left))
        ]

    def best(self, key: Values, left: Record) -> Record | None:
        able = [
            right
            for right in self.there(RIGHT, key, left.time)
            if right.time <= left.time
            and (not self.tolerance or right.time >= left.time - self.tolerance)
        ]
        return max(able, key=lambda right: (right.time, right.place), default=None)

    def row(self, left: Record, right: Record | None) -> list[Values]:
        match self.spec.how:
            case "inner":
                return [] if right is None else [left.values + right.values]
            case "left":
                nulls = (None,) * len(self.columns[RIGHT])
                return [left.values + (nulls if right is None else right.values)]
            case "semi":
                return [] if right is None else [left.values]
            case "anti":
                return [left.values] if right is None else []
            case "late":
                return []


class Spans(Sides):
    """Aggregates over the right records in the time from start to end of a left one."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        assert isinstance(op.spec, SpanSpec)
        self.spec = op.spec
        super().__init__(op, schema, self.spec.left, self.spec.right)
        self.start, self.end = schema.index(self.spec.start), schema.index(self.spec.end)
        self.results = Results(self.spec.aggregates, schema)
        self.fed: dict[int, Values] = {}
        """What each kept right record gives to the aggregates, by its place."""
        self.open = Waiting()

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        if values[self.side] == RIGHT:
            right = self.record(place, values)
            right.until = right.time + self.spec.wait_us
            fed = self.fed[place] = self.results.fed(values)
            found = [left for left in self.there(LEFT, key, watermark) if left.spans(right)]
            for left in found:
                self.results.check(left.results, fed)
            for left in found:
                self.feed(left, right, fed)
            self.keep(RIGHT, key, right)
            return []
        left = self.record(place, values, values[self.end])
        left.start = values[self.start]
        if max(left.until, left.time) < watermark:
            return Fate.LATE
        left.results = self.results.start()
        for right in self.there(RIGHT, key, watermark):
            if left.spans(right):
                self.results.check(left.results, self.fed[right.place])
                self.feed(left, right, self.fed[right.place])
        if left.until < watermark:
            return self.result(left)
        self.keep(LEFT, key, left)
        self.open.add(left)
        return []

    def feed(self, left: Record, right: Record, fed: Values) -> None:
        self.results.feed(left.results, fed, right.place)
        left.matched = True

    def due(self, before: Time, watermark: Time) -> list[Values]:
        return [row for one in self.open.pop(watermark) for row in self.result(one)]

    def result(self, left: Record) -> list[Values]:
        results = tuple(running.result() for running in left.results)
        return [left.values + results] if left.matched or self.spec.empty else []


def join_operator(op: TimedOp, schema: Schema) -> TimedOperator:
    match op.spec:
        case SpanSpec():
            return Spans(op, schema)
        case JoinSpec(within=AsOf()):
            return AsOfJoin(op, schema)
    return Join(op, schema)
