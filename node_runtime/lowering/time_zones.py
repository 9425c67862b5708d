"""The rules of a time zone as plain numbers for the kernels that read texts as times.

A named zone becomes the stretches of local time between the changes of its offset, found with
`zoneinfo` when the job is built, from 1900 to 2099. Local times that lie in two stretches (clocks
were put back) belong to the earlier one; those in none (clocks were put forward) do not exist.

    >>> zone_numbers("+01:00"), zone_numbers(None)
    ((3600,), ())
    >>> zone_numbers("Europe/Berlin")[-1]
    3600
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from plait.expr.time_reading import fixed_offset_s

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_YEAR, LAST_YEAR = 1900, 2099
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY_S = 86_400


@lru_cache(maxsize=64)
def zone_numbers(tz: str | None) -> tuple[int, ...]:
    """Nothing; the seconds east of UTC; or start, end and offset of each stretch of local time, in
    seconds since 1970."""
    if tz is None:
        return ()
    fixed = fixed_offset_s(tz)
    if fixed is not None:
        return (fixed,)
    stretches = list(offset_changes(tz))
    ends = [start for start, _ in stretches[1:]] + [seconds_of(LAST_YEAR + 1) + DAY_S]
    numbers: list[int] = []
    for (start, offset), end in zip(stretches, ends, strict=True):
        numbers += [start + offset, end + offset, offset]
    return tuple(numbers)


def seconds_of(year: int) -> int:
    return int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp())


def offset_changes(tz: str) -> Iterator[tuple[int, int]]:
    """From when on (in UTC) the zone has which offset: looked for day by day, then by halves."""
    import zoneinfo

    zone = zoneinfo.ZoneInfo(tz)

    def offset_at(second: int) -> int:
        at = (EPOCH + datetime.timedelta(seconds=second)).astimezone(zone).utcoffset()
        assert at is not None
        return int(at.total_seconds())

    low = seconds_of(FIRST_YEAR) - DAY_S
    offset = offset_at(low)
    yield low, offset
    for high in range(low + DAY_S, seconds_of(LAST_YEAR + 1) + DAY_S + 1, DAY_S):
        new = offset_at(high)
        if new != offset:
            before, after = high - DAY_S, high
            while after - before > 1:
                middle = (before + after) // 2
                before, after = (middle, after) if offset_at(middle) == offset else (before, middle)
            yield after, new
            offset = new
