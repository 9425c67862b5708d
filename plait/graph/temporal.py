"""Event-time operators as plain data: windows, top rows, joins, state with timers, and loops.

**Time.** A source may name its event time, a timestamp column. After a unit (one epoch of one
source) the source's time is the greatest event time it has had, but never more than `max_jump`
above what it was before the unit; its watermark is that minus `out_of_order`. The watermark of an
operator after a unit is the least of those of the sources that reach it and have an event time
(none so far: there is no watermark yet), and never falls. An idle source and one at its end do not
hold it back. Every epoch ends with the rows that its sources have; when all sources are at their
end, one more empty epoch follows with the watermark at infinity.

**Order.** An operator sees the units in order. In a unit it takes each row in turn, and what a row
makes at once comes out at that row's place; then the watermark is as it is after the unit, and
what is due by then comes out after all rows of the unit, by time and, at the same time, by the
place of the record that began it: windows in the order of their ends, and in a window the keys in
the order in which they first came, as a dict of dicts in a plain loop would give them.

**Forgetting.** With a ttl a record does not see the state of its key and starts afresh if its
event time or the watermark before its unit is above the key's last event time by more than the ttl.
The last event time is the greatest of the key's records since it began.

**Late.** A record is late if all windows it belongs to have ended, lateness included, at the
watermark *before* its unit. Late records change nothing and are counted; `LateSpec` is the stream
of them.

Every operator here has one input and works by key: `TimedOp.keys` of that input. An operator of
two streams reads their union: `plait.streams.two_inputs` gives both the same columns, and `side`
says where a row comes from (0 left, 1 right).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from plait.expr.aggregates import Aggregate
    from plait.model.schema import Schema

How = Literal["inner", "left", "semi", "anti", "late"]
ONE_SIDED: tuple[How, ...] = ("semi", "anti", "late")
"""Those that give only left records."""

START, END = "window_start", "window_end"
"""The columns that say to which window a result belongs."""

SIDE = "side"
"""The column of two streams as one that says from which of them a row comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Windows [start, start + size), starts at `offset` + n * `every`, for any whole n. Tumbling:
    every = size; sliding: every < size. `every` need not divide `size`."""

    size_us: int
    every_us: int
    offset_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindow:
    """Records of a key less than `gap` apart: [first, last + gap). Sessions that a record connects
    become one; its place is that of the record that came first."""

    gap_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWindow:
    """The last `size` records of a key, whenever `every` more have come (and at least `size`); a
    result comes at the place of the record that completes it. The rest at the end gives none."""

    size: int
    every: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedWindow:
    """The windows that the rows carry already in `window_start` and `window_end`."""


Window = Grid | SessionWindow | RowWindow | CarriedWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """Aggregates by key and window, one row each when the watermark has passed the window's end
    (with `RowWindow`: at once): keys, window_start, window_end (not with `RowWindow`), results.

    `lateness_us`: how long after its end a window still takes records; at the end of every unit
    that brought it some, it gives its keys that changed again. `early_us`: whenever the watermark
    passes a multiple of it, the keys that changed since in windows that have not ended give their
    results so far, in the same order; 0: not.
    """

    window: Window
    aggregates: tuple[tuple[str, Aggregate], ...]
    lateness_us: int = 0
    early_us: int = 0
    ttl_us: int = 0
    """With `RowWindow`: the records of a key are forgotten; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopSpec:
    """The `k` rows with the greatest (or least) `by` of each key and window, when it has ended:
    greatest first, of equal ones the one that came first. `ties`: also those that equal the last.
    Rows with a null or NaN in `by` are never among them. Columns: those of the input, and
    window_start and window_end unless the window is `CarriedWindow`."""

    window: Grid | SessionWindow | CarriedWindow
    k: int
    by: str
    greatest: bool = True
    ties: bool = False
    lateness_us: int = 0
    """A window that takes late records gives all its rows again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSpec:
    """The records that a `WindowSpec` or `TopSpec` of this window and lateness leaves out as late,
    as they are, at their place. Counted as filtered: those that are not late."""

    window: Grid | SessionWindow
    lateness_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSpec:
    """Aggregates over the last `n` records of the key, for every record, at its place: keys,
    results."""

    n: int
    aggregates: tuple[tuple[str, Aggregate], ...]
    ttl_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSpec:
    """Aggregates over all records of the key that are not forgotten, for every record, at its
    place: keys, results. Without a ttl that is an `AggregateOp`."""

    aggregates: tuple[tuple[str, Aggregate], ...]
    ttl_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a join in the common input: the columns that are its record, and its event time
    among them ("" if the join does not need time)."""

    columns: tuple[str, ...]
    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSpec:
    """Pairs of left and right records of the same key; a null key matches nothing. Columns:
    `left.columns`, then `right.columns` (semi, anti and late: `left.columns` alone), under their
    names in the operator's schema.

    A record is paired with records of the other side that came before it, in the order they came,
    and the pairs come out at its place. Which of them:

    - `within` None: all. `ttl_us` > 0: only those whose event time is at least the watermark before
      the unit minus ttl (they are dropped when it passes).
    - `within` a Grid: those in the same window (a pair for every window that they share).
    - `within` Between: right.time - left.time in [low, high]; records are dropped when nothing can
      match them any more.
    - `within` AsOf: a left record waits until the watermark has reached its event time, then comes
      out (at its time, in the order of places) with the right record of the greatest event time at
      or before its own (of equal ones the last that came), but not more than `tolerance` before.

    how: "inner"; "semi": a left record comes out once, at the place where its first match is known;
    "anti" and "left": a left record without a match comes out (left: with nulls) when the watermark
    says that none can come any more: the end of its window, of its interval, of its ttl (with no
    ttl: at the end); its order is that time, then its place. A record that comes too late (its
    window has ended, its interval or ttl is over at the watermark before its unit) is late: "late"
    gives the left records of which that is true, at their place, and counts all others as filtered.
    """

    left: Side
    right: Side
    how: How = "inner"
    within: Grid | Between | AsOf | None = None
    ttl_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """right.time - left.time lies in [low_us, high_us]."""

    low_us: int
    high_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """The last right record at or before the left one; tolerance 0: however old."""

    tolerance_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanSpec:
    """For each left record, aggregates over the right records of its key whose event time lies in
    [start, end] of the left record (two of its timestamp columns): one row when the watermark has
    passed `end`, by `end`, then the place of the left record. Left records without a right one give
    no row, unless `empty`. Right records may come before the left one: they are kept while the
    watermark is not above their event time by more than `wait_us`. A left record whose `end` is
    below the watermark before its unit is late. Columns: left.columns, results. `aggregates` are
    over expressions of the right columns, already computed into columns of the input."""

    left: Side
    right: Side
    start: str
    end: str
    aggregates: tuple[tuple[str, Aggregate], ...]
    empty: bool = False
    wait_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A user's state machine with timers, in Python: `process` is a `plait.Process`. What
    `on_record` (or `on_left`, `on_right`) yields comes at the record's place; an event-time timer
    fires when the watermark has reached it, by its time, then by the place of the record it goes
    back to: that whose handler set it, or set the timer that set it (one timer for a key and time;
    one that a timer sets for a time before its own counts at its own). With the watermark at
    infinity timers set no timers. A record whose handler fails leaves no trace; a timer whose
    handler fails ends the run, whatever the policy. `sides`: the columns of each side of a
    connected pair, empty for one stream.

    `timers.after` sets a timer by the wall clock. The clock of an operator after a unit is the
    greatest stamp of the units so far, each read when its source cut the unit; `on_timeout` is
    called after the first unit after which the clock has reached the timer's time, and after all
    event-time timers of the unit, by time and place as these. What `on_timeout` sets by event time
    is looked at after the next unit. When all sources are at their end the clock is at infinity.

    `ttl_us`: values are forgotten, timers are not. A timer sees what is kept at its time, and
    counts as a record of that time; one by the wall clock sees what a record of its unit would,
    judged by the watermark alone."""

    process: Any
    sides: tuple[Side, ...] = ()
    ttl_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPort:
    """A port at which records arrive: their schema, and the columns of the operator's input that
    they are made of."""

    name: str
    schema: Schema
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPort:
    """A port at which records are emitted: their schema, and the columns of the operator that hold
    them. `tuples`: what is emitted is a tuple with a record (or None) of each input."""

    name: str
    schema: Schema
    columns: tuple[str, ...]
    tuples: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """An operator with its own loop, a coroutine in Python: `function(ctx, **parameters)`.

    The records arrive at the ports one by one, in the order of the input; with several ports `side`
    is the number of the port. The coroutine begins when the first one arrives, and after each it
    runs as far as it can, awaiting other things than records included; what it emits comes at the
    place of that record. After the unit with which the last of a port's sources ends, the port is
    over: the coroutine runs again, and what it emits then comes after all rows of the unit.
    When it has returned, records that arrive are absorbed. One that raises fails the record that
    came last, and what it emitted since that arrived is left out. A record that arrives at a port
    where `bound` are waiting fails (None: any number may wait).

    There is one state for all records. It cannot be moved or copied: on several nodes it stays on
    the home node, and there is no snapshot of it. With several outputs the operator's first column
    is the number of the port."""

    function: Any
    parameters: tuple[tuple[str, Any], ...]
    inputs: tuple[InputPort, ...]
    outputs: tuple[OutputPort, ...]
    bound: int | None


TimedSpec = (
    WindowSpec
    | TopSpec
    | LateSpec
    | LastSpec
    | RunningSpec
    | JoinSpec
    | SpanSpec
    | ProcessSpec
    | OperatorSpec
)


def time_columns(time: str, spec: TimedSpec) -> tuple[str, ...]:
    """The columns of the input that are event times of an operator: its own or those of its
    sides."""
    sides = (spec.left.time, spec.right.time) if isinstance(spec, JoinSpec | SpanSpec) else ()
    return tuple(dict.fromkeys(name for name in (time, *sides) if name))
