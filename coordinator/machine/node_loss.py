"""What the loss of a node means, at every stage of a job.

A lost rank is out for good: nothing it says counts any more, and it is stopped whenever it shows
up. A node that owned bins, read a source or had the sinks takes the job with it, because there is
no checkpoint to go back to. One that had nothing yet is dropped by the others, and a rescale that
needed it falls back: every bin stays with its owner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.drop_nodes import tell_drop, without_lost
from plait.coordinator.machine.epoch_agreement import lift
from plait.coordinator.machine.job_end import end
from plait.coordinator.machine.rescale import move, running, settle
from plait.coordinator.machine.stage import Result, enter, release
from plait.coordinator.machine.start_nodes import anew
from plait.coordinator.machine.state import (
    JobState,
    Measuring,
    Pacing,
    Passing,
    Placing,
    Quiet,
    Readying,
    Starting,
    Telling,
    needed,
    owned,
    reads,
    with_change,
    with_nodes,
)
from plait.coordinator.messages.commands import Outgoing, StopNode
from plait.errors import InternalError
from plait.migration import machine, node_loss

if TYPE_CHECKING:
    from plait.coordinator.messages.spec import Policy
    from plait.protocol.messages import Rank


def lose(job: JobState, rank: Rank, reason: str, policy: Policy, at: float, cause: str) -> Result:
    """A node is gone."""
    node = job.nodes[rank]
    stop: list[Outgoing] = [StopNode(job=job.name, rank=rank, cause=cause)]
    if node.phase == "lost":
        return job, stop
    if job.phase in ("placing", "starting"):
        return anew(job, (rank,), reason, policy, at, cause)
    if job.phase == "preparing":
        # The others know it as a peer already: all begin anew, under other ranks.
        everyone = tuple(r for r, n in job.nodes.items() if n.phase == "joining")
        return anew(job, everyone, reason, policy, at, cause)
    job = with_nodes(job, (replace(node, phase="lost", reason=reason),))
    job = release(job, rank)
    if job.over or job.phase == "ending" or node.phase == "left":
        return job, stop
    if job.phase == "beginning" or needed(job, rank):
        job, commands = end(job, "failed", words(job, rank, reason), at, cause)
    else:
        job = forgotten(job, rank, met=node.phase != "starting", at=at)
        if node.phase in ("starting", "joining"):
            job = given_up(job, f"node-{rank}, which was to join, was lost: {reason}", at)
        job, commands = go_on(job, policy, at, cause)
    return job, stop + commands


def words(job: JobState, rank: Rank, reason: str) -> str:
    """Why the job cannot go on."""
    had = []
    if count := owned(job, rank):
        had.append(f"the state of {count} of {job.spec.bins} bins")
    if reads(job, rank):
        had.append("a part of the input")
    if rank == job.home and job.spec.order == "total":
        had.append("the sinks")
    what = ", ".join(had) or "records in flight"
    return (
        f"node-{rank} on {job.nodes[rank].host} was lost ({reason}) with {what}, "
        "and there is no checkpoint to go back to"
    )


def forgotten(job: JobState, rank: Rank, *, met: bool, at: float) -> JobState:
    """The job without a node that had nothing; a rescale that has bins for it makes no new step."""
    layouts = tuple(
        replace(layout, members=tuple(r for r in layout.members if r != rank))
        for layout in job.layouts
    )
    job = replace(job, layouts=layouts, dropping=(*job.dropping, rank) if met else job.dropping)
    change = job.changing
    if change is None or change.migration is None:
        return job
    found = node_loss.lost(change.migration, rank, at)
    if found.outcome == "fatal":
        raise InternalError(f"{job.name}: node {rank} owns nothing, and yet: {found.reason}")
    reason = change.reason or found.reason
    return with_change(job, replace(change, migration=found.migration, reason=reason))


def given_up(job: JobState, reason: str, at: float) -> JobState:
    """The rescale makes no further step."""
    change, migration = running(job)
    migration = machine.abort(migration, reason, at)
    return with_change(job, replace(change, migration=migration, reason=change.reason or reason))


def go_on(job: JobState, policy: Policy, at: float, cause: str) -> Result:
    """A node that had nothing was taken out: what the job does now."""
    awaits = job.stage.awaits
    match awaits:
        case Telling(act="promise"):
            return lift(job, at, cause)
        case Telling(act="prepare") | Placing() | Starting():
            # Whom the new nodes know is wrong already: they are given up.
            job = given_up(job, "a node was lost while others joined", at)
            return move(job, policy, at, cause)
        case Telling():
            # Commit, lift and drop go through; the drop follows them.
            return job, []
        case Readying() if running(job)[1].over:
            return move(job, policy, at, cause)
        case Measuring() | Passing() | Readying() | Pacing() | Quiet():
            if not job.dropping:
                return job, []
            return tell_drop(job, awaits, at, cause)
        case _:
            assert_never(awaits)


def dropped(job: JobState, told: tuple[Rank, ...], policy: Policy, at: float, cause: str) -> Result:
    """The members know who is gone."""
    job = replace(job, dropping=tuple(rank for rank in job.dropping if rank not in told))
    then = job.interrupted
    if then is None or isinstance(then, Telling | Placing | Starting):
        raise InternalError(f"{job.name}: a drop came between nothing: {then}")
    if job.dropping:
        return tell_drop(job, then, at, cause)
    job = replace(job, interrupted=None)
    match then:
        case Pacing():
            return move(job, policy, at, cause)
        case Quiet():
            return settle(job, policy, at, cause)
        case Measuring() | Passing() | Readying():
            return enter(job, without_lost(job, then), at, cause)
        case _:
            assert_never(then)
