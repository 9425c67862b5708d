"""How a job ends: well, failed or cancelled.

Whatever the job was doing, all its nodes are told to end and the rest is forgotten; nodes that
never took part are stopped. The others stay, ended, until the outcome is not wanted any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from plait.coordinator.machine.stage import Result, enter
from plait.coordinator.machine.state import (
    JobState,
    Measuring,
    Order,
    Quiet,
    Telling,
    with_change,
    with_nodes,
)
from plait.coordinator.messages.commands import Outgoing, ReplyTo, StopNode
from plait.coordinator.messages.requests import Rejected
from plait.protocol.messages import End

if TYPE_CHECKING:
    from plait.coordinator.messages.views import JobPhase


def end(
    job: JobState,
    end_as: Literal["ended", "failed", "cancelled"],
    error: str,
    at: float,
    cause: str,
) -> Result:
    """Tell all nodes to end."""
    answers = refused_draft(job, f"{job.name} ended first")
    unused = [node for node in job.nodes.values() if node.phase in ("starting", "joining")]
    commands: list[Outgoing] = [
        StopNode(job=job.name, rank=node.rank, cause=cause) for node in unused
    ]
    job = with_nodes(
        job, (replace(node, phase="lost", reason="the job ended first") for node in unused)
    )
    if (change := job.changing) is not None:
        why = error or f"the job was {end_as}" if end_as != "ended" else "the job ended first"
        job = with_change(
            job, replace(change, phase="failed", reason=change.reason or why, ended_at=at)
        )
    orders = (Order(ranks=job.live, command=End(good=end_as == "ended")),)
    job = replace(
        job, phase="ending", end_as=end_as, error=error, dropping=(), interrupted=None, ended_at=at
    )
    job, ends = enter(job, Telling(aim="over", act="end", orders=orders), at, cause)
    return job, answers + commands + ends


def refused_draft(job: JobState, reason: str) -> list[Outgoing]:
    """For the client whose rescale was being planned when the job ended."""
    awaits = job.stage.awaits
    if not isinstance(awaits, Measuring):
        return []
    request_id = awaits.draft.request_id
    return [ReplyTo(request_id=request_id, reply=Rejected(reason=reason), cause=job.stage.cause)]


def ended(job: JobState, at: float, cause: str) -> Result:
    """All nodes have ended."""
    phase: JobPhase = job.end_as or "ended"
    return enter(replace(job, phase=phase), Quiet(), at, cause)


def stop_nodes(job: JobState, cause: str) -> list[Outgoing]:
    """End the processes of all nodes that were ever asked for: a lost one may have come back."""
    return [StopNode(job=job.name, rank=rank, cause=cause) for rank in job.nodes]
