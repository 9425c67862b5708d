"""Custom state: a `Process` is a class with typed state for each key and handlers that yield.

    class Spike(plait.Process):
        state = {"last": float, "seen": int}
        out = Alert

        def on_record(self, key, bid, state, timers):
            if state.seen and bid.price > 2 * state.last:
                yield Alert(key, bid.price)
            state.last, state.seen = bid.price, state.seen + 1
            timers.at(bid.ts + plait.minutes(1))

        def on_timer(self, key, at, state, timers):
            state.clear()

    alerts = bids.key_by("auction").process(Spike())

`timers.after("5s")` calls `on_timeout(key, at, state, timers)` after that much wall-clock
time; `timers.now` is that clock. It is read once for a unit, when its source cuts it: it stands
still in a unit, and a run can be repeated (`Result.stamps`).

`key` is the value of the key column, or a tuple if there are several. What a handler yields (or a
list that it returns) comes out at the record's place. A process of two streams
(`plait.connect(a, b).process(p)`) has `on_left` and `on_right` instead of `on_record`. The state
begins with 0, 0.0, False, "", b"", None for a time, and empty lists and dicts.

The object in a job's graph is a shallow copy of the user's with `shapes`: the schemas of the
records that its handlers get. Nothing here runs a job.

    >>> state = KeyState({"seen": int, "names": list[str]})
    >>> state.seen += 1
    >>> state
    KeyState(seen=1, names=[])
"""

from __future__ import annotations

import copy
import datetime
import keyword
import typing
from typing import TYPE_CHECKING, Any, ClassVar

from plait.errors import JobError
from plait.functions.signatures import check_call
from plait.model.durations import Duration, microseconds
from plait.model.records import datetime_of, microseconds_of
from plait.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCALARS: dict[type, Any] = {
    int: 0,
    float: 0.0,
    bool: False,
    str: "",
    bytes: b"",
    datetime.datetime: None,
}
RECORD = ("key", "record", "state", "timers")
TIMER = ("key", "time", "state", "timers")
TIMED = ("on_timer", "on_timeout")
WORDS = "int, float, bool, str, bytes, plait.Timestamp, list[...] and dict[..., ...] of these"


class Process:
    """Base of a class with typed state for each key and handlers that yield records.

    `on_record(key, record, state, timers)` is called for each record. `timers.at(time)` calls
    `on_timer(key, at, state, timers)` when the watermark reaches a time, `timers.after("5s")` calls
    `on_timeout(key, at, state, timers)` by the wall clock. A process of two streams has `on_left`
    and `on_right` instead of `on_record`. State begins with 0, 0.0, False, "", b"", None for a
    time, and empty lists and dicts.

    >>> import plait
    >>> class Rises(plait.Process):
    ...     state = {"last": int}
    ...     out = {"item": str, "price": int}
    ...     def on_record(self, key, bid, state, timers):
    ...         if bid.price > state.last:
    ...             yield key, bid.price
    ...         state.last = bid.price
    >>> bids = [{"item": "tea", "price": price} for price in (3, 2, 5)]
    >>> rises = plait.stream(bids).key_by("item").process(Rises())
    >>> [record.price for record in rises.collect()]
    [3, 5]
    """

    state: ClassVar[Mapping[str, Any]] = {}
    """The name and type of each value that is kept for a key."""
    out: ClassVar[Any] = None
    """The schema of what the handlers yield: a dataclass, or a dict of name to type."""
    shapes: tuple[Schema, ...] = ()
    """The schemas of the records: of the stream, or of left and right. Set when a job is built."""


class KeyState:
    """The values of a key, as attributes. A wrong name or type is refused where it is set."""

    __slots__ = ("_kinds", "_values")

    def __init__(self, kinds: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "_kinds", kinds)
        object.__setattr__(self, "_values", initial(kinds) if values is None else dict(values))

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyState, (self._kinds, self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f'the state has no "{name}"; it has {self._names()}') from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._kinds:
            raise AttributeError(f'the state has no "{name}"; it has {self._names()}')
        self._values[name] = fitting(name, value, self._kinds[name])

    def __repr__(self) -> str:
        return f"KeyState({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def clear(self) -> None:
        """Everything as it was before the first record of the key."""
        self._values.update(initial(self._kinds))

    def values(self) -> dict[str, Any]:
        """All values by name."""
        return dict(self._values)

    def _names(self) -> str:
        return ", ".join(self._kinds) or "nothing; name it in `state = {...}`"


