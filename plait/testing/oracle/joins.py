"""Joins in the plain loop: each side's records of a key in a list, in the order in which they came.

A record that is not late meets the records of the other side that can still be met; how long that
is, is one function for each kind of `within`, `until`: the time up to which the watermark may go
before nothing can match the record any more. A left record without a match comes out when the
watermark is above it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.graph.temporal import SIDE, AsOf, Between, Grid, JoinSpec, SpanSpec
from plait.testing.oracle.aggregates import Results, Running
from plait.testing.oracle.row_operators import Keys
from plait.testing.oracle.time import ALL_TIME, Fate, Time
from plait.testing.oracle.windows import windows_of

if TYPE_CHECKING:
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


class Sides:
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

    def there(self, side: int, key: Values, before: Time) -> list[Record]:
        """The records of a side and key that are not over, in the order in which they came."""
        if None in key:
            return []
        mine = self.kept[side].get(key, [])
        mine[:] = [one for one in mine if one.until >= before]
        return mine


class Join(Sides):
    """Every join but that of `AsOf`."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        assert isinstance(op.spec, JoinSpec)
        self.spec = op.spec
        super().__init__(op, schema, self.spec.left, self.spec.right)
        self.unmatched: list[Record] = []

    def take(self, place: int, values: Values, before: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        side: int = values[self.side]
        record = self.record(place, values)
        record.until = self.until(side, record.time)
        if self.spec.how == "late":
            late = side == LEFT and record.until < before
            return [record.values] if late else Fate.LEFT_OUT
        if record.until < before:
            return Fate.LATE
        unmatched_too = self.spec.how in ("left", "anti")
        if None in key and not (side == LEFT and unmatched_too):
            return Fate.LEFT_OUT
        rows: list[Values] = []
        for other in self.there(1 - side, key, before):
            left, right = (record, other) if side == LEFT else (other, record)
            for _ in range(self.pairs(left, right, before)):
                rows += self.row(left, right)
                left.matched = True
        self.keep(side, key, record)
        if side == LEFT and unmatched_too:
            self.unmatched.append(record)
        return rows

    def until(self, side: int, time: int) -> Time:
        match self.spec.within:
            case None:
                return time + self.spec.ttl_us if self.spec.ttl_us else ALL_TIME
            case Grid():
                return windows_of(self.spec.within, time)[-1][1] - 1
            case Between(low_us=low, high_us=high):
                return time + high if side == LEFT else time - low
        raise TypeError(f"{self.spec.within} is no part of this join")

    def pairs(self, left: Record, right: Record, before: Time) -> int:
        """How many times two records of one key match."""
        match self.spec.within:
            case Grid():
                windows = set(windows_of(self.spec.within, left.time))
                windows &= set(windows_of(self.spec.within, right.time))
                return sum(end > before for _, end in windows)
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
        waiting = [one for one in self.unmatched if not one.matched]
        # With the last watermark records are over that otherwise never are.
        last = watermark == ALL_TIME
        over = [one for one in waiting if last or one.until < watermark]
        self.unmatched = [] if last else [one for one in waiting if one.until >= watermark]
        over.sort(key=lambda one: (one.until, one.place))
        nulls = (None,) * len(self.columns[RIGHT]) if self.spec.how == "left" else ()
        return [one.values + nulls for one in over]


class AsOfJoin(Sides):
    """Left records wait for their time; right ones stay."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        assert isinstance(op.spec, JoinSpec)
        assert isinstance(op.spec.within, AsOf)
        self.spec = op.spec
        self.tolerance = op.spec.within.tolerance_us
        super().__init__(op, schema, self.spec.left, self.spec.right)
        self.waiting: list[tuple[Values, Record]] = []

    def take(self, place: int, values: Values, before: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        record = self.record(place, values)
        if self.spec.how == "late":
            late = values[self.side] == LEFT and record.time < before
            return [record.values] if late else Fate.LEFT_OUT
        if values[self.side] == LEFT:
            if record.time < before:
                return Fate.LATE
            self.waiting.append((key, record))
            return []
        if self.tolerance and record.time + self.tolerance < before:
            return Fate.LATE
        self.keep(RIGHT, key, record)
        return []

    def due(self, before: Time, watermark: Time) -> list[Values]:
        ready = [one for one in self.waiting if one[1].time <= watermark]
        self.waiting = [one for one in self.waiting if one[1].time > watermark]
        ready.sort(key=lambda one: (one[1].time, one[1].place))
        return [row for key, left in ready for row in self.row(left, self.best(key, left))]

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
        self.open: list[Record] = []

    def take(self, place: int, values: Values, before: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        if values[self.side] == RIGHT:
            right = self.record(place, values)
            right.until = right.time + self.spec.wait_us
            fed = self.fed[place] = self.results.fed(values)
            for left in self.there(LEFT, key, before):
                self.feed(left, right, fed)
            self.keep(RIGHT, key, right)
            return []
        left = self.record(place, values, values[self.end])
        left.start = values[self.start]
        if left.until < before:
            return Fate.LATE
        left.results = self.results.start()
        for right in self.there(RIGHT, key, before):
            self.feed(left, right, self.fed[right.place])
        self.keep(LEFT, key, left)
        self.open.append(left)
        return []

    def feed(self, left: Record, right: Record, fed: Values) -> None:
        if left.start <= right.time <= left.until:
            self.results.feed(left.results, fed, right.place)
            left.matched = True

    def due(self, before: Time, watermark: Time) -> list[Values]:
        ready = [one for one in self.open if one.until < watermark]
        self.open = [one for one in self.open if one.until >= watermark]
        ready.sort(key=lambda one: (one.until, one.place))
        return [
            one.values + tuple(running.result() for running in one.results)
            for one in ready
            if one.matched or self.spec.empty
        ]


def join_operator(op: TimedOp, schema: Schema) -> Join | AsOfJoin | Spans:
    match op.spec:
        case SpanSpec():
            return Spans(op, schema)
        case JoinSpec(within=AsOf()):
            return AsOfJoin(op, schema)
    return Join(op, schema)
