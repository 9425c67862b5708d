"""What the coordinator tells the nodes of a job, and what they answer.

A job runs on *nodes*, numbered by *rank* from 0; a rank is never used twice. Every node runs the
whole pipeline on its share of the records. Who does what is a `Layout`, valid from an epoch on: the
members, the owner of every bin, the readers of the sources. A change of anything is a new layout.

An epoch is agreed on in a *round* of two steps. `Promise`: every member says up to which epoch it
will go without hearing more (its fence), and keeps to that. `Commit`: the new layouts, the first of
them at the greatest of those fences, go to all members; the fences are lifted. So every
node knows a layout before any node reaches its epoch, and nobody has to stop for it. Every
message may be sent again: a node answers a repeated one as it did the first time. What is said
about checkpoints and recovery is in `checkpoint_messages.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from plait.protocol.bin_maps import Changes, Copies, Owners, changes_between
from plait.protocol.checkpoint_messages import (
    Finished,
    Halt,
    Mark,
    PartRef,
    Publish,
    Restore,
    Retire,
    Seal,
    Survey,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.protocol.rates import SourceReport

Rank = int

Finish = Literal["leave", "flush"]
"""What becomes of windows that are open when a job is stopped: nothing is given for them, or what
they are."""

PartKind = Literal["rows", "keys", "sinks"]
"""Of a sub-pipeline. rows: without state, any rows may be anywhere; keys: with state, a row goes to
the owner of its key; sinks: the sinks of a job in total order, together on one node."""

EVERYONE = -1
"""As the reader of a source: every member that owns bins reads its own slice of each epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Who does what, from `epoch` on."""

    epoch: int
    members: tuple[Rank, ...]
    """Ascending. Every member sends its part of every epoch to every other one, even an empty
    one."""
    owners: Sequence[Rank]
    """The node that has the state of each bin, of every operator. Only members own bins."""
    readers: tuple[Rank, ...]
    """For each source: the node that reads it, or EVERYONE."""
    copies: Sequence[tuple[int, Rank]] = ()
    """Bins whose state the owner copies to another node in the background from this epoch on: when
    a later layout gives that node the bin, only what changed since is sent."""
    epoch_records: int = 0
    """Records of each source in an epoch from here on; 0: as before."""
    keep: tuple[int, ...] = ()
    """Of each query (a sink, in the order of the graph): its threshold, as `shedding.plan` has it;
    empty: all records are kept."""
    first_row: tuple[int, ...] = ()
    """For each source: the number of the row with which `epoch` begins; empty: as it comes, and 0
    for the first layout. Said where a job goes on from a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Where a node listens."""

    rank: Rank
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Build the engine for this job and connect to the peers; do not start yet.

    The job itself (graph, settings, token) was given to the node when it was made. With `restore`
    this is answered at once; NodeReport.restored says when all is loaded.
    """

    rank: Rank
    layout: Layout
    """The layout in force when the node begins; its epoch is not known yet for a node that
    joins."""
    peers: tuple[Peer, ...]
    """All members, this node left out."""
    home: Rank
    """The node that has the sinks of a job in total order."""
    attempt: int = 0
    """Of a job with checkpoints: counts from 1. One below the node's own is refused."""
    token: str = ""
    """By which the nodes of this attempt know each other; empty: the one of the job."""
    restore: Restore | None = None
    """Where the job goes on, also for a node that joins later: it loads nothing (no bin is its
    own yet), but saves under this claim. None: a job without checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """A new node: connect to it."""

    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Start, with the records of this layout's epoch."""

    layout: Layout
    joins: bool = False
    """The others run already. If not, all begin here, at epoch 0 or where a checkpoint was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """Bins that layouts to come will move, all of a plan: make memory ready where they come.

    Nothing moves by it, and layouts are free to differ from it. Those who have the bins tell those
    who will get them how large they are; NodeReport.ready says when all is there. What was made
    ready for an earlier one and is not used is given back.
    """

    number: int
    """Ascending; one that is not above the last changes nothing."""
    bins: tuple[int, ...]
    sources: tuple[Rank, ...]
    """Of each of these bins; columns, because there may be a hundred thousand."""
    targets: tuple[Rank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Say up to which epoch you will go; do not pass it before Commit or Lift of this round."""

    round: int
    margin_s: float
    """The fence is to be so far ahead, at the present pace, that nobody has to wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """New layouts, in the order of their epochs; or a mark, or the common end of all sources, or
    both of these. A mark and a layout never come in one round, nor for one epoch."""

    round: int
    layouts: tuple[Layout, ...] = ()
    stop_at: int | None = None
    """All sources end before this epoch; what was read is delivered."""
    finish: Finish | None = None
    """What becomes of open windows then; None: as the job's settings say."""
    mark: Mark | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        short = in_short(self.layouts)
        return commit_of, (self.round, self.stop_at, self.finish, short, self.mark)


Short = tuple[Layout, Changes | None, Changes | None]
"""A layout, and what changed of its owners and of its copies; None: they are in it."""


def in_short(layouts: Iterable[Layout]) -> tuple[Short, ...]:
    """Each layout without its owners and copies if they are known by what changed."""
    found: list[Short] = []
    before: Layout | None = None
    for layout in layouts:
        owned = None if before is None else changes_between(before.owners, layout.owners)
        copied = None if before is None else changes_between(before.copies, layout.copies)
        bare = replace(
            layout,
            owners=layout.owners if owned is None else (),
            copies=layout.copies if copied is None else (),
        )
        found.append((bare, owned, copied))
        before = layout
    return tuple(found)


