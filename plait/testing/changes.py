"""What can happen to the nodes of a job while it runs, and the layouts that make it happen.

Pure: a change and the layout in force in, new layouts out. Random changes come from a seeded source
alone, so that a seed repeats them as far as the job's own pace allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from plait.protocol.keeps import KEEP_ALL

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from plait.protocol.messages import Layout, Rank

How = Literal["all_at_once", "fluid", "optimised", "abandoned", "astray"]
"""Bins change their owner in one layout; one after the other; or are copied ahead, then fluid. Two
that come to nothing: copied ahead, and stay; copied ahead, and go to yet another node."""
GOOD_WAYS: tuple[How, ...] = ("all_at_once", "fluid", "optimised")
ALL_WAYS: tuple[How, ...] = (*GOOD_WAYS, "optimised", "abandoned", "astray")

MOST_NODES = 5
"""So many nodes at most are ever drawn for a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Bins get new owners."""

    owners: Mapping[int, Rank]
    how: How = "all_at_once"
    gap: int = 1
    """Epochs between two bins, and between a copy and its bin's move."""
    at: int | None = None
    """Not before this epoch; None: now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A new node, which then gets some bins."""

    bins: Sequence[int] = ()
    how: How = "all_at_once"
    gap: int = 1
    at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A node goes, after its bins have gone to the others."""

    rank: Rank
    how: How = "all_at_once"
    gap: int = 1
    at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """The connections between two nodes break; they come back."""

    one: Rank
    other: Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """All sources end at a common epoch, before their own end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """So much of each query is kept from now on: thresholds, in the order of the sinks."""

    thresholds: tuple[int, ...]
    at: int | None = None


SaveStep = Literal["marked", "saved", "sealed", "published"]
"""How far a checkpoint comes."""
RecoveryStep = Literal["surveyed", "loaded", "begun"]
"""How far an attempt comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A checkpoint, or what there is of it when something else happens."""

    upto: SaveStep = "published"
    between: Move | None = None
    """Bins move between the mark and the end."""
    at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Nodes are gone at once, and the job goes back to its last checkpoint on the others."""

    ranks: tuple[Rank, ...] | None = None
    """None: all of them."""
    joins: int = 1
    """New nodes in their place."""
    again: RecoveryStep | None = None
    """The first node of the next attempt is lost as well, when that is so far."""
    at: int | None = None


Change = Move | Join | Leave | Break | Stop | Keep | Save | Crash


def draw_thresholds(chance: random.Random, queries: int) -> tuple[int, ...]:
    """How much of each query is kept: none, all, or anything between."""
    return tuple(
        chance.choice((0, KEEP_ALL, 1 << 63, chance.getrandbits(64), chance.getrandbits(64)))
        for _ in range(queries)
    )


def moving_layouts(base: Layout, epoch: int, move: Move) -> tuple[Layout, ...]:
    """The layouts of a move, the first of them at `epoch`."""
    changed = [(bin, to) for bin, to in move.owners.items() if base.owners[bin] != to]
    plain = replace(base, epoch=epoch, copies=(), epoch_records=0)
    if move.how == "all_at_once" or not changed:
        return (replace(plain, owners=with_owners(base.owners, changed)),)
    layouts: list[Layout] = []
    last = plain
    if move.how != "fluid":
        last = replace(plain, copies=tuple(changed))
        layouts.append(last)
        epoch += move.gap
    if move.how == "abandoned":
        return (*layouts, replace(plain, epoch=epoch))
    if move.how == "astray":
        changed = [(bin, another(base, base.owners[bin], to)) for bin, to in changed]
    for number, (bin, to) in enumerate(changed):
        last = replace(
            last,
            epoch=epoch + number * move.gap,
            owners=with_owners(last.owners, [(bin, to)]),
            copies=tuple(one for one in last.copies if one[0] != bin),
        )
        layouts.append(last)
    return tuple(layouts)


def another(layout: Layout, owner: Rank, copied_to: Rank) -> Rank:
    """A member that is neither; the owner, if there is none."""
    others = [rank for rank in layout.members if rank not in (owner, copied_to)]
    return others[0] if others else owner


def with_owners(owners: Sequence[Rank], changed: Sequence[tuple[int, Rank]]) -> tuple[Rank, ...]:
    found = list(owners)
    for bin, to in changed:
        found[bin] = to
    return tuple(found)


def owners_without(layout: Layout, rank: Rank) -> dict[int, Rank]:
    """New owners for all bins of a node, in turn."""
    others = [one for one in layout.members if one != rank]
    mine = [bin for bin, owner in enumerate(layout.owners) if owner == rank]
    return {bin: others[i % len(others)] for i, bin in enumerate(mine)}


def draw_change(
    chance: random.Random,
    layout: Layout,
    may_leave: Sequence[Rank],
    ranks: int,
    queries: int = 0,
) -> Change:
    """Any change that this layout allows; `ranks`: how many nodes there ever were; `queries`: how
    many sinks, if some of them may be shed."""
    members = layout.members
    how: How = chance.choice(GOOD_WAYS)
    gap = chance.choice((1, 1, 1, 2))
    kinds = ["move"] * 6
    if len(members) > 1:
        kinds += ["break"] * 2
        kinds += ["leave"] * 2 if may_leave else []
    if ranks < MOST_NODES:
        kinds += ["join"] * 3
    kinds += ["keep"] * 6 if queries else []
    bins = range(len(layout.owners))
    match chance.choice([*kinds, "stop"] if chance.randrange(8) == 0 else kinds):
        case "break":
            one, other = chance.sample(members, 2)
            return Break(one=one, other=other)
        case "leave":
            return Leave(rank=chance.choice(may_leave), how=how, gap=gap)
        case "join":
            some = chance.sample(bins, chance.randint(0, len(bins)))
            return Join(bins=some, how=how, gap=gap)
        case "stop":
            return Stop()
        case "keep":
            return Keep(thresholds=draw_thresholds(chance, queries))
    how = chance.choice(ALL_WAYS)
    some = chance.sample(bins, chance.randint(1, min(len(bins), 20 if how == "all_at_once" else 5)))
    return Move(owners={bin: chance.choice(members) for bin in some}, how=how, gap=gap)


def draw_crash(chance: random.Random, members: Sequence[Rank], owners: Sequence[Rank]) -> Change:
    """A checkpoint, whole or not, or a crash; of a job with checkpoints."""
    if chance.randrange(5) < 3:
        upto: SaveStep = chance.choice(("published", "published", "marked", "saved", "sealed"))
        move = Move(owners={chance.randrange(len(owners)): chance.choice(members)})
        return Save(upto=upto, between=move if chance.randrange(3) == 0 else None)
    lost = None
    if chance.randrange(4) > 0:
        lost = tuple(chance.sample(members, chance.randint(1, len(members))))
    again: RecoveryStep | None = chance.choice((None, None, "surveyed", "loaded", "begun"))
    return Crash(ranks=lost, joins=chance.choice((0, 1, 1, 2)), again=again)
