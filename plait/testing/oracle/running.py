"""Results for every record in the plain loop: over the last records of a key, or over all that are
not forgotten."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from plait.graph.temporal import LastSpec, RowWindow, RunningSpec, WindowSpec
from plait.testing.oracle.aggregates import Results, Running
from plait.testing.oracle.row_operators import Keys
from plait.testing.oracle.time import TimedOperator

if TYPE_CHECKING:
    from plait.graph.operators import TimedOp
    from plait.model.schema import Schema
    from plait.testing.oracle.time import Fate, Time
    from plait.testing.oracle.values import Values


class Lives:
    """How long the state of each key is kept."""

    def __init__(self, op: TimedOp, schema: Schema, ttl_us: int) -> None:
        self.ttl_us = ttl_us
        self.time = schema.index(op.time) if ttl_us else -1
        self.last: dict[Values, int] = {}

    def forgotten(self, key: Values, values: Values, watermark: Time) -> bool:
        """Whether the state that a record would meet is forgotten."""
        if not self.ttl_us:
            return False
        return key in self.last and self.last[key] + self.ttl_us < max(watermark, values[self.time])

    def note(self, key: Values, values: Values, gone: bool) -> None:
        """Notes a record that was taken; `gone`: what it would have met was forgotten."""
        if self.ttl_us:
            time = values[self.time]
            self.last[key] = time if gone else max(time, self.last.get(key, time))


class RunningKept(TimedOperator):
    """Running aggregates of keys that are forgotten: `RunningSpec`."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        assert isinstance(op.spec, RunningSpec)
        self.keys = Keys(op.keys, schema)
        self.results = Results(op.spec.aggregates, schema)
        self.lives = Lives(op, schema, op.spec.ttl_us)
        self.states: dict[Values, list[Running]] = {}

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        fed = self.results.fed(values)
        gone = self.lives.forgotten(key, values, watermark)
        if gone:
            del self.states[key]
        state = self.states.setdefault(key, self.results.start())
        self.results.check(state, fed)
        self.lives.note(key, values, gone)
        self.results.feed(state, fed)
        return [self.keys.columns(values) + tuple(running.result() for running in state)]


class LastRows(TimedOperator):
    """Aggregates over the last records of a key: `RowWindow` windows and `LastSpec`."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        self.keys = Keys(op.keys, schema)
        match op.spec:
            case LastSpec(n=n, aggregates=aggregates, ttl_us=ttl):
                self.size, self.every, self.least = n, 1, 1
            case WindowSpec(
                window=RowWindow(size=size, every=every), aggregates=aggregates, ttl_us=ttl
            ):
                self.size, self.every, self.least = size, every, size
            case _:
                raise TypeError(f"{op.spec} is not over the last records")
        self.results = Results(aggregates, schema)
        self.lives = Lives(op, schema, ttl)
        self.last: dict[Values, deque[Values]] = {}
        self.seen: dict[Values, int] = {}

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        fed = self.results.fed(values)
        gone = self.lives.forgotten(key, values, watermark)
        fresh: deque[Values] = deque(maxlen=self.size)
        last = fresh if gone else self.last.get(key, fresh)
        state = self.results.start()
        for number, one in enumerate([*last, fed][-self.size :]):
            self.results.check(state, one)  # whether a result is due or not
            self.results.feed(state, one, number)
        self.lives.note(key, values, gone)
        last.append(fed)
        self.last[key] = last
        self.seen[key] = seen = 1 if gone else self.seen.get(key, 0) + 1
        if seen < self.least or seen % self.every:
            return []
        return [self.keys.columns(values) + tuple(running.result() for running in state)]
