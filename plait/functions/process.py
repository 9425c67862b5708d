"""Custom state: a `Process` is a class with typed state for each key and handlers that yield.

This module defines the class, its state and its timers; `process_checks` checks a process against
the streams it reads. The object in a job's graph is a shallow copy of the user's with `shapes`, the
schemas of the records that its handlers get. Nothing here runs a job.

    >>> state = KeyState({"seen": int, "names": list[str]})
    >>> state.seen += 1
    >>> state
    KeyState(seen=1, names=[])
"""

from __future__ import annotations

import datetime
import types
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from plait.model.durations import Duration, microseconds
from plait.model.records import datetime_of, describe, microseconds_of

if TYPE_CHECKING:
    from plait.model.schema import Schema

SCALARS: dict[type, Any] = {
    int: 0,
    float: 0.0,
    bool: False,
    str: "",
    bytes: b"",
    datetime.datetime: None,
}
MOST_FIRINGS = 10_000
"""How often timers of one key that are due at one time may fire at one mark."""
SETS_ITSELF = (
    f"timers of this key have set timers for a time gone by {MOST_FIRINGS:,} times in a row;"
    " set the next one for a time after `at`"
)


class Process:
    """Base class for custom state by key: typed state, timers, and handlers that yield records.

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

    A process that runs as it stands:

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

    Class attributes:
        state: the name and type of each value that is kept for a key: int, float, bool, str,
            bytes, plait.Timestamp, or a list or dict of these. They start as 0, 0.0, False, "",
            b"", None, [] and {}.
        out: the schema of what the handlers yield: a dataclass, or a dict of name to type.
        version: of the state, 1 unless it says more. A checkpoint with an older one goes through
            migrate(old, version), which takes the old values by name and that version, and returns
            the new ones. Values that are added, left out or change from int to float need none.

    Handlers; each yields records, or returns a list of them or None:
        on_record(key, record, state, timers): for every record, at its place in the order.
        on_left, on_right (same parameters): instead of `on_record`, for `plait.connect(a, b)`.
        on_timer(key, at, state, timers): when the watermark reaches a time set by `timers.at`.
        on_timeout(key, at, state, timers): when the wall clock reaches one set by `timers.after`.

    `key` is the value of the key column, or a tuple if there are several. `state` has the values as
    attributes, and `state.clear()`. A handler that raises leaves the state as it was.
    """

    state: ClassVar[Mapping[str, Any]] = {}
    """The name and type of each value that is kept for a key."""
    out: ClassVar[Any] = None
    """The schema of what the handlers yield: a dataclass, or a dict of name to type."""
    version: int = 1
    """Of the state: a checkpoint with an older one goes through `migrate(old, version)`."""
    shapes: tuple[Schema, ...] = ()
    """The schemas of the records: of the stream, or of left and right. Set when a job is built."""


class KeyState:
    """The values that a process keeps for a key, as attributes: `state.seen += 1`.

    Setting a name that is not in `Process.state` raises AttributeError; a value of another type
    raises TypeError.
    """

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
        """Resets all values to those before the first record of the key."""
        self._values.update(initial(self._kinds))

    def values(self) -> dict[str, Any]:
        """A copy of all values, by name."""
        return dict(self._values)

    def _names(self) -> str:
        return ", ".join(self._kinds) or "nothing; name it in `state = {...}`"


class Timers:
    """Sets timers for the key of a handler: `timers.at(record.ts)`, `timers.after("5s")`."""

    __slots__ = ("_now", "_timed", "_timeouts", "timeouts", "wanted")

    def __init__(
        self, now: int = 0, takes_timeouts: bool = False, takes_timers: bool = True
    ) -> None:
        self._now = now
        self._timeouts = takes_timeouts
        self._timed = takes_timers
        self.wanted: list[int] = []
        """Microseconds since 1970, in the order they were set."""
        self.timeouts: list[int] = []
        """The same for timers by the wall clock."""

    @property
    def now(self) -> datetime.datetime:
        """The wall clock, for `after`, as a datetime in UTC.

        It is read when the source finishes an epoch, so all records of an epoch see the same time,
        and a run can be repeated exactly (`Result.stamps`).
        """
        return datetime_of(self._now)

    def after(self, delay: Duration) -> None:
        """Calls `on_timeout` once `delay` has passed on the wall clock: `timers.after("5s")`.

        The call comes after the first epoch whose `now` is at least that much later.
        """
        if not self._timeouts:
            raise TypeError(
                "timers.after calls on_timeout(key, at, state, timers), which this process lacks"
            )
        self.timeouts.append(self._now + microseconds(delay))

    def at(self, time: datetime.datetime) -> None:
        """Calls `on_timer` once the watermark has reached this time; a key has one timer per time.

            timers.at(record.ts + plait.minutes(5))

        That is in front of the record that moves the watermark there, or behind this handler if the
        watermark is there already.
        """
        if not self._timed:
            raise TypeError(
                "timers.at calls on_timer(key, at, state, timers), which this process lacks"
            )
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
    """The value, if it has the type of its attribute; an int becomes a float where one is due."""
    if kind is object:
        return value
    expected = kind if kind in SCALARS else typing.get_origin(kind)
    if value is None and expected is datetime.datetime:
        return value
    if expected is float and type(value) is int:
        return float(value)
    bool_for_int = expected is int and isinstance(value, bool)
    if not isinstance(value, expected) or bool_for_int:
        raise TypeError(f"state.{name} is {shown(kind)}, got {value!r} ({type(value).__name__})")
    return value


def results_of(returned: Any) -> Iterable[Any]:
    """What a handler returned, as its records; None is not given here."""
    if type(returned) in (types.GeneratorType, list):
        return returned  # type: ignore[no-any-return]
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise TypeError(
            f"the handler returned {describe(returned)}; yield records, or return a list of them"
        )
    return returned


def shown(kind: Any) -> str:
    plain = isinstance(kind, type) and not typing.get_args(kind)
    return kind.__name__ if plain else str(kind)
