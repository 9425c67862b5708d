"""Lengths of time: `"10s"`, `"2m"`, `"1h30m"`, `"250ms"` or a `timedelta`, as whole microseconds.

A bare number is refused, because nobody can see its unit.

    >>> microseconds("250ms")
    250000
    >>> microseconds(minutes(2)) == microseconds("2m")
    True
"""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import Any

from plait.errors import JobError

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

Duration = str | datetime.timedelta
"""A length of time as users give it: `"10s"`, `"1h30m"` or a `timedelta`."""


def seconds(count: float) -> datetime.timedelta:
    """So many seconds."""
    return datetime.timedelta(seconds=count)


def minutes(count: float) -> datetime.timedelta:
    """So many minutes."""
    return datetime.timedelta(minutes=count)


def hours(count: float) -> datetime.timedelta:
    """So many hours."""
    return datetime.timedelta(hours=count)


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
