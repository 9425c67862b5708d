"""What the coordinator tells the nodes of a job, and what they answer.

A job runs on *nodes*, numbered by *rank* from 0; a rank is never used twice. Every node runs the
whole pipeline on its share of the records. Who does what is a `Layout`, valid from an epoch on: the
members, the owner of every bin, the readers of the sources. A change of anything is a new layout.

An epoch is agreed on in a *round* of two steps. `Promise`: every member says up to which epoch it
will go without hearing more (its fence), and keeps to that. `Commit`: the new layouts, the first of
them at the greatest of those fences, go to all members; the fences are lifted. So every
node knows a layout before any node reaches its epoch, and nobody has to stop for it. Every
message may be sent again: a node answers a repeated one as it did the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Rank = int

EVERYONE = -1
"""As the reader of a source: every member reads its own slice of each epoch."""


Changes = tuple[tuple[int, Rank], ...]
"""Bins and their new owners."""


MOST_BEFORE = 1024
"""So many maps of owners may stand behind one that has not been looked at."""


class Owners(Sequence[Rank]):
    """The owner of each bin, known by what changed since the map it was made from.

    The layouts of a chunk differ in a few bins of perhaps a hundred thousand. So a map is made in
    whole only when somebody looks at it, and a Commit travels as the first one and what changes
    from each to the next.

    >>> first = Owners((0, 0, 1))
    >>> second = first.changed([(1, 1)])
    >>> second, changes_between(first, second)
    ((0, 1, 1), ((1, 1),))
    """

    __slots__ = ("before", "behind", "changes", "found", "mark", "origin", "size")

    def __init__(self, owners: Iterable[Rank] = ()) -> None:
        self.found: tuple[Rank, ...] | None = tuple(owners)
        self.size = len(self.found)
        self.mark = object()
        """Its own, not the map itself: a map that was looked at keeps none alive."""
        self.origin: object = None
        self.changes: Changes = ()
        self.before: Owners | None = None
        self.behind = 0

    def changed(self, changes: Iterable[tuple[int, Rank]]) -> Owners:
        """These owners with some bins given to others."""
        made = Owners()
        made.size, made.origin, made.changes = self.size, self.mark, tuple(changes)
        made.found, made.before = None, self
        made.behind = 0 if self.found is not None else self.behind + 1
        if made.behind > MOST_BEFORE:
            made.whole()
        return made

    def whole(self) -> tuple[Rank, ...]:
        """All of them; the maps before it are not needed any more."""
        if self.found is None:
            chain = [self]
            while (before := chain[-1].before) is not None and before.found is None:
                chain.append(before)
            assert before is not None
            assert before.found is not None
            owners = list(before.found)
            for one in reversed(chain):
                for bin, owner in one.changes:
                    owners[bin] = owner
            self.found, self.before, self.behind = tuple(owners), None, 0
        return self.found

    @overload
    def __getitem__(self, bin: int) -> Rank: ...
    @overload
    def __getitem__(self, bin: slice) -> tuple[Rank, ...]: ...
    def __getitem__(self, bin: int | slice) -> Rank | tuple[Rank, ...]:
        return self.whole()[bin]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Rank]:
        return iter(self.whole())

    def count(self, owner: object) -> int:
        return self.whole().count(owner)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Owners):
            return other is self or self.whole() == other.whole()
        return self.whole() == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.whole())

    def __repr__(self) -> str:
        return repr(self.whole())

    def __reduce__(self) -> tuple[Any, ...]:
        return Owners, (self.whole(),)


def changes_between(before: Sequence[Rank], after: Sequence[Rank]) -> Changes | None:
    """What makes the second of the first, if that is known without a comparison."""
    if after is before:
        return ()
    if isinstance(before, Owners) and isinstance(after, Owners) and after.origin is before.mark:
        return after.changes
    return None


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
    copies: tuple[tuple[int, Rank], ...] = ()
    """Bins whose state the owner copies to another node in the background from this epoch on: when
    a later layout gives that node the bin, only what changed since is sent."""
    epoch_records: int = 0
    """Records of each source in an epoch from here on; 0: as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Where a node listens."""

    rank: Rank
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Build the engine for this job and connect to the peers; do not start yet.

    The job itself (graph, settings, token) was given to the node when it was made.
    """

    rank: Rank
    layout: Layout
    """The layout in force when the node begins; its epoch is not known yet for a node that
    joins."""
    peers: tuple[Peer, ...]
    """All members, this node left out."""
    home: Rank
    """The node that has the sinks of a job in total order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """A new node: connect to it."""

    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Start, with the records of this layout's epoch."""

    layout: Layout


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
    """New layouts, in the order of their epochs; or the common end of all sources."""

    round: int
    layouts: tuple[Layout, ...] = ()
    stop_at: int | None = None
    """All sources end before this epoch; what was read is delivered."""

    def __reduce__(self) -> tuple[Any, ...]:
        return commit_of, (self.round, self.stop_at, in_short(self.layouts))


def in_short(layouts: Iterable[Layout]) -> tuple[tuple[Layout, Changes | None], ...]:
    """Each layout without its owners if they are known by what changed since the one before."""
    found: list[tuple[Layout, Changes | None]] = []
    before: Sequence[Rank] | None = None
    for layout in layouts:
        changes = None if before is None else changes_between(before, layout.owners)
        found.append((layout if changes is None else replace(layout, owners=()), changes))
        before = layout.owners
    return tuple(found)


def commit_of(
    number: int, stop_at: int | None, short: tuple[tuple[Layout, Changes | None], ...]
) -> Commit:
    """A Commit from what it travels as."""
    layouts: list[Layout] = []
    owners = Owners()
    for layout, changes in short:
        if changes is None:
            owners = Owners(layout.owners)
        elif changes:
            owners = owners.changed(changes)
        layouts.append(replace(layout, owners=owners))
    return Commit(round=number, layouts=tuple(layouts), stop_at=stop_at)


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


Command = Prepare | Connect | Begin | Expect | Promise | Commit | Lift | Drop | End


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
    cpu_ratio: float = 0.0
    """CPU use of the whole machine, all processes, 0..1."""
    process_cpu_s: float = 0.0
    rss_bytes: int = 0
    workers: int = 0
    """Workers that are not suspended now."""
    p50_ms: float = 0.0
    """Latencies of the records delivered since the report before; on nodes with sinks."""
    p99_ms: float = 0.0
    max_ms: float = 0.0
    links_down: tuple[Rank, ...] = ()
    """Peers to which there is no connection now."""
    error: str = ""
    """In one line, why it failed."""
    satisfied: bool = False
    """A sink has all it wanted: the job may end."""
