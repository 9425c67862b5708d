"""The map wanted next: who should own what, when nodes join, leave, or carry too much.

`spread` gives every node its share by capacity and moves as little as it can: bins leave only nodes
that have more than their share, or that are going. Without measured loads all bins weigh the same
and the number of moves is the smallest possible; with them the bins that fit best go. Bins without
load weigh nothing, and may get load later: every node has its share of them by number, whatever it
has of the others. The same facts give the same map, always.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from plait.errors import JobError
from plait.migration.bins import BinMap, Change

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from plait.protocol.messages import Rank

TOLERANCE_RATIO = 0.05
"""Measured loads are estimates: a node so near to its share is left alone."""
EVEN_RATIO = 8.0
"""Loads are even if the heaviest bin has at most so many times the mean. Then typical bins go, and
nodes have about as many of them; where some bins are much heavier than others, these go first, and
few moves are enough."""


def spread(
    current: BinMap,
    nodes: Mapping[Rank, float],
    loads: Mapping[int, float] | None = None,
    leaving: AbstractSet[Rank] = frozenset(),
) -> BinMap:
    """The next map for these nodes and their capacities; `current` itself if nothing has to move.

    Nodes in `leaving`, and owners that are not in `nodes`, keep nothing.
    """
    shares = shares_of(nodes, leaving)
    measured = sum(loads.values()) if loads else 0.0
    if loads is None or measured <= 0.0:
        found = by_count(current, shares, range(current.bins))
    else:
        weights = {bin: load / measured for bin, load in loads.items() if load > 0.0}
        idle = [bin for bin in range(current.bins) if bin not in weights]
        found = [*by_weight(current, shares, weights), *by_count(current, shares, idle)]
        found.sort(key=lambda change: change.bin)
    return current.with_changes(found) if found else current


def shares_of(nodes: Mapping[Rank, float], leaving: AbstractSet[Rank]) -> dict[Rank, float]:
    """The part of everything, 0..1, that each staying node should have, by rank."""
    staying = {rank: nodes[rank] for rank in sorted(nodes) if rank not in leaving}
    if not staying:
        raise JobError("no node is left to own the bins: keep or add at least one node")
    if min(staying.values()) < 0.0:
        raise JobError(f"capacities of nodes must not be below zero, got {staying}")
    total = sum(staying.values())
    if total == 0.0:
        return dict.fromkeys(staying, 1.0 / len(staying))
    return {rank: capacity / total for rank, capacity in staying.items()}


def by_count(current: BinMap, shares: Mapping[Rank, float], which: Sequence[int]) -> list[Change]:
    """The fewest moves after which every node has its share of these bins, rounded down or up."""
    owned: dict[Rank, list[int]] = {rank: [] for rank in shares}
    going: list[tuple[int, Rank]] = []
    for bin in which:
        owner = current.owners[bin]
        if owner in owned:
            owned[owner].append(bin)
        else:
            going.append((bin, owner))
    quota = quotas(len(which), shares, {rank: len(bins) for rank, bins in owned.items()})
    for rank, bins in owned.items():
        staying = evenly(bins, min(quota[rank], len(bins)))
        going.extend((bin, rank) for bin in bins if bin not in staying)
    going.sort()
    rooms = in_turn({rank: quota[rank] - len(bins) for rank, bins in owned.items()})
    return [
        Change(bin=bin, source=source, target=target)
        for (bin, source), target in zip(going, rooms, strict=True)
    ]


def evenly(bins: list[int], count: int) -> set[int]:
    """So many of the bins, spread over all of them: the workers of a node share its bins out by
    their first bits."""
    return {bins[i * len(bins) // count] for i in range(count)}


def in_turn(rooms: Mapping[Rank, int]) -> list[Rank]:
    """Every node as often as it has room, the nodes taking turns."""
    found = ((turn, rank) for rank, count in rooms.items() for turn in range(count))
    return [rank for _, rank in sorted(found)]


def quotas(bins: int, shares: Mapping[Rank, float], have: Mapping[Rank, int]) -> dict[Rank, int]:
    """How many bins each node should have. Whoever has more than its share rounds up first: each
    such bin is one that stays."""
    exact = {rank: bins * share for rank, share in shares.items()}
    # The addend keeps 2.9999999 from losing a bin to the arithmetic.
    quota = {rank: int(share + 1e-9) for rank, share in exact.items()}
    order = sorted(
        (rank for rank in shares if exact[rank] - quota[rank] > 1e-9),
        key=lambda rank: (have[rank] <= quota[rank], quota[rank] - exact[rank], rank),
    )
    for rank in order[: bins - sum(quota.values())]:
        quota[rank] += 1
    return quota


@dataclass(slots=True)
class Load:
    """A node while loads are spread. `kept` are the bins that may still go, lightest first, with
    weight, place among equals and number."""

    rank: Rank
    share: float
    """The weight it should have."""
    weight: float = 0.0
    kept: list[tuple[float, int, int]] = field(default_factory=list)
    bins: int = 0
    """How many bins with load it has."""
    bins_share: float | None = None
    """How many it should have; None: that does not matter."""

    @property
    def spare_bins(self) -> float:
        """How many bins it has too few."""
        return 0.0 if self.bins_share is None else self.bins_share - self.bins

    @property
    def ratio(self) -> float:
        """1 at its share. A node with no share is overloaded by anything."""
        if self.share > 0.0:
            return self.weight / self.share
        return math.inf if self.kept else 0.0


def by_weight(
    current: BinMap, shares: Mapping[Rank, float], weights: Mapping[int, float]
) -> list[Change]:
    """Moves of bins with load after which no node is far from its share, as far as whole bins
    allow."""
    total = sum(weights.values())
    width = (current.bins - 1).bit_length()
    even = max(weights.values()) * len(weights) <= EVEN_RATIO * total
    loads = {
        rank: Load(
            rank=rank, share=share * total, bins_share=share * len(weights) if even else None
        )
        for rank, share in shares.items()
    }
    homeless: list[tuple[float, int]] = []
    for bin in sorted(weights):
        owner = current.owners[bin]
        if owner in loads:
            loads[owner].weight += weights[bin]
            loads[owner].bins += 1
            loads[owner].kept.append((weights[bin], mirrored(bin, width), bin))
        else:
            homeless.append((weights[bin], bin))
    for one in loads.values():
        one.kept.sort()
    found = dealt([*settle(homeless, loads), *relieve(loads)], current, weights)
    return [
        Change(bin=bin, source=current.owners[bin], target=target) for bin, target in sorted(found)
    ]


def dealt(
    found: list[tuple[int, Rank]], current: BinMap, weights: Mapping[int, float]
) -> list[tuple[int, Rank]]:
    """The same moves, but equal bins of one node are spread evenly over all its takers: taken in
    mirrored order by nodes in turn, one would get the first half of the bins, another the last."""
    alike: defaultdict[tuple[Rank, float], list[tuple[int, Rank]]] = defaultdict(list)
    for bin, target in found:
        alike[current.owners[bin], weights[bin]].append((bin, target))
    after: list[tuple[int, Rank]] = []
    for moves in alike.values():
        bins = sorted(bin for bin, _ in moves)
        after.extend(zip(bins, mixed(Counter(target for _, target in moves)), strict=True))
    return after


def mixed(counts: Mapping[Rank, int]) -> list[Rank]:
    """Every node so many times, each at even distances."""
    found = (((2 * i + 1) / count, rank) for rank, count in counts.items() for i in range(count))
    return [rank for _, rank in sorted(found)]


def mirrored(bin: int, width: int) -> int:
    """The last bit first. Equals go in this order: whatever part of them goes is spread over the
    first bits, by which the workers of a node share its bins out."""
    return int(f"{bin:0{width}b}"[::-1], 2)


def settle(homeless: list[tuple[float, int]], loads: Mapping[Rank, Load]) -> list[tuple[int, Rank]]:
    """New homes for the bins of leaving nodes, the heaviest first, each where most room is."""
    found: list[tuple[int, Rank]] = []
    heap = [(one.ratio, one.rank) for one in loads.values() if one.share > 0.0]
    heapify(heap)
    for weight, bin in sorted(homeless, key=lambda pair: (-pair[0], pair[1])):
        _, rank = heappop(heap)
        loads[rank].weight += weight
        loads[rank].bins += 1
        heappush(heap, (loads[rank].ratio, rank))
        found.append((bin, rank))
    return found


def relieve(loads: Mapping[Rank, Load]) -> list[tuple[int, Rank]]:
    """Bins from the most to the least loaded node, while that makes the worse of the two better.

    A bin is moved once, so this ends; a node that can give nothing useful is passed over.
    """
    found: list[tuple[int, Rank]] = []
    givers: list[tuple[float, Rank]] = []
    takers: list[tuple[float, Rank]] = []

    def put(one: Load) -> None:
        heappush(givers, (-one.ratio, one.rank))
        if one.share > 0.0:
            heappush(takers, (one.ratio, one.rank))

    for one in loads.values():
        put(one)
    while givers:
        giver, taker = loads[givers[0][1]], loads[takers[0][1]]
        high, low = -givers[0][0], takers[0][0]
        # A node that changed was put in again: its old entries are dropped when they come up.
        if high != giver.ratio:
            heappop(givers)
            continue
        if low != taker.ratio:
            heappop(takers)
            continue
        if high <= 1.0 or (high <= 1.0 + TOLERANCE_RATIO and low >= 1.0 - TOLERANCE_RATIO):
            break
        at = choose(giver, taker)
        if at is None:
            heappop(givers)
            continue
        weight, _, bin = giver.kept.pop(at)
        giver.weight -= weight
        taker.weight += weight
        giver.bins -= 1
        taker.bins += 1
        found.append((bin, taker.rank))
        put(giver)
        put(taker)
    return found


def choose(giver: Load, taker: Load) -> int | None:
    """Which of the giver's bins: the one nearest to what the one has too much and the other has
    room for, in one bin or in as many as should go, if that makes the worse of the two better."""
    if giver.rank == taker.rank or not giver.kept:
        return None
    wanted = min(giver.weight - giver.share, taker.share - taker.weight)
    if giver.bins_share is not None:
        # So heavy is each of those that it has too many: the numbers become even as well.
        wanted /= max(min(giver.bins - giver.bins_share, taker.spare_bins), 1.0)
    above = bisect_right(giver.kept, wanted, key=lambda kept: kept[0])
    near = sorted(
        range(max(above - 1, 0), min(above + 1, len(giver.kept))),
        key=lambda at: abs(giver.kept[at][0] - wanted),
    )
    for at in near:
        if (taker.weight + giver.kept[at][0]) / taker.share < giver.ratio:
            return at
    return None
