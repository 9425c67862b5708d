"""Entering a wait, and the commands of a wait.

The commands follow from the durable state alone, so they can be made again at any time: after a
while without an answer, or after a restart. A wait ends when the last node it waits for has
answered; one that waits for no node ends at once, in the same turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.checkpoints.records import run_of, saves, settings
from plait.coordinator.machine.state import (
    JobWait,
    Loading,
    Measuring,
    Pacing,
    Passing,
    Placing,
    Quiet,
    Readying,
    Starting,
    Surveying,
    Telling,
)
from plait.coordinator.machine.turn import Next
from plait.coordinator.messages.commands import AskHosts, AskReport, Outgoing, StartNode, Tell
from plait.protocol.checkpoint_messages import Survey
from plait.protocol.messages import Command, Prepare

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState, WaitKind
    from plait.coordinator.machine.turn import Turn
    from plait.protocol.messages import Rank


def enter(job: JobState, kind: WaitKind, turn: Turn) -> Next:
    """The job in its next wait, and what has to be sent for it."""
    wait = JobWait(id=job.next_wait, kind=kind, since=turn.at, cause=turn.cause)
    watch = replace(
        job.watch, missing=frozenset(awaited_ranks(kind)), fence=0, loads=(), sent_at=turn.at
    )
    job = replace(job, wait=wait, next_wait=job.next_wait + 1, watch=watch)
    return Next(job, tuple(commands(job)))


def awaited_ranks(kind: WaitKind) -> tuple[Rank, ...]:
    """The nodes whose answers or reports end the wait. That a node was made is a separate fact."""
    match kind:
        case Telling(orders=orders):
            return tuple(rank for order in orders for rank in order.ranks)
        case Measuring(ranks=ranks) | Passing(ranks=ranks) | Readying(ranks=ranks):
            return ranks
        case Loading(ranks=ranks):
            return ranks
        case Placing() | Starting() | Pacing() | Surveying() | Quiet():
            return ()
        case _:
            assert_never(kind)


def commands(job: JobState) -> list[Outgoing]:
    """What the present wait asks for, of the nodes that have not answered yet."""
    name, wait, missing = job.name, job.wait, job.watch.missing
    match wait.kind:
        case Placing():
            return [AskHosts(cause=wait.cause)]
        case Starting(ranks=ranks):
            nodes = [job.nodes[rank] for rank in ranks]
            return [
                StartNode(job=name, rank=node.rank, host=node.host, spec=job.spec, cause=wait.cause)
                for node in nodes
                if node.peer is None and node.phase == "starting"
            ]
        case Telling(orders=orders):
            return [
                Tell(
                    job=name,
                    rank=rank,
                    command_id=wait.id,
                    command=command_for(order.command, rank),
                    cause=wait.cause,
                )
                for order in orders
                for rank in order.ranks
                if rank in missing
            ]
        case Measuring(ranks=ranks):
            return [
                AskReport(job=name, rank=rank, loads=True, cause=wait.cause)
                for rank in ranks
                if rank in missing
            ]
        case Surveying(rank=rank, command_id=number):
            if job.watch.slow_told >= number:
                return []
            return [
                Tell(
                    job=name, rank=rank, command_id=number, command=survey_of(job), cause=wait.cause
                )
            ]
        case Passing() | Readying() | Pacing() | Loading() | Quiet():
            return []
        case _:
            assert_never(wait.kind)


def command_for(command: Command, rank: Rank) -> Command:
    """The command as this node gets it."""
    if not isinstance(command, Prepare):
        return command
    peers = tuple(peer for peer in command.peers if peer.rank != rank)
    return replace(command, rank=rank, peers=peers)


def without_rank(kind: WaitKind, lost: Rank) -> WaitKind:
    """The same wait, no longer for this node."""
    match kind:
        case Telling():
            orders = tuple(
                replace(order, ranks=tuple(r for r in order.ranks if r != lost))
                for order in kind.orders
            )
            return replace(kind, orders=tuple(order for order in orders if order.ranks))
        case Measuring() | Readying() | Starting() | Loading():
            return replace(kind, ranks=tuple(r for r in kind.ranks if r != lost))
        case Passing():
            return replace(
                kind,
                ranks=tuple(r for r in kind.ranks if r != lost),
                leaving=tuple(r for r in kind.leaving if r != lost),
            )
        case Placing() | Pacing() | Surveying() | Quiet():
            return kind
        case _:
            assert_never(kind)


def survey_of(job: JobState) -> Survey:
    """What the home of the present attempt is asked; it tells where the job goes on."""
    known = saves(job)
    if known.restore is not None:
        return Survey(attempt=known.attempt, run=run_of(job), lineage=known.restore.lineage)
    return Survey(attempt=known.attempt, run=run_of(job), start=settings(job).start)


def release(job: JobState, lost: Rank) -> JobState:
    """The job no longer waits for a lost node."""
    wait = replace(job.wait, kind=without_rank(job.wait.kind, lost))
    watch = replace(job.watch, missing=job.watch.missing - {lost})
    return replace(job, wait=wait, watch=watch)
