"""What the loss of a node means for a migration, and whether the job can go on.

A lost node that owned a bin, or may own one by a layout that was committed, takes state with it:
the job cannot go on without a checkpoint. A lost node that was only to receive bins later takes
nothing: the migration ends and the sources keep their bins. Nothing is copied outside of a
committed chunk, so there is no copy to forget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from plait.migration.machine import Migration, abort, withdraw_chunk
from plait.text.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.migration.plan import Step
    from plait.protocol.messages import Rank

BINS_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The consequence of a lost node."""

    outcome: Literal["untouched", "fallback", "fatal"]
    """`untouched`: the migration goes on. `fallback`: it ends, with the chunk under way if that is
    committed; every other bin stays with its owner. `fatal`: state is gone."""
    migration: Migration
    reason: str = ""
    lift: bool = False
    """The chunk under way was taken back: its round must be lifted, never committed."""


def assess_loss(migration: Migration, rank: Rank, at: float) -> Loss:
    """The node is gone for good."""
    steps, chunk = migration.plan.steps, migration.chunk
    gone = set(migration.owners.of(rank))
    under_way: Sequence[Step] = ()
    if chunk is not None and chunk.committed:
        under_way = steps[chunk.start_step : chunk.end_step]
        gone.update(bins_for(rank, under_way))
    if gone:
        reason = (
            f"node {rank} was lost with the state of {plural(len(gone), 'bin')} ({named(gone)}), "
            "and there is no checkpoint to restore it from"
        )
        failed = replace(migration, phase="failed", ended_at=at, reason=reason)
        return Loss(outcome="fatal", migration=failed, reason=reason)
    wanted = () if migration.over else bins_for(rank, steps[migration.next_step :])
    if not wanted:
        return Loss(outcome="untouched", migration=migration)
    reason = (
        f"node {rank} was lost before it took over {plural(len(wanted), 'bin')} "
        f"({named(wanted)}): they stay with their owners"
    )
    lift = chunk is not None and not chunk.committed
    ended = abort(migration, reason, at)
    return Loss(
        outcome="fallback",
        migration=withdraw_chunk(ended, at) if lift else ended,
        reason=reason,
        lift=lift,
    )


def bins_for(rank: Rank, steps: Iterable[Step]) -> tuple[int, ...]:
    """The bins that these steps give to a node."""
    return tuple(move.bin for step in steps for move in step.moves if move.target == rank)


def named(bins: Iterable[int]) -> str:
    """The first few, and that there are more."""
    ordered = sorted(bins)
    more = ", ..." if len(ordered) > BINS_NAMED else ""
    return ", ".join(str(bin) for bin in ordered[:BINS_NAMED]) + more
