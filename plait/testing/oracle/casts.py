"""Casts of one value, in the plainest Python. A cast that cannot be done raises `Fault`."""

from __future__ import annotations

import datetime
import math
import re
from typing import TYPE_CHECKING, Any

from plait.model.schema import INT64_MAX, INT64_MIN, Type
from plait.testing.oracle.values import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

INTEGER_TEXT = re.compile(r"[+-]?[0-9]+")
FLOAT_TEXT = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII
)
DAY_US = 86_400_000_000
CYCLE_DAYS = 146_097
"""The Gregorian calendar repeats after 400 years of so many days."""


def civil(us: int) -> tuple[int, int, int]:
    """Year, month and day of any number of microseconds since 1970, also outside a datetime's."""
    cycles, days = divmod(us // DAY_US, CYCLE_DAYS)
    date = datetime.date(1970, 1, 1) + datetime.timedelta(days=days)
    return date.year + 400 * cycles, date.month, date.day


def cast(value: Any, source: Type | None, target: Type) -> Any:
    """`value` of type `source`, never None, as `target`."""
    if source is target:
        return value
    if source is None or (source, target) not in CASTS:
        raise TypeError(f"no cast from {source} to {target}")
    try:
        return CASTS[source, target](value)
    except ValueError:
        raise Fault(f"cannot cast {value!r} to {target.value}") from None


def float_to_int(value: float) -> int:
    if not math.isfinite(value) or not INT64_MIN <= int(value) <= INT64_MAX:
        raise ValueError
    return int(value)


def text_to_int(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0")
    # The length is looked at first: Python has an error of its own for thousands of digits.
    if not INTEGER_TEXT.fullmatch(text) or len(digits) > 19:
        raise ValueError
    number = int(digits or "0") * (-1 if text.startswith("-") else 1)
    if not INT64_MIN <= number <= INT64_MAX:
        raise ValueError
    return number


def text_to_float(text: str) -> float:
    if not FLOAT_TEXT.fullmatch(text):
        raise ValueError
    return float(text)


def text_to_bool(text: str) -> bool:
    return {"true": True, "false": False}[text] if text in ("true", "false") else refuse()


def refuse() -> bool:
    raise ValueError


def time_to_text(us: int) -> str:
    year, month, day = civil(us)
    second, micro = divmod(us % DAY_US, 1_000_000)
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{micro:06d}"
    sign = "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{clock}Z"


CASTS: dict[tuple[Type, Type], Callable[[Any], Any]] = {
    (Type.INT64, Type.FLOAT64): float,
    (Type.INT64, Type.BOOL): bool,
    (Type.INT64, Type.STRING): str,
    (Type.INT64, Type.TIMESTAMP): int,
    (Type.FLOAT64, Type.INT64): float_to_int,
    (Type.FLOAT64, Type.BOOL): lambda value: value != 0,
    (Type.FLOAT64, Type.STRING): repr,
    (Type.BOOL, Type.INT64): int,
    (Type.BOOL, Type.FLOAT64): float,
    (Type.BOOL, Type.STRING): lambda value: "true" if value else "false",
    (Type.STRING, Type.INT64): text_to_int,
    (Type.STRING, Type.FLOAT64): text_to_float,
    (Type.STRING, Type.BOOL): text_to_bool,
    (Type.STRING, Type.BYTES): lambda text: text.encode(),
    (Type.BYTES, Type.STRING): lambda data: data.decode(),
    (Type.TIMESTAMP, Type.INT64): int,
    (Type.TIMESTAMP, Type.STRING): time_to_text,
}
