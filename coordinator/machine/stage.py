"""Entering a stage, and the commands of a stage.

The commands follow from the durable state alone, so they can be made again at any time: after a
while without an answer, or after a restart. A stage whose last one has answered is done; one that
waits for nobody is done at once, at the next tick.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.state import (
    Measuring,
    Pacing,
    Passing,
    Placing,
    Quiet,
    Readying,
    Stage,
    Starting,
    Telling,
)
from plait.coordinator.messages.commands import AskHosts, AskReport, Outgoing, StartNode, Tell
from plait.protocol.messages import Command, Prepare

if TYPE_CHECKING:
    from plait.coordinator.machine.state import Awaited, JobState
    from plait.protocol.messages import Rank

Result = tuple["JobState", list[Outgoing]]


def enter(job: JobState, awaits: Awaited, at: float, cause: str) -> Result:
    """The job in its next stage, and what is to be sent for it."""
    stage = Stage(id=job.next_stage, awaits=awaits, since=at, cause=cause)
    watch = replace(job.watch, missing=frozenset(waited_for(awaits)), fence=0, loads=(), told_at=at)
    job = replace(job, stage=stage, next_stage=job.next_stage + 1, watch=watch)
    return job, commands(job)


def waited_for(awaits: Awaited) -> tuple[Rank, ...]:
    """Whose answers or reports end the stage. That a node was made is a fact of its own."""
    match awaits:
        case Telling(orders=orders):
            return tuple(rank for order in orders for rank in order.ranks)
        case Measuring(ranks=ranks) | Passing(ranks=ranks) | Readying(ranks=ranks):
            return ranks
        case Placing() | Starting() | Pacing() | Quiet():
            return ()
        case _:
            assert_never(awaits)


def commands(job: JobState) -> list[Outgoing]:
    """What the present stage asks for, of those who have not answered yet."""
    name, stage, missing = job.name, job.stage, job.watch.missing
    match stage.awaits:
        case Placing():
            return [AskHosts(cause=stage.cause)]
        case Starting(ranks=ranks):
            nodes = [job.nodes[rank] for rank in ranks]
            return [
                StartNode(
                    job=name, rank=node.rank, host=node.host, spec=job.spec, cause=stage.cause
                )
                for node in nodes
                if node.peer is None and node.phase == "starting"
            ]
        case Telling(orders=orders):
            return [
                Tell(
                    job=name,
                    rank=rank,
                    command_id=stage.id,
                    command=made_out(order.command, rank),
                    cause=stage.cause,
                )
                for order in orders
                for rank in order.ranks
                if rank in missing
            ]
        case Measuring(ranks=ranks):
            return [
                AskReport(job=name, rank=rank, loads=True, cause=stage.cause)
                for rank in ranks
                if rank in missing
            ]
        case Passing() | Readying() | Pacing() | Quiet():
            return []
        case _:
            assert_never(stage.awaits)


def made_out(command: Command, rank: Rank) -> Command:
    """The command as this node gets it."""
    if not isinstance(command, Prepare):
        return command
    peers = tuple(peer for peer in command.peers if peer.rank != rank)
    return replace(command, rank=rank, peers=peers)


def without(awaits: Awaited, lost: Rank) -> Awaited:
    """The same stage when it does not wait for this node any more."""
    match awaits:
        case Telling():
            orders = tuple(
                replace(order, ranks=tuple(r for r in order.ranks if r != lost))
                for order in awaits.orders
            )
            return replace(awaits, orders=tuple(order for order in orders if order.ranks))
        case Measuring() | Readying() | Starting():
            return replace(awaits, ranks=tuple(r for r in awaits.ranks if r != lost))
        case Passing():
            return replace(
                awaits,
                ranks=tuple(r for r in awaits.ranks if r != lost),
                leaving=tuple(r for r in awaits.leaving if r != lost),
            )
        case Placing() | Pacing() | Quiet():
            return awaits
        case _:
            assert_never(awaits)


def release(job: JobState, lost: Rank) -> JobState:
    """The job no longer waits for a lost node in its present stage."""
    stage = replace(job.stage, awaits=without(job.stage.awaits, lost))
    watch = replace(job.watch, missing=job.watch.missing - {lost})
    return replace(job, stage=stage, watch=watch)
