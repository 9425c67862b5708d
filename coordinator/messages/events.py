"""All that can happen to the control plane: observations and facts.

*Observations* (reports, answers, the clock) come often and are not journalled: what they amount to
(all have answered, a node is lost) is noticed and becomes a *fact*. Facts are journalled before
anything is done about them, and carry every number that a decision needs; so a replay of the facts
alone makes the same decisions. Every event says when it was and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.coordinator.messages.hosts import HostView
    from plait.coordinator.messages.requests import Request
    from plait.protocol.messages import Answer, NodeReport, Peer, Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What every event has."""

    at: float
    """Seconds of the coordinator's clock."""
    cause: str = ""
    """What led to it, in a few words: a request's id, a command's cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(Happened):
    """Time has passed."""

    job: str = ""
    """Looks at this job alone; empty: at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Happened):
    """A node answered a command."""

    job: str
    rank: Rank
    command_id: int
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported(Happened):
    """A node said how it is."""

    job: str
    rank: Rank
    report: NodeReport
    loads: bool = False
    """The loads of its bins were asked for, and are in it."""


Observation = Tick | Answered | Reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Happened):
    """A client asked for something."""

    request_id: str
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsSeen(Happened):
    """The hosts of the cluster as they are now. Comes when asked for."""

    hosts: tuple[HostView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMade(Happened):
    """A node's process is there and listens."""

    job: str
    rank: Rank
    host: str
    peer: Peer
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNotMade(Happened):
    """A node could not be made."""

    job: str
    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(Happened):
    """A node is gone, or silent for too long: from now on it counts as gone, whatever it says."""

    job: str
    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDone(Happened):
    """All whom the present stage of a job waits for have answered, or have come far enough."""

    job: str
    stage: int
    epoch: int = 0
    """Of promises: the greatest fence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRefused(Happened):
    """A node refused its part of the present stage."""

    job: str
    stage: int
    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadsKnown(Happened):
    """What the bins weigh, as the nodes reported when asked for a plan."""

    job: str
    stage: int
    bins: tuple[int, ...]
    records: tuple[int, ...]
    """Of each of these bins; columns, because there may be a hundred thousand."""
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkDue(Happened):
    """A running migration may take its next steps."""

    job: str
    stage: int
    epochs_per_s: float
    """The pace of the job's sources now; 0 when it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed(Happened):
    """A node reported that the job failed on it."""

    job: str
    rank: Rank
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOver(Happened):
    """All nodes are at their end, or a sink has all it wanted."""

    job: str
    satisfied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired(Happened):
    """The nodes of a job that is over were kept long enough."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(Happened):
    """The coordinator came back from its journal: what was told and not answered is told again."""


Fact = (
    Asked
    | HostsSeen
    | NodeMade
    | NodeNotMade
    | NodeLost
    | StageDone
    | StageRefused
    | LoadsKnown
    | ChunkDue
    | NodeFailed
    | JobOver
    | Expired
    | Restarted
)

Event = Observation | Fact
