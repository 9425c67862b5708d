"""`to_timestamp` of one value, in the plainest Python. What cannot be read raises `Fault`."""

from __future__ import annotations

import datetime
import math
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from plait.expr.time_reading import fixed_offset_s, parts_of
from plait.testing.oracle.values import Fault

if TYPE_CHECKING:
    from plait.expr.time_reading import TimeReading

UNITS_US = {"s": Fraction(10**6), "ms": Fraction(1000), "us": Fraction(1), "ns": Fraction(1, 1000)}
EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001
ZONE = r"(?P<zone>Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)"
ISO = re.compile(
    r"(?P<Y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
    r"([T ](?P<H>[0-9]{2}):(?P<M>[0-9]{2})(:(?P<S>[0-9]{2})([.,](?P<f>[0-9]+))?)?" + ZONE + "?)?"
)
MONTHS = "january february march april may june july august september october november december"
DIRECTIVES = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "m": "(?P<m>[0-9]{1,2}+)",
    "b": f"(?P<b>(?i:{'|'.join(name[:3] for name in MONTHS.split())}))",
    "B": f"(?P<b>(?i:{'|'.join(MONTHS.split())}))",
    "d": "(?P<d>[0-9]{1,2}+)",
    "H": "(?P<H>[0-9]{1,2}+)",
    "I": "(?P<I>[0-9]{1,2}+)",
    "M": "(?P<M>[0-9]{1,2}+)",
    "S": "(?P<S>[0-9]{1,2}+)",
    "f": "(?P<f>[0-9]++)",
    "p": "(?P<p>(?i:am|pm))",
    "z": ZONE,
}


def time_of(value: Any, reading: TimeReading) -> int:
    """Microseconds since 1970 of a text or a number that is never None."""
    return time_of_text(value, reading) if reading.unit is None else time_of_number(value, reading)


def time_of_number(value: float, reading: TimeReading) -> int:
    assert reading.unit is not None
    if isinstance(value, float):
        number = value / 1000.0 if reading.unit == "ns" else value * float(UNITS_US[reading.unit])
        if not math.isfinite(number):
            raise Fault(f"{value!r} is outside the years 1 to 9999")
        return in_years(round(number), repr(value))
    exact = value * UNITS_US[reading.unit]
    if exact.denominator != 1 and reading.rounding != "down":
        raise Fault(f'{value} is finer than a microsecond; to_timestamp(rounding="down") cuts it')
    return in_years(math.floor(exact), str(value))


def in_years(us: int, shown: str) -> int:
    try:
        EPOCH + datetime.timedelta(microseconds=us)
    except OverflowError:
        raise Fault(f"{shown} is outside the years 1 to 9999") from None
    return us


def time_of_text(text: str, reading: TimeReading) -> int:
    pattern = ISO if reading.format is None else pattern_of(reading.format)
    match = pattern.fullmatch(text)
    if match is None:
        raise Fault(f"cannot read {text!r} as a timestamp")
    parts = {name: part for name, part in match.groupdict().items() if part is not None}
    digits = parts.get("f", "0")
    try:
        local = datetime.datetime(  # noqa: DTZ001
            year_of(parts),
            month_of(parts),
            int(parts["d"]),
            hour_of(parts),
            int(parts.get("M", 0)),
            int(parts.get("S", 0)),
            int(digits[:6].ljust(6, "0")),
        )
    except ValueError:
        raise Fault(f"cannot read {text!r} as a timestamp") from None
    if digits[6:].strip("0") and reading.rounding != "down":
        raise Fault(f'{text!r} is finer than a microsecond; to_timestamp(rounding="down") cuts it')
    offset = offset_of(parts["zone"]) if "zone" in parts else zone_offset(local, reading.tz, text)
    return in_years((local - EPOCH - offset) // datetime.timedelta(microseconds=1), repr(text))


def pattern_of(format: str) -> re.Pattern[str]:
    parts = [DIRECTIVES[letter] if letter else re.escape(text) for letter, text in parts_of(format)]
    return re.compile("".join(parts))


def year_of(parts: dict[str, str]) -> int:
    if "Y" in parts:
        return int(parts["Y"])
    short = int(parts["y"])
    return short + (2000 if short < 69 else 1900)


def month_of(parts: dict[str, str]) -> int:
    if "m" in parts:
        return int(parts["m"])
    return [name[:3] for name in MONTHS.split()].index(parts["b"][:3].lower()) + 1


def hour_of(parts: dict[str, str]) -> int:
    if "I" not in parts:
        return int(parts.get("H", 0))
    hour = int(parts["I"])
    if not 1 <= hour <= 12:
        raise ValueError
    return hour % 12 + (12 if parts["p"].lower() == "pm" else 0)


def offset_of(zone: str) -> datetime.timedelta:
    """East of UTC: of Z, +01, +0130 or +01:30."""
    if zone == "Z":
        return datetime.timedelta()
    digits = zone[1:].replace(":", "")
    length = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return -length if zone[0] == "-" else length


def zone_offset(local: datetime.datetime, tz: str | None, text: str) -> datetime.timedelta:
    """Of a local time in a zone; of one that is there twice the first counts."""
    if tz is None:
        raise Fault(
            f'{text!r} has no time zone; write to_timestamp(tz="UTC") or the name of its zone'
        )
    fixed = fixed_offset_s(tz)
    if fixed is not None:
        return datetime.timedelta(seconds=fixed)
    if not 1900 <= local.year <= 2099:
        raise Fault(
            f"{text!r} is outside the years 1900 to 2099,"
            " for which the rules of its time zone are known"
        )
    zone = ZoneInfo(tz)
    there = local.replace(tzinfo=zone)
    if there.astimezone(datetime.UTC).astimezone(zone).replace(tzinfo=None) != local:
        raise Fault(f"{text!r} does not exist in its time zone: the clocks were put forward")
    offset = there.utcoffset()
    assert offset is not None
    return offset
