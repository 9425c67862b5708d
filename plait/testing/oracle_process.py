"""A user's state machine with timers in the plain loop: a state for each key, and one list of
timers.

A handler that raises, or yields what does not fit, fails its record: state and timers of the key
are then as before. Timers fire by their time, and those of the same time in the order in which they
were set; a timer that is set while timers fire, for a time that has come already, fires behind
those of that time, in the same unit. In the closing epoch timers that timers set do not fire: one
that sets itself again would never end.
"""

from __future__ import annotations

import copy
import datetime
from typing import TYPE_CHECKING, Any, get_origin

from plait.model import Schema, Type
from plait.records import microseconds_of
from plait.testing.oracle_nodes import END, Keys, called, fitted
from plait.testing.oracle_time import ALL_TIME, Fate, Time
from plait.testing.oracle_values import Values, record_of, to_python
from plait.timed import SIDE, ProcessSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph import TimedNode


class Processes:
    """One state for each key; all timers of all keys."""

    def __init__(self, node: TimedNode, schema: Schema) -> None:
        assert isinstance(node.spec, ProcessSpec)
        self.node = node
        self.schema = schema
        self.spec = node.spec
        self.keys = Keys(node.keys, schema)
        self.states: dict[Values, Any] = {}
        self.timers: dict[tuple[Values, int], int] = {}
        """The number of each timer, by key and time: they count up as timers are set."""
        self.set = 0
        self.parts = [
            ([schema.index(name) for name in one.columns], part_schema(schema, one.columns))
            for one in self.spec.sides
        ]

    def take(self, place: int, values: Values, before: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        process = self.spec.process
        if not self.parts:
            return self.run(key, process.on_record, record_of(values, self.schema))
        side = values[self.schema.index(SIDE)]
        columns, schema = self.parts[side]
        record = record_of(tuple(values[i] for i in columns), schema)
        return self.run(key, (process.on_left, process.on_right)[side], record)

    def due(self, before: Time, watermark: Time) -> list[Values]:
        rows: list[Values] = []
        last = self.set if watermark == ALL_TIME else None
        while ready := self.ready(watermark, last):
            key, at = min(ready, key=lambda timer: (timer[1], self.timers[timer]))
            del self.timers[key, at]
            rows += self.run(key, self.spec.process.on_timer, to_python(at, Type.TIMESTAMP))
        return rows

    def ready(self, watermark: Time, last: int | None) -> list[tuple[Values, int]]:
        return [
            timer
            for timer, number in self.timers.items()
            if timer[1] <= watermark and (last is None or number <= last)
        ]

    def run(self, key: Values, handler: Callable[..., Any], given: Any) -> list[Values]:
        """What a handler yields for one record or timer; the state is as before if it fails."""
        state = self.states[key] if key in self.states else State(self.spec.process.state)
        tried = copy.deepcopy(state)
        timers = Timers()
        rows: list[Values] = []
        made = called(handler, self.shown(key), given, tried, timers)
        if made is not None:
            iterator = called(iter, made)
            while (result := called(next, iterator, END)) is not END:
                rows.append(fitted(result, self.node.schema))
        self.states[key] = tried
        for at in timers.wanted:
            if (key, at) not in self.timers:
                self.set += 1
                self.timers[key, at] = self.set
        return rows

    def shown(self, key: Values) -> Any:
        """The key as a handler gets it: the value of one column, a tuple of several."""
        types = [self.schema.fields[i].type for i in self.keys.places]
        found = tuple(to_python(value, kind) for value, kind in zip(key, types, strict=True))
        return found[0] if len(found) == 1 else found


class State:
    """The values that a process keeps for a key, as attributes."""

    def __init__(self, kinds: Any) -> None:
        self._kinds = kinds
        self.clear()

    def clear(self) -> None:
        for name, kind in self._kinds.items():
            plain = get_origin(kind) or kind
            setattr(self, name, None if plain is datetime.datetime else plain())


class Timers:
    """Collects the timers that a handler sets."""

    def __init__(self) -> None:
        self.wanted: list[int] = []

    def at(self, time: Any) -> None:
        self.wanted.append(microseconds_of(time))


def part_schema(schema: Schema, names: Any) -> Schema:
    return Schema(tuple(schema[name] for name in names))
