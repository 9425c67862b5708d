"""A user's state machine with timers in the plain loop: a state for each key, and all timers.

A handler that raises, or yields what does not fit, fails its record: state and timers of the key
are then as before. Timers fire by their time, and those of the same time by the place of the record
that they go back to: the one whose handler set them, or set the timer that set them. One that a
timer sets for a time before its own counts at the time of that timer. One that a record sets for a
time gone by fires behind its handler. Behind all of a unit come those by the wall clock. In the
closing epoch timers set no timers: one that sets itself again would never end.
"""

from __future__ import annotations

import copy
import heapq
from collections import Counter
from typing import TYPE_CHECKING, Any

from plait.functions.process import MOST_FIRINGS, SETS_ITSELF, KeyState, Timers, results_of
from plait.graph.temporal import SIDE, ProcessSpec
from plait.model.schema import Type
from plait.testing.oracle.row_operators import END, Keys, called, fitted
from plait.testing.oracle.time import ALL_TIME, Fate, Time, TimedOperator, TimerFault
from plait.testing.oracle.values import Fault, Values, record_of, to_python
from plait.testing.oracle.windows import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.graph.operators import TimedOp
    from plait.model.schema import Schema


class Pending:
    """Timers that call one handler: one for each key and time, the next one first."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, int, int, Values]] = []
        """When it is due, the place it goes back to, its own time, a number, the key."""
        self.there: set[tuple[Values, int]] = set()
        self.set_so_far = 0

    def add(self, key: Values, at: int, due: int, place: int) -> None:
        if (key, at) not in self.there:
            self.there.add((key, at))
            self.set_so_far += 1
            heapq.heappush(self.heap, (due, place, at, self.set_so_far, key))

    def pop(self, until: Time) -> Iterator[tuple[Values, int, int, int]]:
        """Those that are due: key, own time, when it is due, place. More may be added meanwhile."""
        while self.heap and self.heap[0][0] <= until:
            due, place, at, _, key = heapq.heappop(self.heap)
            self.there.remove((key, at))
            yield key, at, due, place


class Processes(TimedOperator):
    """One state for each key; all timers of all keys."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        assert isinstance(op.spec, ProcessSpec)
        self.op = op
        self.schema = schema
        self.spec = op.spec
        self.keys = Keys(op.keys, schema)
        self.states: dict[Values, dict[str, Any]] = {}
        self.timers = {"on_timer": Pending(), "on_timeout": Pending()}
        """By the handler that they call."""
        sides = [one.time for one in self.spec.sides] or [op.time]
        self.times = [schema.index(name) for name in sides] if self.spec.ttl_us else []
        self.last: dict[Values, Time] = {}
        self.columns = [
            [schema.index(name) for name in one.columns] for one in self.spec.sides
        ] or [[schema.index(name) for name in self.spec.process.shapes[0].names]]

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        process = self.spec.process
        side = values[self.schema.index(SIDE)] if self.spec.sides else 0
        given = tuple(values[i] for i in self.columns[side])
        record = record_of(given, process.shapes[side])
        one = not self.spec.sides
        handler = process.on_record if one else (process.on_left, process.on_right)[side]
        time = values[self.times[side]] if self.times else watermark
        kept = self.kept(key, max(watermark, time))
        rows, timers = self.run(key, handler, record, kept)
        if self.times:
            self.last[key] = max(self.last[key], time) if kept and key in self.last else time
        for at in timers.wanted:
            self.timers["on_timer"].add(key, at, at, place)
        for at in timers.timeouts:
            self.timers["on_timeout"].add(key, at, at, place)
        # All others that are due have fired at the mark of this record.
        return self.fire("on_timer", watermark, rows)

    def due(self, before: Time, watermark: Time) -> list[Values]:
        return self.fire("on_timer", watermark, [])

    def pending(self) -> int:
        """How many timers are set that have a handler."""
        has = (name for name in self.timers if getattr(self.spec.process, name, None) is not None)
        return sum(len(self.timers[name].there) for name in has)

    def behind(self, watermark: Time, *, at_end: bool) -> list[Values]:
        return self.fire("on_timeout", ALL_TIME if at_end else self.now, [], watermark)

    def fire(
        self, name: str, until: Time, rows: list[Values], watermark: Time | None = None
    ) -> list[Values]:
        """The rows, and what the timers add that call this handler and are due. `watermark`: by
        which it is judged what is forgotten; None: by when each is due."""
        handler = getattr(self.spec.process, name, None)
        if handler is None:
            return rows
        by_event = watermark is None
        fired: Counter[tuple[Values, int]] = Counter()
        for key, at, due, place in self.timers[name].pop(until):
            time = to_python(at, Type.TIMESTAMP)
            fired[key, due] += 1
            try:
                if fired[key, due] > MOST_FIRINGS:
                    raise Fault(SETS_ITSELF)
                kept = self.kept(key, due if watermark is None else watermark)
                made, timers = self.run(key, handler, time, kept)
            except Fault as fault:
                why = f"{name} of key {self.shown(key)!r} at {time}: {fault}"
                raise TimerFault(why, rows) from fault
            rows += made
            if self.times and by_event:
                self.last[key] = max(self.last[key], due)
            if until == ALL_TIME:
                continue
            for again in timers.wanted:
                self.timers["on_timer"].add(
                    key, again, max(again, due) if by_event else again, place
                )
            for again in timers.timeouts:
                self.timers["on_timeout"].add(key, again, again, place)
        return rows

    def kept(self, key: Values, watermark: Time) -> bool:
        """Whether the state of a key is not forgotten; one that never was is not either."""
        return key not in self.last or self.last[key] + self.spec.ttl_us >= watermark

    def run(
        self, key: Values, handler: Callable[..., Any], given: Any, kept: bool
    ) -> tuple[list[Values], Timers]:
        """What a handler yields for a record or timer, and the timers it sets; the state is as
        before if it fails."""
        values = self.states.get(key) if kept else None
        tried = KeyState(self.spec.process.state, copy.deepcopy(values))
        takes = [hasattr(self.spec.process, name) for name in ("on_timeout", "on_timer")]
        timers = Timers(self.now, *takes)
        rows: list[Values] = []
        made = called(handler, self.shown(key), given, tried, timers)
        if made is not None:
            iterator = called(iter, called(results_of, made))
            while (result := called(next, iterator, END)) is not END:
                rows.append(fitted(result, self.op.schema))
        self.states[key] = tried.values()
        return rows, timers

    def shown(self, key: Values) -> Any:
        """The key as a handler gets it: the value of one column, a tuple of several."""
        types = [self.schema.fields[i].type for i in self.keys.places]
        found = tuple(map(to_python, plain(key), types))
        return found[0] if len(found) == 1 else found
