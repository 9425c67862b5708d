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
from typing import TYPE_CHECKING, Any

from plait.model import Type
from plait.process import State, Timers
from plait.testing.oracle_nodes import END, Keys, called, fitted
from plait.testing.oracle_time import ALL_TIME, Fate, Time
from plait.testing.oracle_values import Values, record_of, to_python
from plait.timed import SIDE, ProcessSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph import TimedNode
    from plait.model import Schema


class Processes:
    """One state for each key; all timers of all keys."""

    def __init__(self, node: TimedNode, schema: Schema) -> None:
        assert isinstance(node.spec, ProcessSpec)
        self.node = node
        self.schema = schema
        self.spec = node.spec
        self.keys = Keys(node.keys, schema)
        self.states: dict[Values, dict[str, Any]] = {}
        self.timers: dict[tuple[Values, int], int] = {}
        """The number of each timer, by key and time: they count up as timers are set."""
        self.set = 0
        self.columns = [
            [schema.index(name) for name in one.columns] for one in self.spec.sides
        ] or [[schema.index(name) for name in self.spec.process.shapes[0].names]]

    def take(self, place: int, values: Values, before: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        process = self.spec.process
        side = values[self.schema.index(SIDE)] if self.spec.sides else 0
        given = tuple(values[i] for i in self.columns[side])
        record = record_of(given, process.shapes[side])
        if not self.spec.sides:
            return self.run(key, process.on_record, record)
        return self.run(key, (process.on_left, process.on_right)[side], record)

    def due(self, before: Time, watermark: Time) -> list[Values]:
        rows: list[Values] = []
        last = self.set if watermark == ALL_TIME else None
        while ready := self.ready(watermark, last):
            key, at = min(ready, key=lambda timer: (timer[1], self.timers[timer]))
            del self.timers[key, at]
            if hasattr(self.spec.process, "on_timer"):
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
        tried = State(self.spec.process.state, copy.deepcopy(self.states.get(key)))
        timers = Timers()
        rows: list[Values] = []
        made = called(handler, self.shown(key), given, tried, timers)
        if made is not None:
            iterator = called(iter, made)
            while (result := called(next, iterator, END)) is not END:
                rows.append(fitted(result, self.node.schema))
        self.states[key] = tried.values()
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
