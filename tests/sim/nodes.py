"""A job's nodes as a model: epochs go by, fences are kept, layouts applied, bins move.

No records: an epoch of a bin stands for all of them. The `Ledger` is the judge. It knows for every
bin who has its state and which epoch is next, and raises `Violation` when an epoch of a bin is
processed twice, left out, or by a node that does not have the state; when two nodes route an epoch
differently; and when a node hears of a layout after it has passed its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, assert_never

from plait.protocol.checkpoint_messages import Halt, Publish, Retire, Seal, Survey
from plait.protocol.messages import (
    Answer,
    Begin,
    BinLoad,
    Command,
    Commit,
    Connect,
    Done,
    Drop,
    End,
    Expect,
    Layout,
    Lift,
    NodeReport,
    Peer,
    Prepare,
    Promise,
    Rank,
    Refused,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WINDOW = 8
"""A source is at most so many epochs ahead of what its node has processed: bounded memory."""


class Violation(AssertionError):
    """The model shows that the protocol is broken."""


@dataclass(slots=True)
class Ledger:
    """What has really happened to a job, seen from above."""

    bins: int
    last_epoch: int
    """The sources end before this epoch."""
    owner: list[Rank] = field(default_factory=list)
    """Who has the state of a bin; -1 while it travels."""
    next: list[int] = field(default_factory=list)
    """Which epoch of a bin is to be processed next."""
    routes: dict[int, tuple[Rank, Sequence[Rank]]] = field(default_factory=dict)
    """The first node to emit an epoch, and the owners that it believed in."""
    kept: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The thresholds by which an epoch is shed."""
    emitted: dict[int, set[Rank]] = field(default_factory=dict)
    arrived: dict[tuple[int, Rank], set[int]] = field(default_factory=dict)
    """Bins that have come to a node for a layout's epoch."""

    def begin(self, layout: Layout) -> None:
        if not self.owner:
            self.owner, self.next = list(layout.owners), [layout.epoch] * self.bins

    def emit(self, rank: Rank, epoch: int, layout: Layout, gone: frozenset[Rank]) -> None:
        """A node sends its parts of an epoch."""
        known = self.routes.setdefault(epoch, (rank, layout.owners))
        if known[0] in gone:
            # Its parts do not count: it was dropped before it could hear of a later layout.
            known = self.routes[epoch] = (rank, layout.owners)
        if known[1] is not layout.owners and known[1] != layout.owners:
            raise Violation(f"node {rank} routes epoch {epoch} by other owners than the others")
        if known[0] == rank:
            self.kept[epoch] = layout.keep
        if self.kept.get(epoch, layout.keep) != layout.keep:
            raise Violation(f"node {rank} sheds epoch {epoch} by other thresholds than the others")
        if rank in self.emitted.setdefault(epoch, set()):
            raise Violation(f"node {rank} emits epoch {epoch} twice")
        if rank not in layout.members:
            raise Violation(f"node {rank} emits epoch {epoch} and is no member")
        self.emitted[epoch].add(rank)

    def process(self, rank: Rank, epoch: int, layout: Layout) -> None:
        """A node applies an epoch to all bins that it owns."""
        for bin, owner in enumerate(layout.owners):
            if owner != rank:
                continue
            if self.owner[bin] != rank:
                raise Violation(
                    f"node {rank} processes epoch {epoch} of bin {bin}, whose state is at "
                    f"{self.owner[bin]}"
                )
            if self.next[bin] != epoch:
                raise Violation(
                    f"node {rank} processes epoch {epoch} of bin {bin}, due is {self.next[bin]}"
                )
            self.next[bin] = epoch + 1

    def ship(self, source: Rank, bin: int) -> None:
        if self.owner[bin] != source:
            raise Violation(f"node {source} ships bin {bin}, which is at {self.owner[bin]}")
        self.owner[bin] = -1

    def arrive(self, target: Rank, bin: int, epoch: int) -> None:
        if self.owner[bin] != -1:
            raise Violation(f"bin {bin} arrives at {target} and is at {self.owner[bin]} as well")
        self.owner[bin] = target
        self.arrived.setdefault((epoch, target), set()).add(bin)


Phase = Literal["made", "prepared", "running", "left", "ended", "failed"]


