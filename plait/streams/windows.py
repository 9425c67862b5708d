"""Windows as objects: what `.window(...)` and `join(..., window=...)` take.

>>> Tumbling("10s").spec
Grid(size_us=10000000, every_us=10000000, offset_us=0)
>>> Sliding("10s", every="2s")
Sliding('10s', every='2s')
"""

from __future__ import annotations

from typing import Any, Literal

from plait.errors import JobError
from plait.graph import temporal
from plait.model.call_site import CallSite
from plait.model.durations import Duration, microseconds
from plait.streams.event_time import any_duration

By = Literal["event_time", "arrival"]
"""The time of a record that says in which windows it is."""
MOST_ROWS = 2**31
MOST_WINDOWS = 100_000
"""A record in more windows than this is taken for a mistake in a unit of time."""


class Window:
    """Base of `Tumbling`, `Sliding`, `Session` and `Rows`."""

    def __init__(self, spec: temporal.Window, arguments: str) -> None:
        self.spec = spec
        self._arguments = arguments

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._arguments})"


class Tumbling(Window):
    """Windows of `size`, one after the other: [0s, 10s), [10s, 20s), ...

    >>> from plait.testing import table
    >>> bids = plait.stream(table('''
    ...     auction | price | ts
    ...     1       | 10    | 1s
    ...     1       | 30    | 4s
    ...     1       | 20    | 12s
    ... '''), event_time="ts")
    >>> bids.window(plait.Tumbling("10s")).count().select("count").collect()
    [Record(count=2), Record(count=1)]

    They start at 1970-01-01 00:00 UTC, shifted by `offset`.
    """

    def __init__(self, size: Duration, *, offset: Duration | None = None) -> None:
        with CallSite("Tumbling"):
            super().__init__(grid(size, size, offset), arguments_text(size, offset=offset))


class Sliding(Window):
    """Overlapping windows of `size`, one starting every `every`; a record is in several.

    >>> from plait.testing import table
    >>> bids = plait.stream(table('''
    ...     auction | price | ts
    ...     1       | 10    | 1s
    ...     1       | 30    | 4s
    ...     1       | 20    | 12s
    ... '''), event_time="ts")
    >>> bids.window(plait.Sliding("10s", every="5s")).count().select("count").collect()
    [Record(count=2), Record(count=2), Record(count=1), Record(count=1)]

    They start at 1970-01-01 00:00 UTC, shifted by `offset`.
    """

    def __init__(self, size: Duration, *, every: Duration, offset: Duration | None = None) -> None:
        with CallSite("Sliding"):
            shown = arguments_text(size, every=every, offset=offset)
            super().__init__(grid(size, every, offset), shown)


class Session(Window):
    """One window for records of a key that are less than `gap` apart.

    >>> from plait.testing import table
    >>> bids = plait.stream(table('''
    ...     auction | price | ts
    ...     1       | 10    | 1s
    ...     1       | 30    | 4s
    ...     1       | 20    | 12s
    ... '''), event_time="ts")
    >>> bids.key_by("auction").window(plait.Session("5s")).count().select("count").collect()
    [Record(count=2), Record(count=1)]
    """

    def __init__(self, gap: Duration) -> None:
        with CallSite("Session"):
            super().__init__(temporal.SessionWindow(gap_us=microseconds(gap)), f"gap={gap!r}")


class Rows(Window):
    """The last `size` records of a key, whenever `every` more have come (default: `size`).

    >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
    >>> bids.key_by("auction").window(plait.Rows(2)).mean("price").collect()
    [Record(auction=1, mean=40.0)]
    """

    def __init__(self, size: int, *, every: int | None = None) -> None:
        with CallSite("Rows"):
            super().__init__(row_window(size, every), arguments_text(size, every=every))


def grid(size: Duration, every: Duration, offset: Duration | None) -> temporal.Grid:
    size_us, every_us = microseconds(size), microseconds(every)
    offset_us = 0 if offset is None else any_duration(offset)
    if every_us > size_us:
        raise JobError(
            f"a window of {size!r} every {every!r} would leave records out;"
            " `every` must not be more than the size"
        )
    if size_us > MOST_WINDOWS * every_us:
        raise JobError(
            f"a window of {size!r} every {every!r} puts each record into {size_us // every_us:,}"
            f" windows, each of them a result; the most is {MOST_WINDOWS:,}"
        )
    return temporal.Grid(size_us=size_us, every_us=every_us, offset_us=offset_us % every_us)


def row_window(size: int, every: int | None) -> temporal.RowWindow:
    step = size if every is None else every
    return temporal.RowWindow(size=checked_count("size", size), every=checked_count("every", step))


def checked_by(given: Any) -> bool:
    """Whether windows are by arrival."""
    if given not in ("event_time", "arrival"):
        raise JobError(f'by is {given!r}; it must be "event_time" or "arrival"')
    return bool(given == "arrival")


def checked_count(name: str, given: Any) -> int:
    """A number of records: 1 or more."""
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_ROWS:
        raise JobError(f"{name} is {given!r}; it must be a whole number above 0")
    return given


def arguments_text(size: Any, **more: Any) -> str:
    """The arguments of a window as the user wrote them."""
    shown = [f"{name}={value!r}" for name, value in more.items() if value is not None]
    return ", ".join([repr(size), *shown])


def checked_window(given: Any) -> Window:
    if isinstance(given, Window):
        return given
    advice = "; give one such as plait.Tumbling(...)"
    if isinstance(given, str):
        advice = f'; write plait.Tumbling("{given}")'
    if isinstance(given, type) and issubclass(given, Window):
        advice = f"; write plait.{given.__name__}(...)"
    raise JobError(f"{given!r} is not a window{advice}")
