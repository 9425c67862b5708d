"""The windows as nouns: what `.window(...)` and `join(..., window=...)` take.

>>> Tumbling("10s").spec
Grid(size_us=10000000, every_us=10000000, offset_us=0)
>>> Sliding("10s", every="2s")
Sliding('10s', every='2s')
"""

from __future__ import annotations

from typing import Any

from plait.errors import JobError
from plait.graph import temporal
from plait.model.call_site import CallSite
from plait.model.durations import microseconds
from plait.streams.event_time import any_duration

MOST_ROWS = 2**31
MOST_WINDOWS = 100_000
"""A record in more windows than this is taken for a mistake in a unit of time."""


class Window:
    """What all windows are: words to show, and the plain data that an operator holds."""

    def __init__(self, spec: temporal.Window, words: str) -> None:
        self.spec = spec
        self._words = words

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._words})"


class Tumbling(Window):
    """Windows one behind the other: [0s, 10s), [10s, 20s), ... since 1970, moved by `offset`."""

    def __init__(self, size: Any, *, offset: Any = None) -> None:
        with CallSite("Tumbling"):
            super().__init__(grid(size, size, offset), words(size, offset=offset))


class Sliding(Window):
    """Windows of a size, one begins `every` so long: a record is in several of them."""

    def __init__(self, size: Any, *, every: Any, offset: Any = None) -> None:
        with CallSite("Sliding"):
            super().__init__(grid(size, every, offset), words(size, every=every, offset=offset))


class Session(Window):
    """Records of a key, each less than `gap` after the one before it."""

    def __init__(self, gap: Any) -> None:
        with CallSite("Session"):
            super().__init__(temporal.SessionWindow(gap_us=microseconds(gap)), f"gap={gap!r}")


class Rows(Window):
    """The last `size` records of a key, whenever `every` more have come (as many as `size` if not
    said)."""

    def __init__(self, size: int, *, every: int | None = None) -> None:
        with CallSite("Rows"):
            super().__init__(row_window(size, every), words(size, every=every))


def grid(size: Any, every: Any, offset: Any) -> temporal.Grid:
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
            f" windows, and each of them is a result; {MOST_WINDOWS:,} are the most"
        )
    return temporal.Grid(size_us=size_us, every_us=every_us, offset_us=offset_us % every_us)


def row_window(size: Any, every: Any) -> temporal.RowWindow:
    step = size if every is None else every
    return temporal.RowWindow(size=whole("size", size), every=whole("every", step))


def whole(name: str, given: Any) -> int:
    """A number of records: 1 or more."""
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_ROWS:
        raise JobError(f"{name} is {given!r}; it must be a whole number above 0")
    return given


def words(size: Any, **more: Any) -> str:
    told = [repr(size), *(f"{name}={value!r}" for name, value in more.items() if value is not None)]
    return ", ".join(told)


def is_window(given: Any) -> Window:
    if isinstance(given, Window):
        return given
    advice = f'; write plait.Tumbling("{given}")' if isinstance(given, str) else ""
    if isinstance(given, type) and issubclass(given, Window):
        advice = f"; write plait.{given.__name__}(...)"
    raise JobError(f"{given!r} is no window{advice or '; give one such as plait.Tumbling(...)'}")
