"""Lengths of time: `"10s"`, `"2m"`, `"1h30m"`, `"250ms"` or a `timedelta`.

Event time is counted in whole microseconds, and a bare number is refused, because its unit cannot
be seen. Timeouts also take a number of seconds: `to_seconds` is the one place that allows it.

    >>> microseconds("250ms")
    250000
    >>> microseconds(minutes(2)) == microseconds("2m")
    True
    >>> to_seconds("1m30s"), to_seconds(0.5)
    (90.0, 0.5)
"""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import Any

from plait.errors import JobError

Duration = str | datetime.timedelta
"""A length of time: `"10s"`, `"250ms"`, `"1h30m"` or a `timedelta`."""

UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)", re.ASCII)
WHOLE = re.compile(rf"\s*(?:{PART.pattern}\s*)+", re.ASCII)
LONGEST_US = 2**58
"""About 9,000 years: sums of a time and some of these stay within 64 bits."""


def seconds(count: float) -> datetime.timedelta:
    """A length of time in seconds.

    >>> seconds(90)
    datetime.timedelta(seconds=90)
    """
    return datetime.timedelta(seconds=count)


def minutes(count: float) -> datetime.timedelta:
    """A length of time in minutes.

    >>> minutes(1.5)
    datetime.timedelta(seconds=90)
    """
    return datetime.timedelta(minutes=count)


def hours(count: float) -> datetime.timedelta:
    """A length of time in hours.

    >>> hours(2)
    datetime.timedelta(seconds=7200)
    """
    return datetime.timedelta(hours=count)


def to_seconds(given: float | Duration) -> float:
    """The seconds of a duration; a bare number is seconds already."""
    if isinstance(given, int | float):
        return float(given)
    return microseconds(given) / 1_000_000


def microseconds(given: Any) -> int:
    """A duration above zero as whole microseconds."""
    length = signed_microseconds(given)
    if length <= 0:
        raise JobError(f"duration {given!r} must be above zero")
    if length > LONGEST_US:
        raise JobError(f"duration {given!r} is too long")
    return length


def signed_microseconds(given: Any) -> int:
    """A duration of any sign; exact, no rounding through floats."""
    if isinstance(given, datetime.timedelta):
        return (given.days * 86_400 + given.seconds) * 1_000_000 + given.microseconds
    if not isinstance(given, str):
        raise JobError(f'{given!r} is not a duration; write "10s", "2m", "250ms" or a timedelta')
    if not WHOLE.fullmatch(given):
        units = ", ".join(UNITS_US)
        raise JobError(f'"{given}" is not a duration; write a number and a unit ({units}): "10s"')
    total = sum(Fraction(count) * UNITS_US[unit] for count, unit in PART.findall(given))
    whole = Fraction(total)
    if whole.denominator != 1:
        raise JobError(f'duration "{given}" is finer than a microsecond')
    return int(whole)
