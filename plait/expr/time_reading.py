"""How a text or a number is read as a timestamp, as checked data: what `to_timestamp` holds.

A text is ISO 8601 or in a format of `%` directives; a number counts units since 1970. A text
without a zone of its own is in the zone `tz`. Everything that is wrong with the description is a
JobError when the expression is written; what is wrong with a value fails its record.

    >>> TimeReading(format="%d.%m.%Y", tz="UTC")
    TimeReading(format='%d.%m.%Y', tz='UTC', unit=None, rounding='error')
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from plait.errors import JobError

Unit = Literal["s", "ms", "us", "ns"]
DIRECTIVES = {
    "Y": "year",
    "y": "year",
    "m": "month",
    "b": "month",
    "B": "month",
    "d": "day",
    "H": "hour",
    "I": "hour",
    "M": "minute",
    "S": "second",
    "f": "fraction",
    "p": "half",
    "z": "zone",
}
"""What each directive gives; a format gives nothing twice."""
FIXED_OFFSET = re.compile(r"([+-])([01][0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeReading:
    """Checked when it is made."""

    format: str | None = None
    """None: ISO 8601."""
    tz: str | None = None
    unit: Unit | None = None
    """Not None: of numbers, not of texts."""
    rounding: Literal["error", "down"] = "error"

    def __post_init__(self) -> None:
        if self.rounding not in ("error", "down"):
            raise JobError(f'to_timestamp: rounding is {self.rounding!r}; write "error" or "down"')
        if self.unit is not None:
            check_unit(self)
            return
        if self.format is not None:
            check_format(self.format, self.tz)
        if self.tz is not None:
            check_zone(self.tz)

    def arguments(self) -> str:
        """As a user would write them."""
        parts = [] if self.format is None else [repr(self.format)]
        named = {"tz": self.tz, "unit": self.unit}
        parts += [f"{name}={value!r}" for name, value in named.items() if value is not None]
        return ", ".join(parts + (["rounding='down'"] if self.rounding == "down" else []))


def check_unit(reading: TimeReading) -> None:
    units = get_args(Unit)
    if reading.unit not in units:
        raise JobError(f"to_timestamp: unit is {reading.unit!r}; it is one of {', '.join(units)}")
    if reading.format is not None or reading.tz is not None:
        raise JobError("to_timestamp: unit= is for numbers, format and tz= for texts; give one")


def parts_of(format: str) -> list[tuple[str, str]]:
    """The directives ("Y", "") and texts ("", "at") of a format, in order."""
    parts: list[tuple[str, str]] = []
    at = 0
    while at < len(format):
        if format[at] != "%":
            parts.append(("", format[at]))
            at += 1
            continue
        letter = format[at + 1 : at + 2]
        if letter != "%" and letter not in DIRECTIVES:
            known = " ".join(f"%{one}" for one in DIRECTIVES)
            raise JobError(f"to_timestamp: format {format!r} has %{letter}; there are: {known} %%")
        parts.append(("", "%") if letter == "%" else (letter, ""))
        at += 2
    return parts


def check_format(format: str, tz: str | None) -> None:
    if not isinstance(format, str):
        raise JobError(f"to_timestamp: the format is {format!r}; write a text such as '%d.%m.%Y'")
    letters = [letter for letter, _ in parts_of(format) if letter]
    given = [DIRECTIVES[letter] for letter in letters]
    twice = sorted({one for one in given if given.count(one) > 1})
    if twice:
        raise JobError(f"to_timestamp: format {format!r} gives the {twice[0]} twice")
    for what, write in (("year", "%Y"), ("month", "%m"), ("day", "%d")):
        if what not in given:
            raise JobError(f"to_timestamp: format {format!r} has no {what}; write {write}")
    if ("I" in letters) != ("p" in letters):
        raise JobError(f"to_timestamp: format {format!r}: %I (1 to 12) and %p (AM, PM) go together")
    if "fraction" in given and "second" not in given:
        raise JobError(f"to_timestamp: format {format!r} has %f, a part of a second, without %S")
    if "zone" not in given and tz is None:
        raise JobError(
            f"to_timestamp: format {format!r} has no zone (%z); say which it is:"
            ' tz="UTC" or tz="Europe/Berlin"'
        )


def fixed_offset_s(tz: str) -> int | None:
    """Seconds east of UTC of "UTC" or "+01:00"; None for a named zone."""
    if tz == "UTC":
        return 0
    match = FIXED_OFFSET.fullmatch(tz)
    if match is None:
        return None
    length = int(match[2]) * 3600 + int(match[3]) * 60
    return -length if match[1] == "-" else length


def check_zone(tz: str) -> None:
    import zoneinfo

    if not isinstance(tz, str):
        raise JobError(f'to_timestamp: tz is {tz!r}; write "UTC", "+01:00" or "Europe/Berlin"')
    if fixed_offset_s(tz) is not None:
        return
    try:
        zoneinfo.ZoneInfo(tz)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise JobError(
            f"to_timestamp: there is no time zone {tz!r} on this machine;"
            ' write "UTC", "+01:00" or a name such as "Europe/Berlin"'
        ) from None