def commit_of(
    number: int,
    stop_at: int | None,
    finish: Finish | None,
    short: tuple[Short, ...],
    mark: Mark | None = None,
) -> Commit:
    """A Commit from what it travels as."""
    layouts: list[Layout] = []
    owners, copies = Owners(), Copies()
    for layout, owned, copied in short:
        if owned is None:
            owners = Owners(layout.owners)
        elif owned:
            owners = owners.changed(owned)
        if copied is None:
            copies = Copies(layout.copies)
        elif copied:
            copies = copies.changed(copied)
        layouts.append(replace(layout, owners=owners, copies=copies))
    return Commit(round=number, layouts=tuple(layouts), stop_at=stop_at, finish=finish, mark=mark)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """The round will not happen: the promise is over."""

    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """These nodes are gone. They owned nothing and read nothing: do not wait for their parts."""

    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End at once; what is in flight is dropped. `good`: the job is over, close the ends well."""

    good: bool


Command = (
    Prepare
    | Connect
    | Begin
    | Expect
    | Promise
    | Commit
    | Lift
    | Drop
    | End
    | Halt
    | Seal
    | Publish
    | Retire
    | Survey
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The command was carried out."""

    epoch: int = 0
    """Of a Promise: the fence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The command was not carried out, and changed nothing."""

    reason: str


Answer = Done | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class BinLoad:
    """What a bin weighs on its owner, over all operators."""

    bin: int
    records: int
    """Records routed to it (an estimate from samples), since the start."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """A sub-pipeline on a node. All but `waiting` only grow while the node lives; rates are
    differences of two reports."""

    part: int
    """The number of the sub-pipeline."""
    cpu_s: float = 0.0
    """CPU time of its stages, worker processes included."""
    taken: int = 0
    """Records that its first stages took: read from a source, or taken from other stages."""
    offered: int = 0
    """Records that came for it to this node, waiting or taken, before any was shed."""
    kept: int = 0
    """Records that its shedders let pass."""
    shed: int = 0
    """Records that its shedders dropped."""
    waiting: int = 0
    """Records that wait in front of its stages now."""
    blocked_s: float = 0.0
    """How long its stages could not hand on what they had done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """How a node is. Taken at any time; never waits."""

    rank: Rank
    phase: Literal["made", "prepared", "running", "left", "ended", "failed"]
    """`left`: it passed the layout that it is no member of, and has handed everything on; `ended`:
    all its sources and sinks are at their end; `failed`: see `error`."""
    epoch: int = 0
    """The epoch its sources emit next."""
    delivered_epoch: int = 0
    """All layouts with an epoch up to this one have passed the state of this node: the bins they
    give away are gone, the bins they bring are in."""
    read: int = 0
    delivered: int = 0
    state_bytes: int = 0
    moved_bins: int = 0
    """Bins this node has taken over since it began, and their bytes."""
    moved_bytes: int = 0
    ready: int = 0
    """The last Expect for whose bins all memory is there."""
    loads: tuple[BinLoad, ...] = field(default=())
    """Of the bins it owns; empty when not asked for."""
    sources: tuple[SourceReport, ...] = ()
    """The rates of the sources that it reads."""
    tasks: tuple[TaskReport, ...] = ()
    """Of every sub-pipeline, in their order."""
    other_cpu_s: float = 0.0
    """Processor time that is in none of `tasks`, since the engine was built."""
    rest_cpu_s: float = 0.0
    """What of that its workers used to look for work, and for links to other nodes."""
    cpu_ratio: float = 0.0
    """CPU use of its host, that is of the cores it may use, by all processes, 0..1; 0 until it was
    measured."""
    affinity_cores: int = 0
    """How many these are."""
    most_cores: float = 0.0
    """How many its threads and worker processes can use."""
    crowd: float = 0.0
    """Threads that want to run, for each core of the machine."""
    process_cpu_s: float = 0.0
    """Processor time of its process and of its worker processes."""
    rss_bytes: int = 0
    workers: int = 0
    """Workers that are not suspended now."""
    p50_ms: float = 0.0
    """Latencies of the records delivered since the report before; on nodes with sinks."""
    p99_ms: float = 0.0
    max_ms: float = 0.0
    links_down: tuple[Rank, ...] = ()
    """Peers to which there is no connection now."""
    refused_links: int = 0
    """Connections to its data port that did not prove that they belong to the job."""
    error: str = ""
    """In one line, why it failed."""
    satisfied: bool = False
    """A sink has all it wanted: the job may end."""
    attempt: int = 0
    """The attempt that this is about: of the last Halt, Survey or Prepare."""
    restored: int = 0
    """The attempt for which all that its Prepare asked for is loaded."""
    saved: PartRef | None = None
    """The last part it has in the store."""
    save_failed: int = 0
    """The last mark for which it could not save its part, and why."""
    save_error: str = ""
    finished: tuple[Finished, ...] = ()
    """The slow commands that came to their end: the last one of each kind, of this attempt."""
    lost_peer: bool = False
    """Of phase `failed`: not a record is bad, but links or other nodes are; or loading a
    checkpoint failed for now. A job with checkpoints goes back to its last one."""
