"""Telling the members which nodes are gone, and giving up nodes that were to join.

A dropped node owned nothing and read nothing; it may have been a member, or only have been
connected to. Every member gets the Drop before the job goes on with what it waited for, because
members wait for the parts of all nodes they believe to be there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.epoch_agreement import joining_ranks
from plait.coordinator.machine.state import (
    JobState,
    Measuring,
    NodeOrder,
    Pacing,
    Passing,
    Quiet,
    Readying,
    Telling,
    with_nodes,
)
from plait.coordinator.machine.turn import Next
from plait.coordinator.machine.wait import enter, release
from plait.coordinator.messages.commands import StopNode
from plait.protocol.messages import Drop

if TYPE_CHECKING:
    from plait.coordinator.machine.turn import Turn
    from plait.protocol.messages import Rank

Interruptible = Measuring | Passing | Readying | Pacing | Quiet
"""Waits that a Drop can interrupt."""


def send_drop(job: JobState, then: Interruptible, turn: Turn) -> Next:
    """Tells the members which nodes are gone; then the job goes on with what it waited for."""
    command = Drop(ranks=tuple(sorted(set(job.dropping))))
    members = tuple(r for r in job.live if job.nodes[r].phase in ("member", "leaving"))
    orders = (NodeOrder(ranks=members, command=command),)
    job = replace(job, interrupted=then)
    return enter(job, Telling(aim="drop", act="drop", orders=orders), turn)


def abandon_joining(job: JobState, turn: Turn) -> Next:
    """Stops the nodes that were to join. The members may have connected to them."""
    fresh = joining_ranks(job)
    met = tuple(rank for rank in fresh if job.nodes[rank].phase == "joining")
    stops = tuple(StopNode(job=job.name, rank=rank, cause=turn.cause) for rank in fresh)
    job = with_nodes(
        job, (replace(job.nodes[rank], phase="lost", reason="was given up") for rank in fresh)
    )
    for rank in fresh:
        job = release(job, rank)
    return Next(replace(job, dropping=(*job.dropping, *met)), stops)


def without_lost(job: JobState, then: Interruptible) -> Interruptible:
    """The same wait, for the nodes that are still there."""

    def present(ranks: tuple[Rank, ...]) -> tuple[Rank, ...]:
        return tuple(rank for rank in ranks if job.nodes[rank].phase != "lost")

    match then:
        case Passing():
            return replace(then, ranks=present(then.ranks), leaving=present(then.leaving))
        case Measuring() | Readying():
            return replace(then, ranks=present(then.ranks))
        case Pacing() | Quiet():
            return then
        case _:
            assert_never(then)
