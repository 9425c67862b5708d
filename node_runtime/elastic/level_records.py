"""What is known of each level of workers, and which level is worth a trial.

The neighbours of a level are half and twice of it, or a trusted level near those: a step of one
from 20 to 21 could gain 5 % at most and would be taken for noise. Between trusted levels the next
trial is the middle of a gap, as long as what is inside it could be better by more than the
sensitivity even if throughput grew with the level there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Bounds(Protocol):
    """The levels that there are."""

    @property
    def min_level(self) -> int: ...
    @property
    def max_level(self) -> int: ...
    @property
    def sensitivity_ratio(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRecord:
    """The throughput of one level."""

    last_time: int = 0
    first_thput: float = 0.0
    last_thput: float = 0.0
    trusted: bool = False
    visits: int = 0
    """Measurements since it is trusted."""


Records = tuple[ThreadRecord, ...]


def trusted_levels(records: Records) -> list[int]:
    return [level for level, record in enumerate(records) if record.trusted]


def below(level: int, known: Sequence[int], least: int) -> int:
    """The level that a step down leads to; `level` itself if there is none."""
    near = [one for one in known if level / 3 < one <= level / 1.5 and one >= least]
    return max(near) if near else max(level // 2, least)


def above(level: int, known: Sequence[int], most: int) -> int:
    """The level that a step up leads to; `level` itself if there is none."""
    near = [one for one in known if 1.5 * level <= one < 3 * level and one <= most]
    return min(near) if near else min(2 * level, most)


def best_level(records: Records) -> int:
    """The lowest of the trusted levels with the greatest throughput."""
    return max(trusted_levels(records), key=lambda level: (records[level].last_thput, -level))


def resting_level(records: Records, bounds: Bounds) -> int:
    """The lowest trusted level that gives what the best one gives, but for half of the
    sensitivity."""
    enough = records[best_level(records)].last_thput * (1 - bounds.sensitivity_ratio / 2)
    return next(one for one in trusted_levels(records) if records[one].last_thput >= enough)


def next_trial(records: Records, bounds: Bounds, sens: float) -> tuple[int | None, str]:
    """A level that must be measured before the best one is known, and why; None: there is none."""
    known = trusted_levels(records)
    best, rest = best_level(records), resting_level(records, bounds)
    for level, what in ((best, "the best"), (rest, "as good")):
        at = known.index(level)
        if at > 0 and (found := middle(known[at - 1], level, bounds)) is not None:
            return found, f"between {known[at - 1]} and {level}, which is {what}"
        if at + 1 < len(known) and level == best:
            found = middle(level, known[at + 1], bounds)
            if found is not None:
                return found, f"between {level}, which is {what}, and {known[at + 1]}"
    at = known.index(best)
    if at > 0 and at + 1 == len(known) and best < bounds.max_level:
        lower = records[known[at - 1]].last_thput
        if records[best].last_thput > lower * (1 + sens):
            return above(best, known, bounds.max_level), f"above {best}, which is the best"
    # One bad period must not decide for good: where we rest, and the next above, were seen twice.
    for level in known[known.index(rest) : known.index(rest) + 2]:
        if records[level].visits < 2:
            return level, f"{level} once more"
    return None, ""


def middle(low: int, high: int, bounds: Bounds) -> int | None:
    """The level to try in a gap; None if the gap is too small to hide anything."""
    if high - low <= 1 + int(bounds.sensitivity_ratio * low):
        return None
    return (low + high) // 2
