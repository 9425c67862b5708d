"""The state of the control plane, as frozen data.

A job always *waits* for one thing. Entering a wait gives its commands; when all it waits for has
come, the next one is entered (`transitions.py` says which). The wait, the nodes and the layouts are
*durable*: they follow from the journalled facts alone. What was heard since (answers, reports,
times) is in `JobWatch`, is never journalled, and may be forgotten at any time: commands are then
sent again, and answered as the first time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from plait.coordinator.messages.spec import Policy
from plait.coordinator.messages.views import OVER, JobPhase, NodePhase, PastWork
from plait.protocol.messages import EVERYONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plait.coordinator.machine.checkpoints.records import Checkpoints
    from plait.coordinator.machine.quality.records import QualityMemory, QualityRecord
    from plait.coordinator.messages.requests import Reply, Rescale, Strategy
    from plait.coordinator.messages.spec import JobSpec
    from plait.migration.machine import Migration
    from plait.protocol.checkpoint_messages import PartRef
    from plait.protocol.messages import BinLoad, Command, Finish, Layout, NodeReport, Peer, Rank
    from plait.protocol.quality import Alert, QualityStep
    from plait.protocol.rates import SourceReport
    from plait.shedding.cpu_rates import CpuWatch

Aim = Literal[
    "start", "join", "ready", "chunk", "leave", "keep", "save", "stop", "drop", "restore", "over"
]
"""What a wait is a part of."""
Act = Literal["prepare", "begin", "expect", "promise", "commit", "lift", "drop", "halt", "end"]
"""What nodes are told to do. `transitions.WAITS` names each pair of aim and act that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Waits for a look at the hosts, to place these ranks."""

    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """Waits for these nodes to be made."""

    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOrder:
    """One command for many nodes: kept once, whatever their number."""

    ranks: tuple[Rank, ...]
    command: Command
    """A Prepare has all peers in it; `wait.command_for` gives each node its version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Waits for an answer to each of these commands."""

    aim: Aim
    act: Act
    orders: tuple[NodeOrder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Waits for the loads of the bins of these nodes, to plan a rescale."""

    ranks: tuple[Rank, ...]
    draft: Rescaling


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """Waits until these nodes have passed an epoch; the leaving ones until they have left."""

    aim: Aim
    epoch: int
    ranks: tuple[Rank, ...]
    leaving: tuple[Rank, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Readying:
    """A migration is before its first chunk: waits until the nodes that get bins have memory for
    them, at most as long as the policy says."""

    number: int
    """Of the Expect."""
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """A migration is between two chunks: waits for the next one to be due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveying:
    """Waits until the home has claimed the checkpoints and chosen one."""

    rank: Rank
    command_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Waits until these nodes have loaded what they own of the checkpoint."""

    attempt: int
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Waits for nothing."""


WaitKind = (
    Placing
    | Starting
    | Telling
    | Measuring
    | Passing
    | Readying
    | Pacing
    | Surveying
    | Loading
    | Quiet
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWait:
    """What a job waits for now."""

    id: int
    """Ascending, never used twice in a job; also the id of the wait's commands."""
    kind: WaitKind
    since: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node of a job."""

    rank: Rank
    host: str
    phase: NodePhase
    capacity: float = 1.0
    peer: Peer | None = None
    pid: int = 0
    made_at: float | None = None
    """When its process was there."""
    reason: str = ""
    """Of a lost node: why it counts as lost."""
    lost_at: float | None = None
    """When it was lost, or could not be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaling:
    """A rescale: nodes that join, bins that move, nodes that leave."""

    number: int
    request_id: str
    strategy: Strategy
    gap_epochs: int
    throttle_bytes_per_s: float | None
    balance: bool
    dry_run: bool
    joining: tuple[Rank, ...]
    leaving: tuple[Rank, ...]
    migration: Migration | None = None
    """None until the loads are known."""
    expected: bool = False
    """The nodes know which bins will move."""
    phase: Literal["preparing", "running", "done", "failed"] = "preparing"
    """`preparing`: nodes are made and joined; `running`: bins move, then nodes leave."""
    reason: str = ""
    began_at: float = 0.0
    ended_at: float | None = None

    @property
    def open(self) -> bool:
        return self.phase not in ("done", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRescale:
    """A rescale that was asked for in the middle of something short: it is looked at after it."""

    request: Rescale
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPair:
    """A node's last report and the one before."""

    report: NodeReport
    at: float
    before: NodeReport
    before_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWatch:
    """What was heard of a job's nodes. Not journalled."""

    missing: frozenset[Rank] = frozenset()
    """The nodes that the present wait still waits for."""
    fence: int = 0
    """Of a promise: the greatest fence so far."""
    loads: tuple[tuple[BinLoad, ...], ...] = ()
    """While measuring: what has come so far, of each node."""
    sent_at: float = 0.0
    """When the commands of the present wait were last sent."""
    asked_at: float = float("-inf")
    """When reports were last asked for."""
    heard: Mapping[Rank, float] = field(default_factory=dict)
    """When each node was last heard from, or made, or when the coordinator began to listen."""
    reports: Mapping[Rank, ReportPair] = field(default_factory=dict)
    past: PastWork = field(default_factory=PastWork)
    """What the nodes did that are not kept in the state any more."""
    past_sources: Mapping[str, SourceReport] = field(default_factory=dict)
    """What they had read of each source, by its label."""
    cpu: Mapping[Rank, CpuWatch] = field(default_factory=dict)
    ended: frozenset[Rank] = frozenset()
    """Nodes that reported their end."""
    parts: Mapping[Rank, PartRef] = field(default_factory=dict)
    """Parts of the checkpoint in flight."""
    slow_told: int = 0
    """The last slow command that was answered."""
    slow_sent_at: float = 0.0
    save_asked_at: float = float("-inf")
    """When those who owe something of the checkpoint in flight were last asked."""
    quality: QualityRecord | None = None
    """What the quality controller measured; None until it looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job."""

    spec: JobSpec
    phase: JobPhase
    wait: JobWait
    next_wait: int
    next_rank: Rank
    nodes: Mapping[Rank, NodeState] = field(default_factory=dict)
    """All that take part or will, and the last ones that left or were lost."""
    departed: tuple[tuple[Rank, Rank], ...] = ()
    """The nodes that left before those: from the first to the last of each stretch of ranks."""
    layouts: tuple[Layout, ...] = ()
    """The layout all nodes have passed, then the ones agreed on that some have not."""
    home: Rank = 0
    change: Rescaling | None = None
    """The latest rescale, open or over."""
    held: HeldRescale | None = None
    """Asked for while members were told of nodes that are gone, or while a mark was set."""
    dropping: tuple[Rank, ...] = ()
    """Nodes that are gone, lost or left, and that the others do not know of yet."""
    interrupted: WaitKind | None = None
    """What the job waited for before a Drop interrupted it."""
    refusals: int = 0
    """Rounds in a row that were refused."""
    stop_asked: bool = False
    finish: Finish | None = None
    """What the stop does with open windows; None: as the settings say."""
    tries: int = 0
    """How often nodes were placed anew before the job began."""
    end_as: Literal["", "ended", "failed", "cancelled"] = ""
    """When it ends: how."""
    error: str = ""
    submitted_at: float = 0.0
    began_at: float | None = None
    ended_at: float | None = None
    kept: bool = True
    """Its outcome is kept."""
    taken: bool = False
    """A client has its outcome."""
    checkpoints: Checkpoints | None = None
    bounds: tuple[tuple[int, float], ...] = ()
    """By hand: the most that is kept of queries, by their numbers; ascending."""
    decided: tuple[tuple[int, float], ...] = ()
    """By the quality controller: the same, for the queries that are to be shed."""
    alerts: tuple[Alert, ...] = ()
    """The floors that cannot be met now."""
    steps: tuple[QualityStep, ...] = ()
    """What the controller decided, and why: the last times."""
    keep: tuple[int, ...] = ()
    """The threshold of each query as it is wanted; empty: all is kept. Every round carries it to
    the nodes, and a quiet job begins one for it."""
    watch: JobWatch = field(default_factory=JobWatch)

    @property
    def attempt(self) -> int:
        """0 for a job without checkpoints."""
        return self.checkpoints.attempt if self.checkpoints is not None else 0

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def over(self) -> bool:
        return self.phase in OVER

    @property
    def layout(self) -> Layout:
        """The newest layout agreed on."""
        return self.layouts[-1]

    @property
    def members(self) -> tuple[Rank, ...]:
        return self.layouts[-1].members if self.layouts else ()

    @property
    def live(self) -> tuple[Rank, ...]:
        """Nodes that are made and take part, or will."""
        return tuple(
            rank
            for rank, node in self.nodes.items()
            if node.peer is not None and node.phase not in ("left", "lost")
        )

    @property
    def all_ranks(self) -> tuple[Rank, ...]:
        """Nodes that may have an outcome."""
        before = (rank for first, last in self.departed for rank in range(first, last + 1))
        return (*before, *self.nodes)

    @property
    def changing(self) -> Rescaling | None:
        return self.change if self.change is not None and self.change.open else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerJob:
    """What is left of a forgotten job: no rank and no wait is used twice under a name."""

    next_rank: Rank
    next_wait: int
    ranks: tuple[Rank, ...]
    """Its nodes, which were stopped."""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The whole control plane."""

    policy: Policy = field(default_factory=Policy)
    jobs: Mapping[str, JobState] = field(default_factory=dict)
    replies: Mapping[str, Reply] = field(default_factory=dict)
    """The last replies by request, oldest first, for clients that ask again."""
    former: Mapping[str, FormerJob] = field(default_factory=dict)
    """Forgotten jobs, by name."""
    swept_at: float = 0.0
    """When nodes that should be gone were last stopped again. Not journalled."""
    quality_memory: QualityMemory | None = None
    """What the quality controller remembers. Not journalled."""


def with_job(state: State, job: JobState) -> State:
    return replace(state, jobs={**state.jobs, job.name: job})


def with_nodes(job: JobState, nodes: Iterable[NodeState]) -> JobState:
    return replace(job, nodes={**job.nodes, **{node.rank: node for node in nodes}})


def with_change(job: JobState, change: Rescaling) -> JobState:
    return replace(job, change=change)


def reads(job: JobState, rank: Rank) -> bool:
    """Whether some layout in force has this node read a source."""
    return any(
        rank in layout.readers or (EVERYONE in layout.readers and rank in layout.owners)
        for layout in job.layouts
    )


def owned_bins(job: JobState, rank: Rank) -> int:
    """The number of bins the node owns or is about to own, in the layouts in force."""
    return max((layout.owners.count(rank) for layout in job.layouts), default=0)


def is_needed(job: JobState, rank: Rank) -> bool:
    """Whether the job cannot go on without this node."""
    home = rank == job.home and job.spec.order == "total"
    return home or reads(job, rank) or owned_bins(job, rank) > 0
