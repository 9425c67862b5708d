"""Bin maps: which node owns each bin.

A keyed operator's state is split into 2^k bins by the high bits of the key's hash, and one map
holds for all operators of a job. A map is never changed, a new one with a higher version replaces
it, so every bin has exactly one owner in every version.

    >>> initial(8, (0, 1)).owners
    (0, 1, 0, 1, 0, 1, 0, 1)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

from plait.errors import InternalError, JobError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.protocol.messages import Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A bin that has another owner in a later map."""

    bin: int
    source: Rank
    target: Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class BinMap:
    """The owner of every bin."""

    version: int
    owners: tuple[Rank, ...]

    @property
    def bins(self) -> int:
        return len(self.owners)

    def counts(self) -> dict[Rank, int]:
        """How many bins each owner has, by rank. Nodes that own none are not in it."""
        return dict(sorted(Counter(self.owners).items()))

    def of(self, rank: Rank) -> tuple[int, ...]:
        """The bins of a node, ascending."""
        return tuple(bin for bin, owner in enumerate(self.owners) if owner == rank)

    def with_changes(self, changes: Iterable[Change]) -> BinMap:
        """The next version, with these bins at their targets."""
        owners = list(self.owners)
        for one in changes:
            if owners[one.bin] != one.source:
                raise InternalError(
                    f"bin {one.bin} is to move from node {one.source} to node {one.target}, "
                    f"but node {owners[one.bin]} owns it"
                )
            owners[one.bin] = one.target
        return replace(self, version=self.version + 1, owners=tuple(owners))


def changes(before: BinMap, after: BinMap) -> tuple[Change, ...]:
    """What has to move, by bin."""
    if before.bins != after.bins:
        raise InternalError(f"maps of {before.bins} and of {after.bins} bins have no difference")
    return tuple(
        Change(bin=bin, source=source, target=target)
        for bin, (source, target) in enumerate(zip(before.owners, after.owners, strict=True))
        if source != target
    )


def initial(
    bins: int, ranks: Sequence[Rank], weights: Mapping[Rank, float] | None = None
) -> BinMap:
    """The first map of a job: every node's bins are spread over all of them, as many as its weight.

    Stripes, not ranges: the workers of a node share its bins out by their first bits, so a node
    with one range of bins would keep one worker busy and let the others rest.
    """
    nodes = sorted(set(ranks))
    if not nodes:
        raise JobError("a job needs at least one node")
    shares = [1.0 if weights is None else weights.get(rank, 0.0) for rank in nodes]
    if min(shares) < 0.0:
        raise JobError(f"weights of nodes must not be below zero, got {shares}")
    total = sum(shares)
    if total == 0.0:
        shares, total = [1.0] * len(nodes), float(len(nodes))
    # Every node takes a bin each total / share of them; who is due first is next.
    due = [(total / share / 2, i) for i, share in enumerate(shares) if share > 0.0]
    heapify(due)
    owners: list[Rank] = []
    for _ in range(bins):
        at, i = due[0]
        heapreplace(due, (at + total / shares[i], i))
        owners.append(nodes[i])
    return BinMap(version=0, owners=tuple(owners))


def singleton_bin(operator: int, bins: int) -> int:
    """The bin at which a stateful operator without a key counts: it moves when that bin moves.

    Native code has the same formula; 32-bit arithmetic that wraps.
    """
    return ((operator * 2654435761) & 0xFFFFFFFF) % bins
