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
    from plait.protocol.checkpoint_messages import Finished, PartRef
    from plait.protocol.messages import Answer, NodeReport, Peer, Rank
    from plait.protocol.quality import Alert, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBase:
    """What every event has."""

    at: float
    """Seconds of the coordinator's clock."""
    cause: str = ""
    """What led to it, in a few words: a request's id, a command's cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(EventBase):
    """Time has passed."""

    job: str = ""
    """Looks at this job alone; empty: at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(EventBase):
    """A node answered a command."""

    job: str
    rank: Rank
    command_id: int
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported(EventBase):
    """A node said how it is."""

    job: str
    rank: Rank
    report: NodeReport
    loads: bool = False
    """The loads of its bins were asked for, and are in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard(EventBase):
    """A node's process is there: its heart was heard, though it may not have answered."""

    job: str
    rank: Rank


Observation = Tick | Answered | Reported | Heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(EventBase):
    """A client asked for something."""

    request_id: str
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsSeen(EventBase):
    """The hosts of the cluster as they are now. Comes when asked for."""

    hosts: tuple[HostView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMade(EventBase):
    """A node's process is there and listens."""

    job: str
    rank: Rank
    host: str
    peer: Peer
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNotMade(EventBase):
    """A node could not be made."""

    job: str
    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(EventBase):
    """A node is gone, or silent for too long: from now on it counts as gone, whatever it says."""

    job: str
    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitDone(EventBase):
    """All nodes that a job waits for have answered, or have come far enough."""

    job: str
    wait: int
    epoch: int = 0
    """Of promises: the greatest fence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRefused(EventBase):
    """A node refused its part of what a job waits for."""

    job: str
    wait: int
    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadsKnown(EventBase):
    """What the bins weigh, as the nodes reported when asked for a plan."""

    job: str
    wait: int
    bins: tuple[int, ...]
    records: tuple[int, ...]
    """Of each of these bins; columns, because there may be a hundred thousand."""
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkDue(EventBase):
    """A running migration may take its next steps."""

    job: str
    wait: int
    epochs_per_s: float
    """The pace of the job's sources now; 0 when it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed(EventBase):
    """A node reported that the job failed on it."""

    job: str
    rank: Rank
    error: str
    lost_peer: bool = False
    """Not a record is to blame: with checkpoints the job goes back to the last one."""
    attempt: int = 0
    """Of the job, when this was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDue(EventBase):
    """It is time for a checkpoint, and the job is in a state in which it can be marked."""

    job: str
    wait: int
    epoch: int = 0
    """Of a job whose nodes are at their end: how far they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSaved(EventBase):
    """All parts of a checkpoint are in the store."""

    job: str
    number: int
    parts: tuple[PartRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFailed(EventBase):
    """A node could not save its part."""

    job: str
    number: int
    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDone(EventBase):
    """A slow command came to its end, or was refused."""

    job: str
    attempt: int
    rank: Rank
    finished: Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class TooOld(EventBase):
    """No checkpoint could be made for longer than the job allows."""

    job: str
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesWanted(EventBase):
    """A job that went back to a checkpoint runs, on another number of nodes than is wanted."""

    job: str
    wait: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOver(EventBase):
    """All nodes are at their end, or a sink has all it wanted."""

    job: str
    satisfied: bool = False
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityDecided(EventBase):
    """What is to be kept of a job's queries under overload, and what cannot be kept."""

    job: str
    keeps: tuple[tuple[int, float], ...]
    """The ratios below 1, by the numbers of their queries; ascending."""
    alerts: tuple[Alert, ...] = ()
    """All that are open."""
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed(EventBase):
    """The coordinator could not follow what happened to a job: a bug of plait's, and the end of
    this job alone."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired(EventBase):
    """The outcome of a job that is over was kept long enough."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(EventBase):
    """The coordinator came back from its journal: what was told and not answered is told again."""


Fact = (
    Asked
    | HostsSeen
    | NodeMade
    | NodeNotMade
    | NodeLost
    | WaitDone
    | WaitRefused
    | LoadsKnown
    | ChunkDue
    | NodeFailed
    | CheckpointDue
    | PartsSaved
    | PartFailed
    | SlowDone
    | TooOld
    | NodesWanted
    | JobOver
    | QualityDecided
    | TurnFailed
    | Expired
    | Restarted
)

Event = Observation | Fact
