"""Checks of what a sink asks for under overload. What can never hold is refused, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from plait.errors import JobError
from plait.graph.shedders.quality import BelowFloor, Quality, ShedMode
from plait.model.durations import microseconds

if TYPE_CHECKING:
    from plait.model.durations import Duration


def checked_quality(
    *,
    priority: Any,
    min_accuracy: Any,
    freshness: Duration | None,
    shed: Any,
    below_floor: Any,
) -> Quality:
    """The arguments of `sink`, if they do not contradict each other."""
    if type(priority) is not int:
        raise JobError(f"priority is {priority!r}; it must be a whole number, such as 5")
    floor = checked_floor(min_accuracy)
    for name, given, words in (
        ("shed", shed, get_args(ShedMode)),
        ("below_floor", below_floor, get_args(BelowFloor)),
    ):
        if given not in words:
            listed = ", ".join(f'"{word}"' for word in words)
            raise JobError(f"{name} is {given!r}; it must be one of {listed}")
    quality = Quality(
        priority=priority,
        min_accuracy=floor,
        freshness_us=0 if freshness is None else microseconds(freshness),
        shed=shed,
        below_floor=below_floor,
    )
    if quality.lossless:
        refuse_idle(quality)
    return quality


def checked_floor(min_accuracy: Any) -> float:
    good = isinstance(min_accuracy, int | float) and not isinstance(min_accuracy, bool)
    if not good or not 0 <= min_accuracy <= 1:
        hint = f"; {min_accuracy} % is {min_accuracy / 100:g}" if good and min_accuracy > 1 else ""
        raise JobError(f"min_accuracy is {min_accuracy!r}; it must be from 0 to 1{hint}")
    return float(min_accuracy)


def refuse_idle(quality: Quality) -> None:
    """What would have no effect on a query of which nothing is ever shed."""
    usual = Quality()
    for name in ("shed", "below_floor", "freshness_us"):
        if getattr(quality, name) != getattr(usual, name):
            told = name.removesuffix("_us")
            raise JobError(
                f"{told}= is of use only where records may be shed; give the least accuracy too:"
                " min_accuracy=0.8"
            )
