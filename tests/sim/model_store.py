"""A folder of checkpoints, a decider and a follower as a model, and what must always hold of them.

Every write is one step, or fails. The decider keeps how far it has delivered, and refuses writers
that were fenced; the follower shows what was published last. `judge` looks at all of it after every
step: what is visible can be gone back to, and was never delivered twice or left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.nodes import Violation

if TYPE_CHECKING:
    from plait.protocol.checkpoint_messages import Mark, Seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    number: int
    parent: int
    epoch: int
    claim: int
    bins: frozenset[int]
    last: bool = False
    finished: bool = False


@dataclass(slots=True)
class ModelStore:
    """What is in the world outside of the nodes."""

    bins: int
    decides: bool = True
    """There is a decider; if not, the manifest is what counts."""
    claims: int = 0
    chosen: dict[int, int] = field(default_factory=dict)
    """What each claim went on from."""
    parts: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    newest: int = 0
    delivered: int | None = None
    """The decider's boundary; None: it never delivered."""
    fence: int = 0
    followed: int = 0
    """The follower's boundary."""
    savepoints: dict[str, int] = field(default_factory=dict)
    """Numbers of manifests by name."""
    starts: list[tuple[int, str]] = field(default_factory=list)
    """Of each claim what its survey was told, if that was not to take the newest."""
    story: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.story.append(text)

    def wrong(self, text: str) -> Violation:
        return Violation("\n  ".join([text, *self.story[-40:]]))

    def claim(self) -> int:
        self.claims += 1
        self.tell(f"claim {self.claims}")
        return self.claims

    def write_part(self, claim: int, mark: Mark, rank: int, bins: frozenset[int]) -> None:
        self.parts[mark.number, rank] = bins
        self.tell(f"part {mark.number} of node {rank} by claim {claim}: {len(bins)} bins")

    def seal(self, claim: int, seal: Seal) -> None:
        """The manifest appears. It may come late, from a writer that nobody listens to any more."""
        found: list[int] = []
        for part in seal.parts:
            if (seal.number, part.rank) not in self.parts:
                raise self.wrong(f"{seal.number} is sealed without the part of node {part.rank}")
            found += self.parts[seal.number, part.rank]
        if not seal.finished and sorted(found) != list(range(self.bins)):
            raise self.wrong(f"{seal.number} is sealed with bins {sorted(found)}")
        manifest = Manifest(
            number=seal.number,
            parent=seal.parent,
            epoch=seal.epoch,
            claim=claim,
            bins=frozenset(found),
            last=seal.last,
            finished=seal.finished,
        )
        known = self.manifests.get(seal.number)
        if known is not None and known != manifest:
            raise self.wrong(f"{seal.number} is sealed twice, differently")
        if claim == self.claims and claim in self.chosen:
            if seal.parent not in self.manifests or not self.counts(seal.parent):
                raise self.wrong(f"{seal.number} has the parent {seal.parent}, which is not there")
            newer = [m.number for m in self.manifests.values() if m.claim == claim]
            if any(seal.parent < number < seal.number for number in newer):
                raise self.wrong(f"{seal.number} passes over one of {newer}")
            if manifest.epoch <= self.manifests[seal.parent].epoch:
                raise self.wrong(f"{seal.number} is not behind its parent")
        self.manifests[seal.number] = manifest
        self.newest = max(self.newest, seal.number)
        self.tell(f"seal {seal.number} at {seal.epoch} by claim {claim}, parent {seal.parent}")
        self.judge()

    def counts(self, number: int) -> bool:
        """Whether a manifest is on the chain: of the present claim, or before what the claim after
        its own went on from."""
        manifest = self.manifests[number]
        later = [self.chosen[one] for one in sorted(self.chosen) if one > manifest.claim]
        return all(number <= chosen for chosen in later)

    def chain(self) -> list[Manifest]:
        """Newest first."""
        return [self.manifests[n] for n in sorted(self.manifests, reverse=True) if self.counts(n)]

    def deliver(self, claim: int, begin: int, boundary: int) -> str:
        """The decider's transaction: all rows from `begin` to the boundary, and the boundary."""
        if claim < self.fence:
            return f"fenced by {self.fence}"
        at = self.delivered or 0
        if at == boundary:
            return ""  # repeated
        if begin != at:
            raise self.wrong(f"rows of [{begin}, {boundary}) come to a decider that is at {at}")
        if not any(m.epoch == boundary and m.claim == claim for m in self.manifests.values()):
            raise self.wrong(f"{boundary} is delivered before it is sealed")
        self.delivered = boundary
        self.tell(f"deliver up to {boundary} by claim {claim}")
        self.judge()
        return ""

    def follow(self, claim: int, boundary: int) -> None:
        """The follower shows all before the boundary."""
        if self.decides and (self.delivered or 0) < boundary:
            raise self.wrong(f"the follower shows {boundary}, the decider {self.delivered}")
        self.followed = max(self.followed, boundary)
        self.tell(f"follow up to {boundary} by claim {claim}")
        self.judge()

    def retire(self, number: int, keep: int) -> None:
        kept = [m.number for m in self.chain() if m.number <= number][:keep]
        for old in [n for n in self.manifests if n < min(kept, default=0)]:
            del self.manifests[old]
        self.tell(f"retire, {sorted(self.manifests)} stay")
        self.judge()

    def choose(self, delivered: int | None, start: str = "") -> Manifest:
        """The newest checkpoint that is not ahead of what is delivered, or what `start` names: then
        the follower has a new target that ends there."""
        chain = self.chain()
        if start:
            self.starts.append((self.claims, start))
            chosen = self.manifests[self.savepoints[start.removeprefix("savepoint:")]]
            self.followed = chosen.epoch
            return chosen
        if not chain:
            if delivered:
                raise self.wrong(f"{delivered} is delivered and there is no checkpoint")
            bins = frozenset(range(self.bins))
            first = Manifest(number=0, parent=0, epoch=0, claim=self.claims, bins=bins)
            self.manifests[0] = first
            return first
        if not self.decides:
            return chain[0]
        for manifest in chain:
            if manifest.epoch <= (delivered or 0):
                return manifest
        raise self.wrong(f"no checkpoint is at {delivered} or before")

    def settle(self, claim: int, manifest: Manifest) -> None:
        """The chain ends here for all claims before; the follower is rolled to it."""
        self.chosen[claim] = manifest.number
        if self.followed > manifest.epoch:
            raise self.wrong(f"the follower shows {self.followed}, and {manifest} was chosen")
        self.followed = manifest.epoch
        self.tell(f"claim {claim} goes on from {manifest.number} at {manifest.epoch}")

    def begin(self, claim: int, epoch: int) -> None:
        """An attempt begins: nothing is left out, and nothing comes twice."""
        if claim != self.claims:
            return  # somebody has claimed since: whatever it does will not count
        if self.decides and (self.delivered or 0) != epoch:
            raise self.wrong(f"claim {claim} begins at {epoch}, delivered is {self.delivered}")
        if self.followed != epoch:
            raise self.wrong(f"claim {claim} begins at {epoch}, shown is {self.followed}")
        self.tell(f"claim {claim} begins at {epoch}")

    def judge(self) -> None:
        """What is visible can be gone back to."""
        epochs = {manifest.epoch for manifest in self.chain()}
        if self.decides and self.delivered is not None and self.delivered not in epochs:
            raise self.wrong(f"{self.delivered} is delivered, and checkpoints are at {epochs}")
        if self.followed and min(epochs, default=0) > self.followed:
            raise self.wrong(f"{self.followed} is shown, and checkpoints are at {epochs}")
