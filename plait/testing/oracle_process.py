"""A user's state machine with timers in the plain loop: a state for each key, and all timers.

A handler that raises, or yields what does not fit, fails its record: state and timers of the key
are then as before. Timers fire by their time, and those of the same time by the place of the record
that they go back to: the one whose handler set them, or set the timer that set them. One that a
timer sets for a time before its own counts at the time of that timer. In the closing epoch timers
set no timers: one that sets itself again would never end.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from plait.model import Type
from plait.process import State, Timers
from plait.testing.oracle_nodes import END, Keys, called, fitted
from plait.testing.oracle_time import ALL_TIME, Fate, Time, TimerFault
from plait.testing.oracle_values import Fault, Values, record_of, to_python
from plait.testing.oracle_windows import plain
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
        self.timers: dict[tuple[Values, int], tuple[int, int]] = {}
        """When each timer is due and the place it goes back to, by key and time."""
        sides = [one.time for one in self.spec.sides] or [node.time]
        self.times = [schema.index(name) for name in sides] if self.spec.ttl_us else []
        self.last: dict[Values, Time] = {}
        self.columns = [
            [schema.index(name) for name in one.columns] for one in self.spec.sides
        ] or [[schema.index(name) for name in self.spec.process.shapes[0].names]]

    def take(self, place: int, values: Values, before: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        process = self.spec.process
        side = values[self.schema.index(SIDE)] if self.spec.sides else 0
        given = tuple(values[i] for i in self.columns[side])
        record = record_of(given, process.shapes[side])
        one = not self.spec.sides
        handler = process.on_record if one else (process.on_left, process.on_right)[side]
        time = values[self.times[side]] if self.times else before
        kept = self.kept(key, max(before, time))
        rows, wanted = self.run(key, handler, record, kept)
        if self.times:
            self.last[key] = max(self.last[key], time) if kept and key in self.last else time
        for at in wanted:
            self.timers.setdefault((key, at), (at, place))
        return rows

    def due(self, before: Time, watermark: Time) -> list[Values]:
        rows: list[Values] = []
        on_timer = getattr(self.spec.process, "on_timer", None)
        while on_timer is not None:
            ready = [timer for timer, order in self.timers.items() if order[0] <= watermark]
            if not ready:
                break
            key, at = min(ready, key=lambda timer: (*self.timers[timer], timer[1]))
            due, place = self.timers.pop((key, at))
            time = to_python(at, Type.TIMESTAMP)
            try:
                made, wanted = self.run(key, on_timer, time, self.kept(key, due))
            except Fault as fault:
                why = f"on_timer of key {self.shown(key)!r} at {time}: {fault}"
                raise TimerFault(why, rows) from fault
            rows += made
            if self.times:
                self.last[key] = max(self.last[key], due)
            for again in wanted if watermark != ALL_TIME else ():
                self.timers.setdefault((key, again), (max(again, due), place))
        return rows

    def kept(self, key: Values, watermark: Time) -> bool:
        """Whether the state of a key is not forgotten; one that never was is not either."""
        return key not in self.last or self.last[key] + self.spec.ttl_us >= watermark

    def run(
        self, key: Values, handler: Callable[..., Any], given: Any, kept: bool
    ) -> tuple[list[Values], list[int]]:
        """What a handler yields for a record or timer, and the timers it sets; the state is as
        before if it fails."""
        values = self.states.get(key) if kept else None
        tried = State(self.spec.process.state, copy.deepcopy(values))
        timers = Timers()
        rows: list[Values] = []
        made = called(handler, self.shown(key), given, tried, timers)
        if made is not None:
            iterator = called(iter, made)
            while (result := called(next, iterator, END)) is not END:
                rows.append(fitted(result, self.node.schema))
        self.states[key] = tried.values()
        return rows, timers.wanted

    def shown(self, key: Values) -> Any:
        """The key as a handler gets it: the value of one column, a tuple of several."""
        types = [self.schema.fields[i].type for i in self.keys.places]
        found = tuple(map(to_python, plain(key), types))
        return found[0] if len(found) == 1 else found
