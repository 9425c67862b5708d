"""All that the coordinator can ask of the world. Each may be done twice without harm.

A node that exists already is not made twice; a command told again has the id it had, and is
answered as before; a node that is gone is stopped with success. So everything that was not
answered is simply asked again, after a time or after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.coordinator.messages.requests import Reply
    from plait.coordinator.messages.spec import JobSpec
    from plait.protocol.messages import Command, Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNode:
    """Make a node on a host. Answered by NodeMade or NodeNotMade, also if it was made before."""

    job: str
    rank: Rank
    host: str
    spec: JobSpec
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Have a node carry out a command. Answered by Answered, or by NodeLost if it is known to be
    gone; else by nothing, and it is told again."""

    job: str
    rank: Rank
    command_id: int
    """Ascending for each node. A node refuses one that is older than the last it carried out."""
    command: Command
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskReport:
    """Ask a node how it is. Answered by Reported."""

    job: str
    rank: Rank
    loads: bool
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """End a node's process, if there is one. Not answered."""

    job: str
    rank: Rank
    cause: str
    keep: bool = False
    """Its outcome is wanted: it ends when that is in the coordinator's store, not before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHosts:
    """Look at the cluster. Answered by HostsSeen."""

    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyTo:
    """Tell a client what came of its request."""

    request_id: str
    reply: Reply
    cause: str


Outgoing = StartNode | Tell | AskReport | StopNode | AskHosts | ReplyTo
