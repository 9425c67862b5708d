"""Telling the members who is gone, and giving up nodes that were to join.

A node that is dropped owned nothing and read nothing; it may have been a member, or only have been
connected to. Every member is told before the job goes on with what it waited for, because members
wait for the parts of those they believe to be there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.epoch_agreement import joining
from plait.coordinator.machine.stage import Result, enter, release
from plait.coordinator.machine.state import (
    JobState,
    Measuring,
    Order,
    Pacing,
    Passing,
    Quiet,
    Readying,
    Telling,
    with_nodes,
)
from plait.coordinator.messages.commands import Outgoing, StopNode
from plait.protocol.messages import Drop

if TYPE_CHECKING:
    from plait.protocol.messages import Rank

Waiting = Measuring | Passing | Readying | Pacing | Quiet
"""Stages that a Drop can come between."""


def tell_drop(job: JobState, then: Waiting, at: float, cause: str) -> Result:
    """The members are told who is gone; then the job goes on with what it waited for."""
    command = Drop(ranks=tuple(sorted(set(job.dropping))))
    members = tuple(r for r in job.live if job.nodes[r].phase in ("member", "leaving"))
    orders = (Order(ranks=members, command=command),)
    job = replace(job, interrupted=then)
    return enter(job, Telling(aim="drop", act="drop", orders=orders), at, cause)


def abandon(job: JobState, cause: str) -> tuple[JobState, list[Outgoing]]:
    """The nodes that were to join are stopped; the members may have connected to them."""
    fresh = joining(job)
    met = tuple(rank for rank in fresh if job.nodes[rank].phase == "joining")
    stops: list[Outgoing] = [StopNode(job=job.name, rank=rank, cause=cause) for rank in fresh]
    job = with_nodes(
        job, (replace(job.nodes[rank], phase="lost", reason="was given up") for rank in fresh)
    )
    for rank in fresh:
        job = release(job, rank)
    return replace(job, dropping=(*job.dropping, *met)), stops


def without_lost(job: JobState, then: Waiting) -> Waiting:
    """What the job goes on to wait for, of those who are still there."""

    def there(ranks: tuple[Rank, ...]) -> tuple[Rank, ...]:
        return tuple(rank for rank in ranks if job.nodes[rank].phase != "lost")

    match then:
        case Passing():
            return replace(then, ranks=there(then.ranks), leaving=there(then.leaving))
        case Measuring() | Readying():
            return replace(then, ranks=there(then.ranks))
        case Pacing() | Quiet():
            return then
        case _:
            assert_never(then)
