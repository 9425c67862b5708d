"""A user's process with timers: runs its handlers over a unit, and keeps its state by key and bin.

Called by one thread at a time, with the units in order. Before a row all timers fire that are due
when it is taken, and behind the rows all that are due behind the unit. Timers fire by their time,
then by the place of the record that they go back to; one that a timer sets for a time before its
own counts at the time of its timer. A handler that fails on a record leaves no trace: rows, state
and timers are as before it. One that fails on a timer ends the run, because there is no record that
could be left out; so does SystemExit wherever it is raised. `plait.graph.temporal.ProcessSpec` has
the meaning.
"""

from __future__ import annotations

import copy
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.errors import JobError
from plait.functions.process import (
    MOST_FIRINGS,
    SCALARS,
    SETS_ITSELF,
    KeyState,
    Timers,
    initial,
    results_of,
)
from plait.graph.temporal import SIDE, ProcessSpec
from plait.model.key_hash import bin_of, xxh64
from plait.model.records import Misfit, datetime_of, error_text
from plait.model.schema import Type
from plait.node_runtime.functions.calls import Failures, in_parts
from plait.node_runtime.native._calls import assemble, misfit_of
from plait.node_runtime.native._process import MadeRows, times_of
from plait.node_runtime.native._records import Shape, columns_of
from plait.node_runtime.state.bin_bytes import Key, Owner
from plait.node_runtime.state.folds import canonical
from plait.node_runtime.state.keyed_states import PythonStates
from plait.node_runtime.state.states_codec import kept_codec
from plait.node_runtime.state.timers import (
    ALL_TIME,
    AT_ONCE,
    BEHIND,
    CLOCKS,
    EVENT,
    WALL,
    Kept,
    TimerHeap,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from plait.graph.operators import TimedOp
    from plait.model.schema import Schema
    from plait.node_runtime.native._batch import NativeBatch

Given = tuple[Key, int, Any]
"""The key of a row, its side and its record."""


ENDINGS = (KeyboardInterrupt, SystemExit)
"""No matter of one record or timer."""


class FailedTimer(NamedTuple):
    """A timer whose handler failed: what to say of it, what it raised, its time and place. One of
    the ENDINGS is told so as well where it comes from a record, whose time is AT_ONCE."""

    text: str
    error: BaseException
    due: int
    place: int


class UnitResult(NamedTuple):
    """What became of a unit."""

    rows: MadeRows
    failures: Failures
    """(row, error), ascending."""
    timer: FailedTimer | None
    next_timer: int
    """When the first timer that is left is due, ..."""
    next_timeout: int = ALL_TIME
    """... and the first by the wall clock."""


class ProcessPython(PythonStates):
    """A process with its state."""

    def __init__(self, op: TimedOp, in_schema: Schema, bin_bits: int, number: int = 0) -> None:
        assert isinstance(op.spec, ProcessSpec)
        self.number = number
        self.bin_bits = bin_bits
        self.stop_at_first = op.on_error == "fail"
        self.keys = [in_schema.index(name) for name in op.keys]
        self.types = tuple(in_schema.fields[i].type for i in self.keys)
        for name, kind in zip(op.keys, self.types, strict=True):
            if kind is Type.OBJECT:
                raise JobError(f'column "{name}" holds objects, which cannot be keys')
        self.has_float = Type.FLOAT64 in self.types
        self.take(op.spec, in_schema)
        self.out = Shape(op.schema)
        self.heaps = [TimerHeap(clock, self.find) for clock in CLOCKS]
        self.now = 0
        """The wall clock of the unit."""
        self.ttl = op.spec.ttl_us
        self.swept = AT_ONCE
        """The watermark at which forgotten keys were last looked for."""
        sides = [one.time for one in op.spec.sides] or [op.time]
        self.times = [in_schema.index(name) for name in sides] if self.ttl else []
        fingerprint = process_fingerprint(self.kinds, self.types)
        codec = kept_codec(self.kinds)
        super().__init__(Owner(bin_bits=bin_bits, fingerprint=fingerprint, codec=codec))

    def take(self, spec: ProcessSpec, schema: Schema) -> None:
        """The handlers, and the columns that make the record of each."""
        process = spec.process
        self.kinds = dict(process.state)
        self.fresh = initial(self.kinds)
        self.new_state = state_class(self.kinds)
        self.mutable = [name for name, kind in self.kinds.items() if kind not in SCALARS]
        self.shapes = [Shape(shape) for shape in process.shapes]
        if spec.sides:
            self.side = schema.index(SIDE)
            self.columns = [[schema.index(name) for name in one.columns] for one in spec.sides]
            self.handlers = [process.on_left, process.on_right]
        else:
            self.side = -1
            self.columns = [[schema.index(name) for name in process.shapes[0].names]]
            self.handlers = [process.on_record]
        names = ("on_timer", "on_timeout")
        self.on_due: list[Callable[..., Any] | None] = [
            getattr(process, one, None) for one in names
        ]

    def __call__(
        self,
        batch: NativeBatch,
        base: int,
        order: Sequence[int] | None,
        watermarks: Sequence[int],
        watermark: int,
        behind: int = AT_ONCE,
        now: int = 0,
        clock: int = AT_ONCE,
    ) -> UnitResult:
        """Takes a unit; see `attempt`."""
        made = self.attempt(batch, base, order, watermarks, watermark, behind, now, clock)
        if made.timer is not None and isinstance(made.timer.error, ENDINGS):
            raise made.timer.error
        return made

    def attempt(
        self,
        batch: NativeBatch,
        base: int,
        order: Sequence[int] | None,
        watermarks: Sequence[int],
        watermark: int,
        behind: int,
        now: int,
        clock: int,
    ) -> UnitResult:
        """Takes a unit: row i has the place base + order[i], or base + i if there is no order, and
        is taken at watermarks[i], after what is due then; `watermark` is as it is behind the unit,
        `behind` at its last row; timers by the wall clock, which is `now`, are due until `clock`.
        What ends the run is not raised but told as a timer: what was made before it counts where
        something fails earlier elsewhere."""
        self.open_first()
        rows = MadeRows(self.out, len(batch))
        failures: Failures = []
        times = [times_of(batch, column) for column in self.times]
        self.now = now
        timer_heap = self.heaps[EVENT]
        for row, given in enumerate(self.inputs(batch)):
            place = base + (row if order is None else order[row])
            reached = watermarks[row]
            if timer_heap.is_due(reached):
                failed = self.fire(EVENT, reached, rows)
                if failed is not None:
                    return UnitResult(rows, failures, failed, ALL_TIME, ALL_TIME)
            count = len(rows)
            try:
                key, side, record = self.check(given)
                kept = self.find(key)
                over = kept is None
                if times and kept is not None:
                    over = self.over(kept.last, max(reached, times[side][row]))
                values = None if kept is None or over else kept.values
                if values is not None and self.mutable and not self.stop_at_first:
                    values = self.copy_values(values)
                state = self.new_state(self.kinds, values)
                timers = self.run(self.handlers[side], key, record, state, rows, AT_ONCE, place)
            except ENDINGS as error:
                rows.back(count)
                left = FailedTimer(error_text(error), error, AT_ONCE, place)
                return UnitResult(rows, failures, left, ALL_TIME, ALL_TIME)
            except BaseException as error:
                rows.back(count)
                failures.append((row, error))
                if self.stop_at_first:
                    return UnitResult(rows, failures, None, ALL_TIME, ALL_TIME)
                continue
            if kept is None:
                kept = Kept()
            self.set(kept, timers, AT_ONCE, place, key)
            if times:
                kept.last = times[side][row] if over else max(kept.last, times[side][row])
            self.keep(key, kept, state.values())
            if timer_heap.is_due(reached):  # the record set one for a time gone by
                failed = self.fire(EVENT, reached, rows, at_place=place)
                if failed is not None:
                    return UnitResult(rows, failures, failed, ALL_TIME, ALL_TIME)
        failed = self.fire(EVENT, watermark, rows)
        if failed is None:
            failed = self.fire(WALL, clock, rows, behind=behind)
        if self.ttl and failed is None:
            self.sweep(watermark)
        return UnitResult(rows, failures, failed, *(heap.next() for heap in self.heaps))

    def fire(
        self,
        clock: int,
        until: int,
        rows: MadeRows,
        *,
        behind: int = AT_ONCE,
        at_place: int | None = None,
    ) -> FailedTimer | None:
        """All timers of a clock that are due; of one that fails, what to say of it. At the end of
        all time those that timers set are left out: one that sets itself again would never end.
        `behind`: by which it is judged what timers by the wall clock meet; `at_place`: what the
        timers make comes at once, at the place of this record."""
        handler = self.on_due[clock]
        fired: Counter[tuple[Key, int]] = Counter()
        while handler is not None and (timer := self.heaps[clock].pop(until)) is not None:
            due, place, at, key, kept = timer
            count, time = len(rows), datetime_of(at)
            over = self.over(kept.last, due if clock == EVENT else behind)
            state = self.new_state(self.kinds, None if over else kept.values)
            order = (BEHIND[clock] + due, place) if at_place is None else (AT_ONCE, at_place)
            fired[key, due] += 1
            try:
                if fired[key, due] > MOST_FIRINGS:
                    raise Misfit(SETS_ITSELF)
                timers = self.run(handler, key, time, state, rows, *order)
            except BaseException as error:
                rows.back(count)
                name = ("on_timer", "on_timeout")[clock]
                text = f"{name} of key {user_key(key)!r} at {time}: {error_text(error)}"
                return FailedTimer(text, error, *order)
            if until != ALL_TIME:
                self.set(kept, timers, due if clock == EVENT else AT_ONCE, place, key)
            if clock == EVENT:
                kept.last = max(kept.last, due)
            self.keep(key, kept, state.values())
        return None

    def set(self, kept: Kept, timers: Timers, after: int, place: int, key: Key) -> None:
        """Sets what a handler wants; nothing of event time is due before `after`."""
        if timers.wanted and self.on_due[EVENT] is not None:
            self.heaps[EVENT].set(kept, timers.wanted, after, place, key)
        if timers.timeouts:
            self.heaps[WALL].set(kept, timers.timeouts, AT_ONCE, place, key)

    def pending_timers(self) -> int:
        """How many are set, by both clocks."""
        return sum(heap.pending for heap in self.heaps)

    def over(self, last: int, watermark: int) -> bool:
        """Whether the values of a key whose last time this is are forgotten."""
        return self.ttl != 0 and last + self.ttl < watermark

    def sweep(self, watermark: int) -> None:
        """Forgets in earnest what counts as forgotten, whenever the watermark has gone on by half
        a ttl."""
        if watermark in (AT_ONCE, ALL_TIME) or watermark - self.swept < self.ttl // 2:
            return
        self.swept = watermark
        for states in self.states.values():
            for key in [key for key, kept in states.items() if self.over(kept.last, watermark)]:
                if states[key].has_timers() or self.numbers:
                    states[key].values = initial(self.kinds)
                else:
                    del states[key], self.home[key]

    def run(
        self,
        handler: Callable[..., Any],
        key: Key,
        given: Any,
        state: KeyState,
        rows: MadeRows,
        time: int,
        place: int,
    ) -> Timers:
        """Calls a handler and adds what it yields; gives the timers that it set."""
        timers = Timers(self.now, self.on_due[WALL] is not None, self.on_due[EVENT] is not None)
        made = handler(user_key(key), given, state, timers)
        if made is not None:
            for result in results_of(made):
                try:
                    rows.add(result, time, place)
                except ValueError as error:
                    raise misfit_of(error) from error
        return timers

    def find(self, key: Key) -> Kept | None:
        part = self.home.get(key)
        if part is None:
            return None
        if self.numbers:
            self.touched.add(key)
        kept: Kept = part[key]
        return kept

    def keep(self, key: Key, kept: Kept, values: dict[str, Any]) -> None:
        """A key that is as if it had never been takes no memory; with a ttl its last time counts
        until it is forgotten."""
        kept.values = values
        part = self.home.get(key)
        if not kept.has_timers() and not self.ttl and self.is_fresh(values):
            if part is not None:
                del part[key], self.home[key]
        elif part is None:
            bin = bin_of(key, self.types, self.bin_bits)
            part = self.home[key] = self.states.setdefault(bin, {})
            part[key] = kept

    def is_fresh(self, values: dict[str, Any]) -> bool:
        # By its text, because -0.0 equals 0.0; nearly all states differ before that.
        return values == self.fresh and repr(values) == repr(self.fresh) and not self.numbers

    def copy_values(self, values: dict[str, Any]) -> dict[str, Any]:
        """A handler changes lists and dicts in place, and may fail after that."""
        return values | {name: copy.deepcopy(values[name]) for name in self.mutable}

    def put_bin(self, data: bytes) -> int:
        bin = super().put_bin(data)
        self.wake(self.states[bin])
        return bin

    def apply_difference(self, data: bytes) -> int:
        bin = super().apply_difference(data)
        self.wake(self.states[bin])
        return bin

    def wake(self, states: dict[Key, Kept]) -> None:
        for key, kept in states.items():
            for heap in self.heaps:
                heap.wake(key, kept)

    def discard_bin(self, bin: int) -> None:
        gone = list(self.states.get(bin, {}).values())
        super().discard_bin(bin)
        for heap in self.heaps:
            heap.leave(gone)

    def inputs(self, batch: NativeBatch) -> Iterator[Given | Exception]:
        """Key, side and record of each row, or its error where no record can be made."""
        return in_parts(range(len(batch)), partial(self.read_rows, batch), lambda _, error: error)

    def read_rows(self, batch: NativeBatch, rows: Sequence[int]) -> list[Given]:
        count = len(rows)
        keys: list[Key] = list(zip(*columns_of(batch, self.keys, rows), strict=True))
        parts = [assemble(columns, batch, batch) for columns in self.columns]
        keys = keys or [()] * count
        if self.side < 0:
            records = self.shapes[0].rows(parts[0], rows)
            return list(zip(keys, [0] * count, records, strict=True))
        sides = columns_of(batch, [self.side], rows)[0]
        made = []
        for i, (shape, part) in enumerate(zip(self.shapes, parts, strict=True)):
            of_side = [row for row, one in zip(rows, sides, strict=True) if one == i]
            made.append(iter(shape.rows(part, of_side)))
        return [(key, one, next(made[one])) for key, one in zip(keys, sides, strict=True)]

    def check(self, given: Given | Exception) -> Given:
        if isinstance(given, Exception):
            raise given
        return (canonical(given[0]), *given[1:]) if self.has_float else given


def process_fingerprint(kinds: Mapping[str, Any], key_types: Sequence[Type]) -> int:
    """Of the bytes of a process: the names and types of its values, and those of its keys."""
    words = (f"{name}: {kind}" for name, kind in kinds.items())
    return xxh64("|".join(("process", *words, *(kind.value for kind in key_types))).encode())


def state_class(kinds: Mapping[str, Any]) -> type[KeyState]:
    """A KeyState whose values are found at once: `KeyState.__getattr__` alone is asked only after
    the name was looked for everywhere else, which takes four times as long."""

    def reader(name: str) -> property:
        return property(lambda state: state._values[name])

    return type(
        "KeyState", (KeyState,), {"__slots__": (), **{name: reader(name) for name in kinds}}
    )


def user_key(key: Key) -> Any:
    """The key as a handler gets it."""
    return key[0] if len(key) == 1 else key
