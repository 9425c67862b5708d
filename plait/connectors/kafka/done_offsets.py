"""Which letters of a partition were read again: all before an offset, and some after it; pure.

Letters are chosen by operator, error and time, so those that are done are not the first ones only.
What comes after the offset is kept in the metadata of a committed offset, as ranges.

    >>> done = Done(5).with_offsets([6, 7, 9])
    >>> done.text(), 6 in done, 8 in done
    ('6-7,9', True, False)
    >>> done.with_offsets([5])
    Done(offset=8, more=((9, 9),))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_TEXT = 4_000
"""Brokers take 4,096 bytes with an offset."""


@dataclass(frozen=True, slots=True)
class Done:
    """All offsets before one, and ranges of later ones, ascending and apart from each other."""

    offset: int
    more: tuple[tuple[int, int], ...] = ()

    def __contains__(self, offset: int) -> bool:
        return offset < self.offset or any(first <= offset <= last for first, last in self.more)

    def with_offsets(self, offsets: Iterable[int]) -> Done:
        """These are done, too."""
        ranges = sorted([*self.more, *((offset, offset) for offset in offsets)])
        merged: list[tuple[int, int]] = []
        for first, last in ranges:
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        at = self.offset
        while merged and merged[0][0] <= at:
            at = max(at, merged.pop(0)[1] + 1)
        return Done(at, tuple(merged))

    def skipping(self, first: int) -> Done:
        """There are no offsets before `first` any more."""
        return Done(max(self.offset, first), self.more).with_offsets(())

    def text(self) -> str:
        """The ranges, to be kept with the offset."""
        return ",".join(
            str(first) if first == last else f"{first}-{last}" for first, last in self.more
        )

    def fits(self) -> bool:
        return len(self.text()) <= MOST_TEXT


def parse_done(offset: int, text: str) -> Done:
    """What `text` gave.

    >>> parse_done(3, "4-5,9")
    Done(offset=3, more=((4, 5), (9, 9)))
    """
    ranges = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise EnvironmentFailure(f"the offset {offset} has {text!r} with it, which is not ours")
        ranges.append((int(first), int(last or first)))
    return Done(offset, tuple(ranges))
