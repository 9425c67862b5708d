"""Regions: parts of a job whose stages have their own threading model.

Operators that are added inside `with region(...)` belong to it, whatever their job; outside of any
region the job's `Settings.threading` counts. Operators of different regions never share a stage.

    >>> import plait
    >>> bids = plait.stream([{"price": 30}, {"price": 12}])
    >>> with region("cheap", threading="dedicated"):
    ...     cheap = bids.filter(plait.col("price") < 20)
    >>> print(cheap._node.region.threading)
    dedicated
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.errors import JobError
from plait.model.settings import THREADINGS, Threading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of a job by name, and who runs its stages."""

    name: str
    threading: Threading


current: ContextVar[Region | None] = ContextVar("region", default=None)
"""The region that operators are added to now."""


@contextmanager
def region(name: str, *, threading: Threading) -> Iterator[Region]:
    """Operators added in the block are run by this threading model.

    Args:
        name: name of the region; blocks of the same name are one region.
        threading: "dynamic": any worker; "dedicated": each stage has its own thread; "manual": one
            thread runs all stages of the region, in pipeline order.

    >>> import plait
    >>> numbers = plait.stream([{"n": n} for n in range(5)])
    >>> with region("odd", threading="dedicated"):
    ...     odd = numbers.filter(plait.col("n") % 2 == 1)
    >>> [record.n for record in odd.collect()]
    [1, 3]
    """
    if not isinstance(name, str) or not name:
        raise JobError(f"a region needs a name, not {name!r}")
    if threading not in THREADINGS:
        words = ", ".join(f'"{word}"' for word in THREADINGS)
        raise JobError(f"region {name}: threading is {threading!r}; it must be one of {words}")
    made = Region(name=name, threading=threading)
    before = current.set(made)
    try:
        yield made
    finally:
        current.reset(before)


def check_regions(regions: Iterable[Region | None]) -> None:
    """A name stands for one region: its model must be the same wherever it is given."""
    seen: dict[str, Threading] = {}
    for one in regions:
        if one is None:
            continue
        if seen.setdefault(one.name, one.threading) != one.threading:
            raise JobError(
                f'region "{one.name}" is {seen[one.name]} in one place and {one.threading} in '
                "another; give the second another name"
            )
