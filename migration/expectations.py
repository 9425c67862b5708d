"""What each node is told of a plan before its first step.

Every node that has a part in the plan hears of its own moves alone, so what is told does not grow
with the number of nodes. Nothing moves by it: a plan may end early, or be followed by another.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from plait.protocol.messages import Expect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plait.migration.bins import Change
    from plait.migration.plan import Plan
    from plait.protocol.messages import Rank


def expectations(plan: Plan, number: int) -> dict[Rank, Expect]:
    """The Expect of this number for each node that sends or gets a bin, by rank."""
    found: defaultdict[Rank, list[Change]] = defaultdict(list)
    for step in plan.steps:
        for move in step.moves:
            found[move.source].append(move)
            found[move.target].append(move)
    return {rank: expect(number, found[rank]) for rank in sorted(found)}


def expect(number: int, moves: Iterable[Change]) -> Expect:
    moves = tuple(moves)
    return Expect(
        number=number,
        bins=tuple(move.bin for move in moves),
        sources=tuple(move.source for move in moves),
        targets=tuple(move.target for move in moves),
    )


def receivers(plan: Plan) -> frozenset[Rank]:
    """Who gets bins."""
    return frozenset(move.target for step in plan.steps for move in step.moves)
