"""Event-time operators as plain data: windows, top rows, joins, state with timers, and loops.

**Time.** A source may name its event time, a timestamp column. Time goes on with every record: the
source's time is then the greatest event time it has had, but no more than `max_jump` above what it
was before the record (the first sets it freely). A time more than 2 ** 62 us from 1970 moves
nothing. An `EventTimeOp` names the event time of the rows that pass it, and is an origin of time
like such a source: origins before it no longer reach what is behind it. The watermark of an
operator is the least of the times of the origins that reach it, each less its `out_of_order` and
what is held back on the way (`graph.delays`); it never falls. Windows by arrival are an origin too,
with the wall clock as their time (`WindowSpec`). Sources without an event time move
nothing and hold nothing up; nor do an idle origin, until its next row, and one at its end, which is
that of all its sources. As long as one of the others has no time there is no watermark.

**Marks.** A mark goes through the operators in the order of the graph in front of each row that a
source has read, and the record goes behind it. At a mark an operator that knows time

1. takes what the operators before it gave at this mark, one by one, at its watermark as it was;
2. its watermark rises;
3. it gives what is due: by its own time, then by the place of the record that began it. So windows
   come in the order of their ends, and in a window the keys in the order in which they first came,
   as a dict of dicts in a plain loop would give them.

An `EventTimeOp` whose time so far is t: at the mark of row m what was given at it passes first, and
when what is behind has taken it, t moves to the greatest of it. Then t moves to the least time of
what is made of record m and passes, so the pieces of a record never make each other late; to the
greatest of them it moves from row m + 1 on, whatever becomes of that row. If m is the last row of
its unit that is the first row of the next unit of a source that reaches the operator, and not the
mark behind the unit; so it is for what passes behind the rows of a unit. What passes at one place
moves time by `max_jump` at most. A record whose time is null, cannot be computed or is too far off
fails and moves nothing. The operator is idle behind a unit if none of its rows passed in the last
units, for more than `idle` by their stamps.

What waits for times below t (windows, sessions, timers) is due at a watermark of t: the moment t
comes before the records of t. What waits for times up to t (intervals, ttl, spans, as-of) is due
above it. A record moves time whatever becomes of it: filtered, late, failed, gone to another
branch. Behind the rows of a unit (one epoch of one source) follows a mark with the facts of the
unit: its source is idle or at its end, and the wall clock. When all sources are at their end one
more empty epoch follows, with the watermark at infinity.

**Order.** The place of a row is (epoch, source, row, half): half 0 for what is given at the mark of
that row, 1 for the record and what is made of it; behind a unit of n rows it is row n, half 0. A
union orders by row and half, then by the position of the input. What a record makes comes at once,
at its place, and so does what it begins that is due already. With one source nothing of this
depends on where epochs are cut; with several, cuts say how their rows interleave, unless they are
those of slices of event time (`plait.graph.source_order`), where a source ends with its last row.

**Failures.** The mark of a record that fails was before it, so what was due by then is given. A
timer that fails ends its stream at its mark.

**Forgetting.** With a ttl a record does not see the state of its key and starts afresh if its
event time or the watermark is above the key's last event time by more than the ttl. The last event
time is the greatest of the key's records since it began.

**Late.** A record is late if all windows it belongs to have ended, lateness included. One whose
event time is not below the watermark never is. Late records change nothing and are counted;
`LateSpec` is the stream of them.

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
    """Aggregates by key and window, one row each when the watermark has reached the window's end
    (with `RowWindow`: at once): keys, window_start, window_end (not with `RowWindow`), results.

    `lateness_us`: how long after its end a window still takes records; each gives its key again, at
    its place, for every ended window it is in. `early_us`: at a mark that takes the watermark over
    a multiple of it (at the first one with a watermark too, but not at infinity), the keys that
    changed since in windows that have not ended give their results so far, in the same order as the
    windows that end; 0: not. `complete`: the name of one more column, behind the results: whether
    the window was over when the row was given. It is false for early results, and for windows that
    a stopped run gives though the watermark, without the stop, is not at their end; "": none.

    `by_arrival`: the operator is an origin of time itself, and what is before it does not reach it
    or what is behind it. In a unit its time is the operator's wall clock, as of a `ProcessSpec`,
    from the first mark on, and that is the time of all records of the unit: none is ever late."""

    window: Window
    aggregates: tuple[tuple[str, Aggregate], ...]
    lateness_us: int = 0
    early_us: int = 0
    ttl_us: int = 0
    """With `RowWindow`: the records of a key are forgotten; 0: never."""
    complete: str = ""
    by_arrival: bool = False
    """With `Grid` and `SessionWindow`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopSpec:
    """The `k` rows with the greatest (or least) `by` of each key and window, when it has ended:
    greatest first, of equal ones the one that came first. `ties`: also those that equal the last.
    Rows with a null or NaN in `by` are never among them. Columns: those of the input, and
    window_start and window_end unless the window is `CarriedWindow`, and `complete` as in
    `WindowSpec`, and so is `by_arrival`."""

    window: Grid | SessionWindow | CarriedWindow
    k: int
    by: str
    greatest: bool = True
    ties: bool = False
    lateness_us: int = 0
    """A window that takes a late record gives all its rows again, at its place."""
    complete: str = ""
    by_arrival: bool = False


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

    - `within` None: all. `ttl_us` > 0: only those whose event time is at least the watermark minus
      ttl (they are dropped when it passes).
    - `within` a Grid: those in the same window (a pair for every window that they share).
    - `within` Between: right.time - left.time in [low, high]; records are dropped when nothing can
      match them any more. A left record that comes when its interval is over, but is not itself
      behind the watermark, meets what is there; without a match it comes out at once.
    - `within` AsOf: a left record waits until the watermark is above its event time, then comes out
      (by its time, in the order of places) with the right record of the greatest event time at or
      before its own (of equal ones the last that came), but not more than `tolerance` before.

    how: "inner"; "semi": a left record comes out once, at the place where its first match is known;
    "anti" and "left": a left record without a match comes out (left: with nulls) when the watermark
    says that none can come any more: the end of its window, of its interval, of its ttl (with no
    ttl: at the end); its order is that time, then its place. A record that comes too late is late:
    its last window has ended, its ttl is over, its interval and its own time are; as-of: its time
    is below the watermark (right: by more than the tolerance; without one never). "late" gives the
    left records of which that is true, at their place, and counts all others as filtered.

    Results of a semi join have the time of the left record, and so have those of a left or anti
    join in a grid: `graph.delays` says how long time behind them waits for it."""

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
    watermark is not above their event time by more than `wait_us`. A left record is late if `end`
    and its own time are below the watermark; if only `end` is, its row comes at once, over what is
    kept. Columns: left.columns, results. `aggregates` are over expressions of the right columns,
    already computed into columns of the input."""

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
    fires at the mark at which the watermark reaches it, by its time, then by the place of the
    record it goes back to: that whose handler set it, or set the timer that set it (one timer for a
    key and time; one that a timer sets for a time before its own counts at its own). One that a
    record sets for a time that the watermark has reached fires behind its handler, at its place.
    With the watermark at infinity timers set no timers; otherwise those of a key may fire 10,000
    times at one mark for the same time before that is an error. A record whose handler fails leaves
    no trace; a timer whose handler fails ends the run, whatever the policy. `sides`: the columns of
    each side of a connected pair, empty for one stream.

    `timers.after` sets a timer by the wall clock. The clock of an operator after a unit is the
    greatest stamp of the units so far, each read when its source cut the unit; `on_timeout` is
    called behind the first unit after which the clock has reached the timer's time, and behind all
    event-time timers of the unit, by time and place as these. What `on_timeout` sets by event time
    is looked at at the next mark. When all sources are at their end the clock is at infinity.

    `ttl_us`: values are forgotten, timers are not. A timer sees what is kept at its time, and
    counts as a record of that time; one by the wall clock sees what is kept at the watermark of the
    last row of its unit."""

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
    place of that record. Behind the unit with which the last of a port's sources ends, the port is
    over: the coroutine runs again, and what it emits then comes behind all rows of the unit.
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


def is_by_arrival(spec: TimedSpec) -> bool:
    """Whether the operator goes by when its records arrived."""
    return isinstance(spec, WindowSpec | TopSpec) and spec.by_arrival


def time_columns(time: str, spec: TimedSpec) -> tuple[str, ...]:
    """The columns of the input that are event times of an operator: its own or those of its
    sides."""
    sides: tuple[str, ...] = ()
    match spec:
        case JoinSpec() | SpanSpec():
            sides = (spec.left.time, spec.right.time)
        case WindowSpec(window=CarriedWindow()) | TopSpec(window=CarriedWindow()):
            sides = (START, END)
    return tuple(dict.fromkeys(name for name in (time, *sides) if name))
