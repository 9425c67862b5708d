"""What a job is to the coordinator: a name, where its payload is, and what its nodes must agree on.

The payload (graph and settings, made by the client) is given to every node when it is made. It may
be large, so it is kept beside the journal, under a key, and never in it. `Policy` holds the times
and bounds of the control plane: read once, passed in, never read from a clock or the environment by
the logic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from plait.protocol.messages import PartKind

Order = Literal["total", "key"]
BelowFloor = Literal["wait", "suspend"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """A source of the job."""

    label: str
    splits: bool
    """Every member can read its own slice of each epoch; if not, the home node reads it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSpec:
    """A sub-pipeline of the job; its number is its place in `JobSpec.parts`. What its fields mean
    is in `plait.graph.subpipelines`."""

    name: str
    kind: PartKind
    inputs: tuple[int, ...] = ()
    """The sub-pipelines it reads from; all have smaller numbers."""
    sources: tuple[int, ...] = ()
    """By their place in `JobSpec.sources`."""
    queries: tuple[str, ...] = ()
    """The labels of the sinks behind it or in it."""
    region: str = ""
    pinned: bool = False
    """It stays at the home node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySpec:
    """A sink of the job, with what it asks for under overload (`plait.graph.shedders.quality`)."""

    label: str
    priority: int = 0
    min_accuracy: float = 1.0
    """The least share of its input that is kept; 1: nothing is ever shed."""
    freshness_s: float = 0.0
    """0: as the policy says."""
    below_floor: BelowFloor = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    """Where and how often a job is saved, and how often it may go back."""

    url: str
    every_s: float = 10.0
    keep: int = 3
    max_age_s: float | None = None
    """A job that could not be saved for so long stops; None: ten times `every_s`."""
    start: str = ""
    """Where to begin (`to_start`); empty: at the newest checkpoint there is, else at the start."""
    restarts: int = 5
    """It may go back so often within `restarts_s`; then it fails."""
    restarts_s: float = 600.0

    @property
    def oldest_s(self) -> float:
        return 10.0 * self.every_s if self.max_age_s is None else self.max_age_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What a client submits."""

    name: str
    payload: str
    """The key of the graph and the settings, under which the gateway keeps them."""
    token: str = field(repr=False)
    """The secret by which the job's nodes know each other on their links."""
    bin_bits: int
    """The state of every operator is cut into 2 ** bin_bits bins."""
    sources: tuple[SourceSpec, ...]
    nodes: int
    parts: tuple[PartSpec, ...] = ()
    """Its sub-pipelines, inputs first."""
    queries: tuple[QuerySpec, ...] = ()
    """Its sinks, in the order of the graph."""
    sheds: bool = True
    """The quality controller may drop input of the queries with a floor."""
    order: Order = "total"
    epoch_records: int = 0
    """Records of each source in an epoch; 0: as the nodes choose."""
    bounded: bool = True
    """All its sources end."""
    prefer: tuple[str, ...] = ()
    """Hosts to be used first, in this order."""
    cores_per_node: float | None = None
    """Cores that a node is expected to use; None: one, until measured."""
    seed: int = 0
    """Of the tie break between equal hosts."""
    silence_s: float | None = None
    """A node of which nothing is heard for this long is lost; None: as the policy says."""
    checkpoint: CheckpointSpec | None = None
    """None: the loss of a node that has something is the end of the job."""

    @property
    def bins(self) -> int:
        return 1 << self.bin_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Times and bounds of the control plane."""

    tick_s: float = 0.025
    """How often the shell looks at the clock when nothing happens."""
    report_s: float = 0.25
    """How often every node is asked how it is."""
    calls_per_s: float = 1500.0
    """With many nodes reports are asked for less often than that: the edge carries no more."""
    silence_s: float = 10.0
    """A node of which nothing was heard for so long is lost, if its job says nothing else."""
    crowd: float = 4.0
    """On a machine with more threads than cores a node may be silent longer: as many times as
    threads want each core, but at most so many."""
    quality_s: float = 1.0
    """How often it is decided what is kept of queries under overload."""
    resend_s: float = 0.5
    """A command without an answer is sent again after so long."""
    measure_s: float = 2.0
    """A rescale is planned after so long with what is known of the bins."""
    start_s: float = 60.0
    """A node must be made within this time."""
    tries: int = 3
    """How often a job's nodes are placed anew before it began."""
    avoid_s: float = 120.0
    """A host on which a job's nodes could not be made, or were lost, is avoided for so long."""
    margin_s: float = 0.05
    """How far ahead the epoch of a round is: more than the nodes take to hear of it."""
    round_tries: int = 3
    """How often a refused round is tried again before the change is given up."""
    ready_s: float = 10.0
    """A migration begins after so long even where memory for its bins is not ready yet."""
    chunk_s: float = 0.1
    """How much of a migration is agreed on in one round: pause, abort and throttle act between."""
    chunk_layouts: int = 64
    """At most so many layouts in a round."""
    burst_s: float = 5.0
    """Nodes that are lost within so long of each other are one restart."""
    save_again_s: float = 1.0
    """After so long the last checkpoint of a job is tried again, and one that was refused."""
    survey_s: float = 120.0
    """A look at the checkpoints that takes longer has failed."""
    grow_s: float = 30.0
    """A replacement for a lost node that could not be had is asked for again after so long."""
    bandwidth_bytes_per_s: float = 5e8
    """What a link is taken to carry when steps of a migration are paced."""
    sweep_s: float = 5.0
    """Nodes that should be gone are stopped again so often: the first time may have been lost."""
    forgotten_s: float = 60.0
    """... those of a forgotten job for so long."""
    keep_s: float = 600.0
    """The outcome of a job that is over is kept so long, unless it is forgotten."""
    gone: int = 32
    """So many nodes of a job that left or were lost are kept in its state, and shown."""
    expired: int = 100
    """So many jobs are shown whose outcome is not kept any more."""
    former: int = 1000
    """So many names of forgotten jobs are remembered."""
    replies: int = 256
    """So many replies are remembered for clients that ask again."""
