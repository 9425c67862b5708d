"""Windows in the plain loop: a cell for each key and window, and what is in it.

A cell is begun by a record and has its place. At the mark at which its window ends it gives its
rows, by the end of the window and the place of the cell, and at once when a record comes after
that. Sessions that a record joins become one cell. What a cell holds is a `Tally` of aggregates or
the `Best` rows; the rest is the same for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from plait.graph.temporal import (
    CarriedWindow,
    Grid,
    LastSpec,
    LateSpec,
    RowWindow,
    RunningSpec,
    SessionWindow,
    TopSpec,
    WindowSpec,
)
from plait.testing.oracle.aggregates import Results, Running, is_nan
from plait.testing.oracle.row_operators import Keys
from plait.testing.oracle.running import LastRows, RunningKept
from plait.testing.oracle.time import ALL_TIME, NO_TIME, Fate, TimedOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.graph.operators import TimedOp
    from plait.model.schema import Schema
    from plait.testing.oracle.time import Time
    from plait.testing.oracle.values import Values

Span = tuple[int, int]
"""Start and end of a window; the end is not in it."""


def windows_of(grid: Grid, time: int) -> list[Span]:
    """All windows that a time is in, the earliest first."""
    last = time - (time - grid.offset_us) % grid.every_us
    found: list[Span] = []
    start = last
    while start + grid.size_us > time:
        found.append((start, start + grid.size_us))
        start -= grid.every_us
    return found[::-1]


def pane_of(grid: Grid, time: int) -> int:
    """The start of the pane: the widest piece of time that lies in a window wholly or not."""
    divides = grid.size_us % grid.every_us == 0
    width = grid.every_us if divides else math.gcd(grid.size_us, grid.every_us)
    return time - (time - grid.offset_us) % width


class Content(Protocol):
    """What a cell holds."""

    def check(self, time: int, fed: Values, later: Sequence[Any]) -> None: ...
    def add(self, place: int, time: int, values: Values, fed: Values) -> None: ...
    def absorb(self, later: Any) -> None: ...
    def rows(self) -> list[Values]: ...


class Tally:
    """Aggregates, pane by pane, the panes joined in the order of time."""

    def __init__(self, results: Results, pane: Callable[[int], int]) -> None:
        self.results = results
        self.pane = pane
        self.panes: dict[int, list[Running]] = {}

    def check(self, time: int, fed: Values, later: Sequence[Tally]) -> None:
        """Raises Fault if a record does not fit the sums, those of `later` (sessions that it joins
        to this one) added first."""
        total = self.results.start()
        for tally in (self, *later):
            for one, other in zip(total, tally.panes.get(self.pane(time), ()), strict=False):
                one.absorb(other)
        self.results.check(total, fed)

    def add(self, place: int, time: int, values: Values, fed: Values) -> None:
        state = self.panes.setdefault(self.pane(time), self.results.start())
        self.results.feed(state, fed, place)

    def absorb(self, later: Tally) -> None:
        for pane, state in later.panes.items():
            mine = self.panes.setdefault(pane, self.results.start())
            for one, other in zip(mine, state, strict=True):
                one.absorb(other)

    def rows(self) -> list[Values]:
        total = self.results.start()
        for _, state in sorted(self.panes.items(), key=lambda pane: pane[0]):
            for one, other in zip(total, state, strict=True):
                one.absorb(other)
        return [tuple(running.result() for running in total)]


class Best:
    """The rows of a window, and the best of them."""

    def __init__(self, spec: TopSpec, by: int) -> None:
        self.spec = spec
        self.by = by
        self.records: list[tuple[int, Values]] = []

    def check(self, time: int, fed: Values, later: Sequence[Best]) -> None:
        """There are no sums."""

    def add(self, place: int, time: int, values: Values, fed: Values) -> None:
        self.records.append((place, values))

    def absorb(self, later: Best) -> None:
        self.records += later.records

    def rows(self) -> list[Values]:
        able = [one for one in self.records if self.able(one[1][self.by])]
        able.sort(key=lambda one: one[0])
        able.sort(key=lambda one: one[1][self.by], reverse=self.spec.greatest)  # keeps equal ones
        best = able[: self.spec.k]
        if self.spec.ties and best:
            best += [one for one in able[self.spec.k :] if one[1][self.by] == best[-1][1][self.by]]
        return [values for _, values in best]

    @staticmethod
    def able(value: Any) -> bool:
        return value is not None and not is_nan(value)


@dataclass(slots=True, eq=False)
class Cell:
    """One key in one window."""

    key: Values
    keys: Values
    """The columns of the key, without -0.0, which is the same key as 0.0."""
    start: int
    end: int
    place: int
    content: Content
    changed: bool = True
    """Whether it has changed since it last came out; for early results."""


class Cells(TimedOperator):
    """Windows of every kind but `RowWindow`."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        spec = op.spec
        assert isinstance(spec, WindowSpec | TopSpec)
        assert not isinstance(spec.window, RowWindow)
        self.window: Grid | SessionWindow | CarriedWindow = spec.window
        self.spec = spec
        self.keys = Keys(op.keys, schema)
        self.key_names = op.keys
        self.schema = schema
        self.out = op.schema
        self.time = schema.index(op.time) if op.time else -1
        self.lateness = spec.lateness_us
        self.early = spec.early_us if isinstance(spec, WindowSpec) else 0
        self.results = Results(spec.aggregates if isinstance(spec, WindowSpec) else (), schema)
        self.cells: dict[int, dict[Cell, None]] = {}
        """By the end of their window."""
        self.of_key: dict[Values, dict[Cell, None]] = {}
        self.at: dict[tuple[Values, Span], Cell] = {}
        """By key and window."""

    def content(self) -> Content:
        if isinstance(self.spec, TopSpec):
            return Best(self.spec, self.schema.index(self.spec.by))
        window = self.window
        return Tally(self.results, lambda t: pane_of(window, t) if isinstance(window, Grid) else 0)

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        key = self.keys.key(values)
        fed = self.results.fed(values)
        time = self.now if self.spec.by_arrival else values[self.time] if self.time >= 0 else 0
        spans = [span for span in self.spans(time, values) if span[1] + self.lateness > watermark]
        if not spans:
            return Fate.LATE
        for span in spans:
            if touched := self.touched(key, span):
                later = [cell.content for cell in touched[1:]]
                touched[0].content.check(time, fed, later)
        rows: list[Values] = []
        for span in spans:
            cell = self.cell(key, values, span, place)
            cell.content.add(place, time, values, fed)
            cell.changed = cell.end > watermark
            rows += [] if cell.changed else self.rows(cell, complete=True)
        return rows

    def spans(self, time: int, values: Values) -> list[Span]:
        match self.window:
            case Grid():
                return windows_of(self.window, time)
            case SessionWindow():
                return [(time, time + self.window.gap_us)]
            case CarriedWindow():
                names = ("window_start", "window_end")
                start, end = (values[self.schema.index(name)] for name in names)
                return [(start, end)]

    def touched(self, key: Values, span: Span) -> list[Cell]:
        """The cells that a record goes into: sessions become one."""
        if not isinstance(self.window, SessionWindow):
            return [self.at[key, span]] if (key, span) in self.at else []
        mine = self.of_key.get(key, {})
        touched = [c for c in mine if c.start < span[1] and span[0] < c.end]
        return sorted(touched, key=lambda c: c.start)

    def cell(self, key: Values, values: Values, span: Span, place: int) -> Cell:
        """The cell that a record goes into, maybe a new one."""
        mine = self.of_key.setdefault(key, {})
        touched = self.touched(key, span)
        if not touched:
            found = Cell(key, plain(self.keys.columns(values)), *span, place, self.content())
        else:
            found = touched[0]
            for other in touched:
                self.remove(other)
            for other in touched[1:]:
                found.content.absorb(other.content)
                found.place = min(found.place, other.place)
            found.start = min(span[0], found.start)
            found.end = max([span[1], *(c.end for c in touched)])
        mine[found] = None
        self.at[key, (found.start, found.end)] = found
        self.cells.setdefault(found.end, {})[found] = None
        return found

    def remove(self, cell: Cell) -> None:
        del self.of_key[cell.key][cell]
        del self.at[cell.key, (cell.start, cell.end)]
        del self.cells[cell.end][cell]
        if not self.cells[cell.end]:
            del self.cells[cell.end]

    def due(self, before: Time, watermark: Time) -> list[Values]:
        if watermark == before:
            return []
        ended = [c for end in self.cells if before < end <= watermark for c in self.cells[end]]
        early = []
        if self.early and watermark != ALL_TIME and self.passes(before, watermark):
            going = [end for end in self.cells if end > watermark]
            early = [c for end in going for c in self.cells[end] if c.changed]
        rows: list[Values] = []
        for cell in sorted(ended + early, key=lambda c: (c.end, c.place)):
            rows += self.rows(cell, complete=cell.end <= min(self.held, watermark))
            cell.changed = False
        for end in [end for end in self.cells if end + self.lateness <= watermark]:
            for cell in list(self.cells[end]):
                self.remove(cell)
        return rows

    def passes(self, before: Time, watermark: Time) -> bool:
        """Whether a multiple of `early` lies above the one and not above the other."""
        if before == NO_TIME:
            return watermark > before
        return watermark // self.early > before // self.early

    def rows(self, cell: Cell, *, complete: bool) -> list[Values]:
        found = cell.content.rows()
        if isinstance(self.spec, TopSpec):
            span = () if isinstance(self.window, CarriedWindow) else (cell.start, cell.end)
            mark = (complete,) if self.spec.complete else ()
            return [values + span + mark for values in found]
        named = dict(zip(self.key_names, cell.keys, strict=True))
        named |= {"window_start": cell.start, "window_end": cell.end}
        named |= dict(zip(self.results.names, found[0], strict=True))
        named |= {self.spec.complete: complete}
        return [tuple(named[name] for name in self.out.names)]


def plain(key: Values) -> Values:
    return tuple(0.0 if isinstance(value, float) and value == 0 else value for value in key)


class Late(TimedOperator):
    """The stream of late records."""

    def __init__(self, op: TimedOp, schema: Schema) -> None:
        assert isinstance(op.spec, LateSpec)
        self.spec = op.spec
        self.keys = Keys(op.keys, schema)
        self.time = schema.index(op.time)

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        self.keys.key(values)
        late = self.end(values[self.time]) + self.spec.lateness_us <= watermark
        return [values] if late else Fate.LEFT_OUT

    def end(self, time: int) -> int:
        """When the last window that the time is in ends."""
        window = self.spec.window
        return (
            time + window.gap_us
            if isinstance(window, SessionWindow)
            else windows_of(window, time)[-1][1]
        )


def window_operator(op: TimedOp, schema: Schema) -> TimedOperator:
    match op.spec:
        case RunningSpec():
            return RunningKept(op, schema)
        case LateSpec():
            return Late(op, schema)
        case LastSpec() | WindowSpec(window=RowWindow()):
            return LastRows(op, schema)
    return Cells(op, schema)
