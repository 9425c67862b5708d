"""Model nodes of a job with checkpoints: they save at marks, seal, publish, survey and go back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plait.protocol.checkpoint_messages import (
    Finished,
    Halt,
    Mark,
    PartRef,
    Publish,
    Retire,
    Seal,
    Survey,
    Surveyed,
)
from plait.protocol.messages import Begin, Commit, Done, Prepare, Refused
from tests.sim.nodes import SimNode, Violation

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from plait.protocol.checkpoint_messages import SlowCommand
    from plait.protocol.messages import Answer, Command, NodeReport
    from tests.sim.model_store import ModelStore
    from tests.sim.nodes import Ledger


CLAIMED = "another attempt has claimed the folder"
DOUBTED = "one that was given up is there after all"


@dataclass(frozen=True, slots=True)
class Bugs:
    """What a node does wrong, on purpose."""

    survey_first: bool = False
    """It looks at what is delivered before it claims and fences."""
    follower_first: bool = False
    absence_is_zero: bool = False


@dataclass(slots=True, kw_only=True)
class SavingNode(SimNode):
    store: ModelStore
    ledger_of: Callable[[str], Ledger]
    """The judge of an attempt, by its token."""
    later: Callable[[float, Callable[[], None]], None]
    random: Random
    bugs: Bugs = field(default_factory=Bugs)
    errors: Callable[[], bool] = lambda: False
    """Whether the store is away now."""
    stale: Callable[[], bool] = lambda: False
    """Whether the decider does not know how far it has delivered."""
    attempt: int = 0
    restored: int = 0
    claim: int = 0
    base: int = 0
    """Up to here the sinks here have delivered."""
    marks: list[Mark] = field(default_factory=list)
    marked: int = 0
    """The newest mark: older ones were given up."""
    unsaved: set[int] = field(default_factory=set)
    """Marks of this attempt that were heard of and whose parts are neither saved nor failed."""
    saved: PartRef | None = None
    save_failed: int = 0
    finished: dict[str, Finished] = field(default_factory=dict)
    seals: dict[int, Seal] = field(default_factory=dict)

    def apply(self, command: Command) -> Answer:
        match command:
            case Halt(attempt=attempt):
                return self.halt(attempt)
            case Prepare(attempt=attempt) if attempt < self.attempt:
                return Refused(reason=f"attempt {attempt} is over")
            case Prepare():
                answer = SimNode.apply(self, command)
                self.load(command)
                return answer
            case Begin(layout=layout, joins=joins):
                if not joins and self.restored != self.attempt:
                    raise Violation(f"node {self.rank} begins before it has loaded its state")
                if not joins:
                    self.store.begin(self.claim, layout.epoch)
                return SimNode.apply(self, command)
            case Commit(mark=mark) if mark is not None:
                return self.set_mark(command, mark)
            case Seal() | Publish() | Retire() | Survey():
                self.work(command)
                return Done()
            case _:
                return SimNode.apply(self, command)

    def halt(self, attempt: int) -> Answer:
        """As a fresh node; what the store is asked for may still come to pass, untold."""
        self.phase = "made"
        self.attempt, self.restored = attempt, 0
        self.epoch = self.done = 0
        self.layouts, self.fences, self.expects = [], {}, []
        self.stop_at, self.passed, self.began = 1 << 60, -1, -1
        self.gone, self.marks, self.unsaved = set(), [], set()
        self.saved, self.save_failed, self.finished = None, 0, {}
        return Done()

    def soon(self, do: Callable[[], None]) -> None:
        """After a while, when the node is not frozen; nothing if its process has ended."""

        def run() -> None:
            if self.stopped:
                return
            if self.frozen:
                self.later(0.02, run)
                return
            do()

        self.later(self.random.uniform(0.002, 0.15), run)

    def load(self, command: Prepare) -> None:
        self.attempt = command.attempt
        self.ledger = self.ledger_of(command.token)
        restore = command.restore
        if restore is None:
            raise Violation(f"node {self.rank} is prepared without a checkpoint")
        self.claim, self.base = restore.claim, restore.epoch
        wanted = {bin for bin, owner in enumerate(command.layout.owners) if owner == self.rank}

        def read() -> None:
            if self.attempt != command.attempt:
                return
            if self.errors():
                self.phase = "failed"
                return
            manifest = self.store.manifests.get(restore.number)
            if not wanted:
                self.restored = command.attempt
            elif manifest is None or manifest.epoch != restore.epoch or not wanted <= manifest.bins:
                if self.claim == self.store.claims:
                    raise self.store.wrong(f"node {self.rank} cannot load {restore}")
            else:
                self.restored = command.attempt

        self.soon(read)

    def set_mark(self, command: Commit, mark: Mark) -> Answer:
        if mark.ended:
            if self.phase != "ended":
                raise Violation(f"node {self.rank} is {self.phase} and marks its end")
        else:
            if mark.epoch < self.epoch:
                raise Violation(f"node {self.rank} is at {self.epoch} and hears now of {mark}")
            if any(layout.epoch == mark.epoch for layout in self.layouts):
                raise Violation(f"node {self.rank}: a layout and a mark at {mark.epoch}")
            SimNode.apply(self, command)
        if self.marks and self.marks[-1].number >= mark.number:
            raise Violation(f"node {self.rank}: mark {mark} after {self.marks[-1]}")
        if self.unsaved and not mark.ended:
            raise Violation(f"node {self.rank}: {mark}, and {self.unsaved} are not saved here yet")
        self.marks.append(mark)
        self.marked = mark.number
        self.unsaved.add(mark.number)
        return Done()

    def turn(self) -> None:
        SimNode.turn(self)
        if self.phase == "ended" and not self.stopped and not self.frozen:
            self.take_marks()

    def process(self) -> bool:
        self.take_marks()
        return SimNode.process(self)

    def take_marks(self) -> None:
        while self.marks and (self.done >= self.marks[0].epoch or self.phase == "ended"):
            mark = self.marks.pop(0)
            ledger = self.ledger
            # Bins that a later layout brings may be here already; they are another node's yet.
            owners = ledger.owner if self.phase == "ended" else self.at(self.done).owners
            bins = frozenset(bin for bin, rank in enumerate(owners) if rank == self.rank)
            if any(ledger.owner[bin] != self.rank for bin in bins):
                raise Violation(f"node {self.rank} saves {mark} and bins are at {ledger.owner}")
            if any(ledger.next[bin] != self.done for bin in bins):
                raise Violation(f"node {self.rank} saves {mark} and bins are at {ledger.next}")
            self.save(mark, bins, self.attempt, self.claim)

    def save(self, mark: Mark, bins: frozenset[int], attempt: int, claim: int) -> None:
        def write() -> None:
            if self.attempt != attempt and self.random.random() < 0.5:
                return
            failed = self.errors()
            if not failed:
                self.store.write_part(claim, mark, self.rank, bins)
            if self.attempt == attempt:
                self.unsaved.discard(mark.number)
            if self.attempt != attempt or self.marked > mark.number:
                return
            if failed:
                self.save_failed = mark.number
                return
            path = f"parts/{mark.number}/{self.rank}"
            self.saved = PartRef(
                number=mark.number, rank=self.rank, path=path, digest="", size_bytes=len(bins)
            )

        self.soon(write)

    # What is slow.

    def work(self, command: SlowCommand) -> None:
        attempt, claim = self.attempt, self.claim

        def run() -> None:
            if self.attempt != attempt and self.random.random() < 0.5:
                return
            match command:
                case Seal(number=number):
                    self.tell(attempt, "seal", number, self.seal(claim, command))
                case Publish(number=number):
                    self.publish(attempt, claim, number)
                case Retire(number=number, keep=keep):
                    if claim == self.store.claims:
                        self.store.retire(number, keep)
                    self.tell(attempt, "retire", number, "")
                case Survey():
                    self.survey(command)

        self.soon(run)

    def tell(self, attempt: int, what: str, number: int, error: str) -> None:
        if self.attempt == attempt:
            self.finished[what] = Finished(
                what=what,  # type: ignore[arg-type]
                number=number,
                error=error,
                lost_claim=error in (CLAIMED, DOUBTED),
            )

    def seal(self, claim: int, command: Seal) -> str:
        if claim != self.store.claims:
            return CLAIMED
        own = [m.number for m in self.store.manifests.values() if m.claim == claim]
        if command.number not in own and max(own, default=0) > command.parent:
            return DOUBTED
        failed = self.errors()
        if not failed or self.random.random() < 0.5:
            # A write that fails may have come through all the same.
            self.store.seal(claim, command)
        self.seals[command.number] = command
        return "the store is away" if failed else ""

    def publish(self, attempt: int, claim: int, number: int) -> None:
        """Two steps; anything may happen between them."""
        seal = self.seals.get(number)
        if seal is None:
            raise self.store.wrong(f"node {self.rank} publishes {number}, which it never sealed")
        if claim != self.store.claims:
            self.tell(attempt, "publish", number, CLAIMED)
            return

        def decide() -> str:
            if not self.store.decides:
                return ""
            if self.errors():
                if self.random.random() < 0.5:
                    self.store.deliver(claim, self.base, seal.epoch)
                return "nobody knows whether it was delivered"
            return self.store.deliver(claim, self.base, seal.epoch)

        def follow() -> None:
            self.store.follow(claim, seal.epoch)
            if self.attempt == attempt:
                self.base = seal.epoch
            self.tell(attempt, "publish", number, "")

        if self.bugs.follower_first:
            self.store.follow(claim, seal.epoch)
        if error := decide():
            self.tell(attempt, "publish", number, error)
        else:
            self.soon(follow)

    def survey(self, command: Survey) -> None:
        """Claim, then fence and ask, then choose: three steps."""
        store = self.store
        seen: list[int | None] = []
        attempt = command.attempt
        self.attempt = max(self.attempt, attempt)

        def fence() -> None:
            store.fence = max(store.fence, claim)
            if not self.bugs.survey_first:
                self.ask(seen)
            self.soon(choose)

        def choose() -> None:
            if self.errors() or seen == [None]:
                self.tell(attempt, "survey", attempt, "the store is away")
                return
            if claim != store.claims:
                self.tell(attempt, "survey", attempt, CLAIMED)
                return
            manifest = store.choose(seen[0], command.start)
            store.settle(claim, manifest)
            found = Surveyed(
                lineage="lineage",
                claim=claim,
                number=manifest.number,
                epoch=manifest.epoch,
                newest=store.newest,
                last=manifest.last,
                finished=manifest.finished,
            )
            if self.attempt in (0, attempt):
                done = Finished(what="survey", number=attempt, found=found)
                self.finished["survey"] = done

        if self.bugs.survey_first:
            self.ask(seen)
            claim = -1

            def late() -> None:
                nonlocal claim
                claim = store.claim()
                fence()

            self.soon(late)
            return
        claim = store.claim()
        self.soon(fence)

    def ask(self, seen: list[int | None]) -> None:
        """What the decider says it has delivered: a number, or (wrongly) nothing."""
        if self.stale():
            seen.append(0 if self.bugs.absence_is_zero else None)
        else:
            seen.append(self.store.delivered or 0)

    def report(self, loads: bool) -> NodeReport:
        report = SimNode.report(self, loads)
        failed = self.phase == "failed" and self.restored != self.attempt
        return replace(
            report,
            attempt=self.attempt,
            restored=self.restored,
            saved=self.saved,
            save_failed=self.save_failed,
            save_error="the store is away" if self.save_failed else "",
            finished=tuple(self.finished.values()),
            lost_peer=failed,
        )
