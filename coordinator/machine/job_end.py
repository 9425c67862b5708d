"""How a job ends: well, failed or cancelled.

Whatever the job was doing, all its nodes are told to end; nodes that never took part are stopped.
The others hand their outcome over to the coordinator's store, where it is kept for a time, and
their processes end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from plait.coordinator.machine.state import (
    JobState,
    Measuring,
    NodeOrder,
    Quiet,
    Telling,
    with_change,
    with_nodes,
)
from plait.coordinator.machine.turn import Next
from plait.coordinator.machine.wait import enter
from plait.coordinator.messages.commands import Outgoing, ReplyTo, StopNode
from plait.coordinator.messages.requests import Rejected
from plait.protocol.messages import End

if TYPE_CHECKING:
    from plait.coordinator.machine.turn import Turn
    from plait.coordinator.messages.views import JobPhase


def end(
    job: JobState, end_as: Literal["ended", "failed", "cancelled"], error: str, turn: Turn
) -> Next:
    """Tells all nodes to end."""
    job, commands = reject_unplanned(job, f"{job.name} ended first")
    unused = [node for node in job.nodes.values() if node.phase in ("starting", "joining")]
    commands += [StopNode(job=job.name, rank=node.rank, cause=turn.cause) for node in unused]
    job = with_nodes(
        job, (replace(node, phase="lost", reason="the job ended first") for node in unused)
    )
    why = error or f"the job was {end_as}" if end_as != "ended" else "the job ended first"
    job = fail_rescale(job, why, turn)
    if job.checkpoints is not None:
        job = replace(job, checkpoints=replace(job.checkpoints, saving=None, wishes=()))
    orders = (NodeOrder(ranks=job.live, command=End(good=end_as == "ended")),)
    job = replace(
        job,
        phase="ending",
        end_as=end_as,
        error=error,
        dropping=(),
        interrupted=None,
        ended_at=turn.at,
    )
    ending = Telling(aim="over", act="end", orders=orders)
    return Next(job, tuple(commands)).then(enter, ending, turn)


def fail_rescale(job: JobState, reason: str, turn: Turn) -> JobState:
    """The job with its running rescale, if there is one, at its end."""
    change = job.changing
    if change is None:
        return job
    reason = change.reason or reason
    return with_change(job, replace(change, phase="failed", reason=reason, ended_at=turn.at))


def close_rescale(job: JobState, reason: str, turn: Turn) -> tuple[JobState, list[Outgoing]]:
    """The same, and nodes that were to join and are not yet made are not wanted any more."""
    unmade = [n for n in job.nodes.values() if n.phase == "starting" and n.peer is None]
    job = with_nodes(job, (replace(node, phase="lost", reason=reason) for node in unmade))
    stops: list[Outgoing] = [
        StopNode(job=job.name, rank=node.rank, cause=turn.cause) for node in unmade
    ]
    return fail_rescale(job, reason, turn), stops


def unplanned(job: JobState) -> list[str]:
    """The requests for a rescale that were neither planned nor refused yet."""
    waits = (job.wait.kind, job.interrupted)
    found = [kind.draft.request_id for kind in waits if isinstance(kind, Measuring)]
    return found if job.held is None else [*found, job.held.request_id]


def reject_unplanned(job: JobState, reason: str) -> tuple[JobState, list[Outgoing]]:
    """For the clients whose rescale was not planned yet when nothing could come of it any more."""
    rejected = Rejected(reason=reason)
    return replace(job, held=None), [
        ReplyTo(request_id=request_id, reply=rejected, cause=job.wait.cause)
        for request_id in unplanned(job)
    ]


def finish(job: JobState, turn: Turn) -> Next:
    """All nodes have ended."""
    phase: JobPhase = job.end_as or "ended"
    over = replace(job, phase=phase)
    return Next(over, tuple(release_nodes(over, turn.cause))).then(enter, Quiet(), turn)


def release_nodes(job: JobState, cause: str) -> list[Outgoing]:
    """Ends the processes that are not needed any more: of lost nodes, which may have come back; of
    those that left; and when the job is over, of all. What they have for the result is kept."""
    return [
        StopNode(job=job.name, rank=rank, cause=cause, keep=job.kept and node.phase != "lost")
        for rank, node in job.nodes.items()
        if job.over or node.phase in ("left", "lost")
    ]


def stop_nodes(job: JobState, cause: str) -> list[Outgoing]:
    """Ends the processes of all nodes ever asked for, with what they have."""
    return [StopNode(job=job.name, rank=rank, cause=cause) for rank in job.nodes]
