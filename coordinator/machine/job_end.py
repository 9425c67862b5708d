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
    commands = reject_draft(job, f"{job.name} ended first")
    unused = [node for node in job.nodes.values() if node.phase in ("starting", "joining")]
    commands += [StopNode(job=job.name, rank=node.rank, cause=turn.cause) for node in unused]
    job = with_nodes(
        job, (replace(node, phase="lost", reason="the job ended first") for node in unused)
    )
    if (change := job.changing) is not None:
        why = error or f"the job was {end_as}" if end_as != "ended" else "the job ended first"
        job = with_change(
            job, replace(change, phase="failed", reason=change.reason or why, ended_at=turn.at)
        )
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


def reject_draft(job: JobState, reason: str) -> list[Outgoing]:
    """For the client whose rescale was being planned when the job ended."""
    kind = job.wait.kind
    if not isinstance(kind, Measuring):
        return []
    request_id = kind.draft.request_id
    return [ReplyTo(request_id=request_id, reply=Rejected(reason=reason), cause=job.wait.cause)]


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
