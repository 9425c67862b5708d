"""The events that answer a command, for every gateway: each is of the command's job and node, and
repeats its cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.coordinator.messages.events import Answered, NodeMade, NodeNotMade, Reported

if TYPE_CHECKING:
    from plait.coordinator.messages.commands import AskReport, StartNode, Tell
    from plait.protocol.messages import Answer, NodeReport, Peer


def made(command: StartNode, at: float, host: str, peer: Peer, pid: int) -> NodeMade:
    job, rank, cause = command.job, command.rank, command.cause
    return NodeMade(at=at, cause=cause, job=job, rank=rank, host=host, peer=peer, pid=pid)


def not_made(command: StartNode, at: float, reason: str) -> NodeNotMade:
    job, rank, cause = command.job, command.rank, command.cause
    return NodeNotMade(at=at, cause=cause, job=job, rank=rank, reason=reason)


def answered(command: Tell, at: float, answer: Answer) -> Answered:
    return Answered(
        at=at,
        cause=command.cause,
        job=command.job,
        rank=command.rank,
        command_id=command.command_id,
        answer=answer,
    )


def reported(command: AskReport, at: float, report: NodeReport) -> Reported:
    return Reported(
        at=at,
        cause=command.cause,
        job=command.job,
        rank=command.rank,
        report=report,
        loads=command.loads,
    )
