"""Numbers with their units, for people: bytes, counts, rates, times; pure.

One spelling everywhere: units of a thousand (kB, MB, GB, TB), three digits.

    >>> bytes_text(999), bytes_text(17_500), bytes_text(2.5e9)
    ('999 B', '17.5 kB', '2.50 GB')
    >>> count_text(9_999), count_text(12_345), rate_text(2_000)
    ('9,999', '12.3k', '2,000 records/s')
    >>> seconds_text(0.25), seconds_text(12.34), seconds_text(130)
    ('250 ms', '12.3 s', '2 m 10 s')
    >>> plural(1, "bin"), plural(2_000, "bin")
    ('1 bin', '2,000 bins')
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def bytes_text(size: float) -> str:
    """Bytes: 512 B, 1.50 GB."""
    if abs(size) < 999.5:
        return f"{size:.0f} B"
    return scale(size, (" kB", " MB", " GB", " TB"))


def count_text(number: float) -> str:
    """A number in a few characters: 9,999, 12.3k, 4.56M."""
    if abs(number) < 9_999.5:
        return f"{number:,.0f}"
    return scale(number, ("k", "M", "G", "T"))


def rate_text(per_s: float) -> str:
    """Records a second, all digits: 1,234,567 records/s."""
    return f"{per_s:,.0f} records/s"


def millis_text(number: float) -> str:
    """Milliseconds without their unit; "-" where nothing was measured."""
    return three_digits(number) if number > 0 else "-"


def seconds_text(seconds: float) -> str:
    """A time that was measured or is expected: 0.25 ms, 12.3 s, 2 m 10 s."""
    if seconds >= 59.95:
        return clock_text(round(seconds))
    value, unit = (seconds * 1000, "ms") if seconds < 0.9995 else (seconds, "s")
    return f"{float(f'{value:.3g}'):g} {unit}"


def countdown_text(seconds: float) -> str:
    """A time that is left, in whole seconds, rounded up: 1 s, 2 m 10 s, 2 h 01 m."""
    return clock_text(math.ceil(seconds))


def clock_text(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} m {seconds % 60:02} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02} m"


def plural(count: int, thing: str) -> str:
    """A number of things: 1 bin, 2,000 bins."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def scale(number: float, units: Sequence[str]) -> str:
    """In the first unit, each a thousand times the one before, that keeps it below a thousand."""
    for unit in units[:-1]:
        number /= 1000
        if abs(number) < 999.5:
            return f"{three_digits(number)}{unit}"
    return f"{three_digits(number / 1000)}{units[-1]}"


def three_digits(number: float) -> str:
    """With three digits, or all that are before the point."""
    if abs(number) < 9.995:
        return f"{number:.2f}"
    return f"{number:.1f}" if abs(number) < 99.95 else f"{number:,.0f}"