class Timers:
    """Takes the timers that a handler sets for its key."""

    __slots__ = ("_now", "_takes", "timeouts", "wanted")

    def __init__(self, now: int = 0, takes_timeouts: bool = False) -> None:
        self._now = now
        self._takes = takes_timeouts
        self.wanted: list[int] = []
        """Microseconds since 1970, in the order they were set."""
        self.timeouts: list[int] = []
        """The same by the wall clock."""

    @property
    def now(self) -> datetime.datetime:
        """The wall clock when the unit of the record was cut; by it timeouts come."""
        return datetime_of(self._now)

    def after(self, delay: Duration) -> None:
        """Calls `on_timeout` after the first unit that was cut at least `delay` after this one."""
        if not self._takes:
            raise TypeError("timers.after calls on_timeout(key, at, state, timers); there is none")
        self.timeouts.append(self._now + microseconds(delay))

    def at(self, time: datetime.datetime) -> None:
        """Calls `on_timer` when the watermark has reached this time; once for a key and time."""
        if not isinstance(time, datetime.datetime) or time.utcoffset() is None:
            raise TypeError(f"timers.at takes a time with a zone, such as record.ts, not {time!r}")
        self.wanted.append(microseconds_of(time))


def initial(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """What the state is before the first record of a key."""
    return {name: first_value(kind) for name, kind in kinds.items()}


def first_value(kind: Any) -> Any:
    if kind in SCALARS or kind is object:
        return SCALARS.get(kind)
    return typing.get_origin(kind)()


def fitting(name: str, value: Any, kind: Any) -> Any:
    """The value, if it is of the type of its place in the state; ints become floats."""
    if kind is object:
        return value
    wanted = kind if kind in SCALARS else typing.get_origin(kind)
    if value is None and wanted is datetime.datetime:
        return value
    if wanted is float and type(value) is int:
        return float(value)
    whole = wanted is int and isinstance(value, bool)
    if not isinstance(value, wanted) or whole:
        raise TypeError(f"state.{name} is {shown(kind)}, got {value!r} ({type(value).__name__})")
    return value


def check_process(process: Any, shapes: Sequence[Schema], *, timed: bool) -> Process:
    """The process for streams of these schemas; `timed`: whether they have event time."""
    if isinstance(process, type) and issubclass(process, Process):
        raise JobError(f"{process.__name__} is a class; give an object of it: {process.__name__}()")
    if not isinstance(process, Process):
        raise JobError(
            f"{process!r} is not a plait.Process; make it an object of a subclass of plait.Process"
        )
    name = type(process).__name__
    checked_state(process.state, name)
    wanted = ("on_record",) if len(shapes) == 1 else ("on_left", "on_right")
    for handler in wanted:
        if not hasattr(process, handler):
            streams = "one stream" if len(shapes) == 1 else "two streams"
            raise JobError(f"{name} has no {handler}; a process of {streams} needs it")
    for handler in ("on_record", "on_left", "on_right", *TIMED):
        there = getattr(process, handler, None)
        if there is not None and handler not in (*wanted, *TIMED):
            streams = "two streams" if len(shapes) == 1 else "one stream"
            raise JobError(f"{name} has {handler}, which is for a process of {streams}")
        if there is not None:
            check_call(there, TIMER if handler in TIMED else RECORD)
    if hasattr(process, "on_timer") and not timed:
        raise JobError(
            f"{name} has on_timer, and the stream has no event time for its timers;"
            ' say which column it is: source(..., event_time="ts"); by the wall clock there are'
            " timers.after and on_timeout"
        )
    bound = copy.copy(process)
    bound.shapes = tuple(shapes)
    return bound


def out_schema(process: Process) -> Schema:
    """The schema of what the handlers yield."""
    name = type(process).__name__
    if process.out is None:
        raise JobError(f"{name} does not say what it yields: out = a dataclass or a dict of types")
    try:
        return Schema.of(process.out)
    except JobError as error:
        raise JobError(f"{name}.out: {error}") from None


def checked_state(kinds: Any, name: str) -> None:
    if not isinstance(kinds, dict):
        raise JobError(f'{name}.state is {kinds!r}; it must be a dict such as {{"seen": int}}')
    for field, kind in kinds.items():
        if not isinstance(field, str) or not field.isidentifier() or keyword.iskeyword(field):
            raise JobError(f"{name}.state: {field!r} cannot be the name of an attribute")
        if field.startswith("_") or hasattr(KeyState, field):
            raise JobError(f'{name}.state: "{field}" is taken; choose another name')
        if not is_state_type(kind):
            raise JobError(f'{name}.state: "{field}" is {shown(kind)}; there are {WORDS}')


def is_state_type(kind: Any) -> bool:
    try:
        if kind in SCALARS:
            return True
    except TypeError:
        return False  # not a type at all
    args = typing.get_args(kind)
    size = {list: 1, dict: 2}.get(typing.get_origin(kind))
    return size == len(args) and all(arg in SCALARS for arg in args)


def shown(kind: Any) -> str:
    plain = isinstance(kind, type) and not typing.get_args(kind)
    return kind.__name__ if plain else str(kind)
