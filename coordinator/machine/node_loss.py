"""What the loss of a node means, whatever the job waits for.

A lost rank is out for good: nothing it says counts any more, and it is stopped whenever it shows
up. A node that owned bins, read a source or had the sinks takes the job back to its last checkpoint
or, if it has none, with it. One that had nothing yet is dropped by the others, and a rescale that
needed it falls back: every bin stays with its owner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.checkpoints.records import owes_part
from plait.coordinator.machine.checkpoints.recovery import lose_restoring, recover
from plait.coordinator.machine.checkpoints.saving import give_up
from plait.coordinator.machine.drop_nodes import Interruptible, send_drop, without_lost
from plait.coordinator.machine.epoch_agreement import lift
from plait.coordinator.machine.job_end import end
from plait.coordinator.machine.rescale import open_rescale, proceed, settle
from plait.coordinator.machine.start_nodes import replace_nodes
from plait.coordinator.machine.state import (
    JobState,
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
    is_needed,
    owned_bins,
    reads,
    with_change,
    with_nodes,
)
from plait.coordinator.machine.turn import Next
from plait.coordinator.machine.wait import enter, release
from plait.coordinator.messages.commands import StopNode
from plait.errors import InternalError
from plait.migration import machine, node_loss

if TYPE_CHECKING:
    from plait.coordinator.machine.turn import Turn
    from plait.protocol.messages import Rank


def lose(job: JobState, rank: Rank, reason: str, turn: Turn) -> Next:
    """A node is gone."""
    node = job.nodes[rank]
    stop = (StopNode(job=job.name, rank=rank, cause=turn.cause),)
    if node.phase == "lost":
        return Next(job, stop)
    if job.over or node.phase == "left":
        # Its part is done; it has handed over its outcome, or is asked for it again.
        return Next(job, (replace(stop[0], keep=job.kept),))
    if job.phase in ("placing", "starting"):
        return replace_nodes(job, (rank,), reason, turn)
    restoring = job.checkpoints is not None and job.phase in ("preparing", "recovering")
    if job.phase == "preparing" and not restoring:
        # The others know it as a peer already: all begin anew, under other ranks.
        everyone = tuple(r for r, n in job.nodes.items() if n.phase == "joining")
        return replace_nodes(job, everyone, reason, turn)
    job = with_nodes(job, (replace(node, phase="lost", reason=reason, lost_at=turn.at),))
    job = release(job, rank)
    if job.phase == "ending":
        return Next(job, stop)
    if restoring:
        return Next(job, stop).then(lose_restoring, rank, reason, turn)
    if job.phase == "beginning" or is_needed(job, rank):
        if job.checkpoints is not None:
            words = f"node-{rank} on {node.host} was lost: {reason}"
            return Next(job, stop).then(recover, words, turn)
        return Next(job, stop).then(end, "failed", loss_reason(job, rank, reason), turn)
    if owes_part(job, rank):
        job = give_up(job, f"node-{rank} was lost: {reason}", turn)
    job = without_node(job, rank, met=node.phase != "starting", turn=turn)
    if node.phase in ("starting", "joining"):
        job = give_up_rescale(job, f"node-{rank}, which was to join, was lost: {reason}", turn)
    return Next(job, stop).then(go_on, turn)


def loss_reason(job: JobState, rank: Rank, reason: str) -> str:
    """Why the job cannot go on without this node."""
    had = []
    if count := owned_bins(job, rank):
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


def without_node(job: JobState, rank: Rank, *, met: bool, turn: Turn) -> JobState:
    """The job without a node that had nothing; a rescale that has bins for it makes no new step."""
    layouts = tuple(
        replace(layout, members=tuple(r for r in layout.members if r != rank))
        for layout in job.layouts
    )
    job = replace(job, layouts=layouts, dropping=(*job.dropping, rank) if met else job.dropping)
    change = job.changing
    if change is None or change.migration is None:
        return job
    loss = node_loss.assess_loss(change.migration, rank, turn.at)
    if loss.outcome == "fatal":
        raise InternalError(f"{job.name}: node {rank} owns nothing, and yet: {loss.reason}")
    reason = change.reason or loss.reason
    return with_change(job, replace(change, migration=loss.migration, reason=reason))


def give_up_rescale(job: JobState, reason: str, turn: Turn) -> JobState:
    """The rescale makes no further step."""
    change, migration = open_rescale(job)
    migration = machine.abort(migration, reason, turn.at)
    return with_change(job, replace(change, migration=migration, reason=change.reason or reason))


def go_on(job: JobState, turn: Turn) -> Next:
    """What the job does now that a node that had nothing is gone."""
    kind = job.wait.kind
    match kind:
        case Telling(act="promise"):
            return lift(job, turn)
        case Telling(act="prepare") | Placing() | Starting():
            # The new nodes have a wrong list of peers already: they are given up.
            job = give_up_rescale(job, "a node was lost while others joined", turn)
            return proceed(job, turn)
        case Telling():
            # Commit, lift and drop go through; the drop follows them.
            return Next(job)
        case Readying() if open_rescale(job)[1].over:
            return proceed(job, turn)
        case Measuring() | Passing() | Readying() | Pacing() | Quiet():
            if not job.dropping:
                return Next(job)
            return send_drop(job, kind, turn)
        case Surveying() | Loading():
            raise InternalError(f"{job.name}: {kind} does not end with a node that had nothing")
        case _:
            assert_never(kind)


def resume_after_drop(job: JobState, dropped: tuple[Rank, ...], turn: Turn) -> Next:
    """The members know which nodes are gone: the job goes on with what it waited for."""
    job = replace(job, dropping=tuple(rank for rank in job.dropping if rank not in dropped))
    then = job.interrupted
    if then is None or not isinstance(then, Interruptible):
        raise InternalError(f"{job.name}: a drop interrupted nothing: {then}")
    if job.dropping:
        return send_drop(job, then, turn)
    job = replace(job, interrupted=None)
    match then:
        case Pacing():
            return proceed(job, turn)
        case Quiet():
            return settle(job, turn)
        case Measuring() | Passing() | Readying():
            return enter(job, without_lost(job, then), turn)
        case _:
            assert_never(then)
