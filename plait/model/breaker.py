"""When a job has too many dead letters to go on: the rule, as a setting says it.

>>> parse_breaker("1% of 10s")
BreakerRule(text='1% of 10s', ratio=0.01, window_s=10.0)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from plait.errors import JobError
from plait.model.durations import to_seconds

SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s+of\s+(\S+)\s*")
LEAST_RECORDS = 1_000
"""Of fewer records no share is taken."""


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """More than this share of the records of a stretch of time."""

    text: str
    ratio: float
    window_s: float


def parse_breaker(given: object) -> BreakerRule:
    """The rule of a text; JobError if it is not one."""
    found = SHARE.fullmatch(given) if isinstance(given, str) else None
    if found is None or not 0 < float(found[1]) < 100:
        raise JobError(
            f'breaker is {given!r}; write a share of the records of a time, such as "1% of 10s"'
        )
    return BreakerRule(str(given), float(found[1]) / 100, to_seconds(found[2]))