@dataclass(slots=True)
class SimNode:
    """The model of a node's agent. `apply` is called once for each command, unless that very thing
    is under test."""

    rank: Rank
    ledger: Ledger
    ship: Callable[[Rank, Rank, int, int], None]
    """(source, target, bin, epoch): brings a bin to its new owner, later."""
    margin: Callable[[], int]
    phase: Phase = "made"
    epoch: int = 0
    """Emitted next."""
    done: int = 0
    """Processed next."""
    layouts: list[Layout] = field(default_factory=list)
    fences: dict[int, int] = field(default_factory=dict)
    stop_at: int = 1 << 60
    gone: set[Rank] = field(default_factory=set)
    passed: int = -1
    began: int = -1
    moved: int = 0
    expects: list[tuple[int, int]] = field(default_factory=list)
    """Each Expect, and the epoch processed next when its memory is there."""
    stopped: bool = False
    """Its process has ended."""
    frozen: bool = False
    busy: bool = False
    """A call holds its interpreter."""

    def peer(self) -> Peer:
        return Peer(rank=self.rank, host="sim", port=1000 + self.rank)

    def apply(self, command: Command) -> Answer:
        match command:
            case Prepare():
                if self.phase != "made":
                    raise Violation(f"node {self.rank} is prepared twice")
                self.phase = "prepared"
            case Begin(layout=layout):
                if self.phase != "prepared":
                    raise Violation(f"node {self.rank} begins and is {self.phase}")
                self.phase = "running"
                self.layouts = [layout]
                self.epoch = self.done = self.began = layout.epoch
                self.passed = layout.epoch
                self.ledger.begin(layout)
            case Expect(number=number, sources=sources, targets=targets):
                if self.expects and number <= self.expects[-1][0]:
                    raise Violation(f"node {self.rank} expects {number} after {self.expects}")
                if any(self.rank not in pair for pair in zip(sources, targets, strict=True)):
                    raise Violation(f"node {self.rank} hears of moves of others")
                self.expects.append((number, self.done + self.margin()))
            case Promise(round=number):
                if self.phase != "running" or self.epoch >= self.end:
                    return Refused(reason=f"it is {self.phase}, its sources are at their end")
                if number in self.fences:
                    raise Violation(f"node {self.rank} promises round {number} twice")
                self.fences[number] = self.epoch + self.margin()
                return Done(epoch=self.fences[number])
            case Commit(round=number, layouts=layouts, stop_at=stop_at):
                if number not in self.fences:
                    raise Violation(f"node {self.rank} never promised round {number}")
                del self.fences[number]
                self.take(layouts, stop_at)
            case Lift(round=number):
                self.fences.pop(number, None)
            case Drop(ranks=ranks):
                self.gone.update(ranks)
            case End():
                if self.phase != "failed":
                    self.phase = "ended"
            case Connect():
                pass
            case Halt() | Seal() | Publish() | Retire() | Survey():
                raise Violation(f"node {self.rank} has no checkpoints, and is told {command}")
            case _:
                assert_never(command)
        return Done()

    def take(self, layouts: tuple[Layout, ...], stop_at: int | None) -> None:
        for layout in layouts:
            if layout.epoch < self.epoch:
                raise Violation(
                    f"node {self.rank} has emitted epoch {self.epoch - 1} and hears now of a "
                    f"layout at {layout.epoch}"
                )
            if layout.epoch <= self.layouts[-1].epoch:
                raise Violation(f"node {self.rank}: layouts do not ascend")
            self.layouts.append(layout)
        if stop_at is not None:
            if stop_at < self.epoch:
                raise Violation(f"node {self.rank} is past the common end {stop_at}")
            self.stop_at = stop_at

    @property
    def end(self) -> int:
        return min(self.stop_at, self.ledger.last_epoch)

    def at(self, epoch: int) -> Layout:
        """The layout in force for an epoch."""
        found = self.layouts[0]
        for layout in self.layouts:
            if layout.epoch > epoch:
                break
            found = layout
        return found

    def turn(self) -> None:
        """Go on: emit an epoch if that is allowed, process what is complete."""
        if self.phase != "running" or self.stopped or self.frozen:
            return
        if self.epoch < self.end and self.epoch < min(self.fences.values(), default=1 << 60):
            layout = self.at(self.epoch)
            if self.rank in layout.members and self.epoch - self.done < WINDOW:
                self.ledger.emit(self.rank, self.epoch, layout, frozenset(self.gone))
                self.epoch += 1
        while self.process():
            pass
        if self.phase == "running" and self.done >= self.end and self.epoch >= self.end:
            # Layouts that would hold after the end pass with it.
            self.phase = "ended"

    def process(self) -> bool:
        """The next epoch, if all parts of it and all bins that come with it are there."""
        epoch = self.done
        layout = self.at(epoch)
        if layout.epoch == epoch and self.passed < epoch:
            self.pass_on(layout)
        if self.rank not in layout.members:
            self.phase = "left"
            return False
        if epoch >= self.end or epoch >= self.epoch:
            return False
        members = [rank for rank in layout.members if rank not in self.gone]
        if not self.ledger.emitted.get(epoch, set()).issuperset(members):
            return False
        if layout.epoch == epoch and not self.has_all(layout):
            return False
        self.ledger.process(self.rank, epoch, layout)
        self.done += 1
        return True

    def pass_on(self, layout: Layout) -> None:
        """Ship the bins that the layout takes from this node."""
        before = self.layouts[self.layouts.index(layout) - 1]
        self.passed = layout.epoch
        for bin, (old, new) in enumerate(zip(before.owners, layout.owners, strict=True)):
            if old == self.rank and new != self.rank:
                self.ledger.ship(self.rank, bin)
                self.ship(self.rank, new, bin, layout.epoch)

    def has_all(self, layout: Layout) -> bool:
        """Whether the bins that this layout brings are in."""
        place = self.layouts.index(layout)
        if place == 0:
            return True
        before = self.layouts[place - 1]
        wanted = {
            bin
            for bin, (old, new) in enumerate(zip(before.owners, layout.owners, strict=True))
            if new == self.rank and old != self.rank
        }
        have = self.ledger.arrived.get((layout.epoch, self.rank), set())
        if wanted <= have:
            self.moved += len(wanted)
            return True
        return False

    def report(self, loads: bool) -> NodeReport:
        weights: tuple[BinLoad, ...] = ()
        if loads and self.layouts:
            weights = tuple(
                BinLoad(bin=bin, records=10 + bin % 7, size_bytes=400_000 * (1 + bin % 4))
                for bin, owner in enumerate(self.layouts[-1].owners)
                if owner == self.rank
            )
        return NodeReport(
            rank=self.rank,
            phase=self.phase,
            epoch=self.epoch,
            error="a record is bad" if self.phase == "failed" else "",
            # What is before `done` has passed; the layout at `done` only with its first epoch.
            delivered_epoch=self.done - 1,
            moved_bins=self.moved,
            ready=max((number for number, at in self.expects if at <= self.done), default=0),
            loads=weights,
        )
