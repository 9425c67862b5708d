"""The run of one migration, as a frozen state and the functions that lead to the next one.

One chunk of steps is under way at a time: `next_chunk` chooses it, then it is issued (its round
has begun), committed (its layouts hold) and done (all nodes have passed them), or withdrawn (the
round did not come about). Pausing, slowing down and ending act between chunks; what has moved stays
moved. The rule: at any moment `owners` and the chunk under way say where the state of every bin is,
so whatever fails, exactly one node owns it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from plait.errors import InternalError, JobError
from plait.migration.chunks import epochs_per_step, layouts
from plait.text.units import bytes_text, plural, seconds_text

if TYPE_CHECKING:
    from plait.migration.bins import BinMap
    from plait.migration.plan import Plan, Step
    from plait.protocol.messages import Layout

Phase = Literal["running", "paused", "aborting", "done", "failed"]

CHUNK_S = 0.1
"""How long the steps of one chunk take: what a pause has to wait for, and how often a round of all
nodes is needed."""
CHUNK_STEPS = 256
"""A chunk's layouts are one message to every node: no more of them than this."""
AHEAD_S = 0.02
"""A copy is given at least this long before the switch, however short the epochs are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Steps that are made in one round."""

    start_step: int
    epochs: tuple[int, ...]
    """For each step, how many epochs it takes until the next."""
    ahead_epochs: int
    committed: bool = False
    """Its layouts may be in force at some node: they cannot be taken back."""
    last_epoch: int = 0
    """Of its last layout. The chunk is done when all nodes have passed it."""

    @property
    def steps(self) -> int:
        return len(self.epochs)

    @property
    def end_step(self) -> int:
        return self.start_step + self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """How far a plan has been carried out."""

    plan: Plan
    owners: BinMap
    """After all steps that are done."""
    began_at: float
    phase: Phase = "running"
    """`aborting`: the chunk under way is the last one. `done`: nothing moves any more; not all
    steps may have been made, then `reason` says why."""
    next_step: int = 0
    chunk: Chunk | None = None
    moved_bins: int = 0
    moved_bytes: int = 0
    throttle_bytes_per_s: float | None = None
    ended_at: float | None = None
    reason: str = ""

    @property
    def over(self) -> bool:
        return self.phase in ("done", "failed")

    @property
    def complete(self) -> bool:
        """All steps were made."""
        return self.next_step == len(self.plan.steps)


def begin(plan: Plan, at: float, throttle_bytes_per_s: float | None = None) -> Migration:
    """A migration before its first chunk; one without steps is done already."""
    fresh = Migration(
        plan=plan, owners=plan.before, began_at=at, throttle_bytes_per_s=throttle_bytes_per_s
    )
    return fresh if plan.steps else replace(fresh, phase="done", ended_at=at)


def next_chunk(
    migration: Migration, epoch_rate_per_s: float, chunk_s: float = CHUNK_S
) -> Chunk | None:
    """The steps to make next, about `chunk_s` worth of them; None if there is nothing to issue now.

    `epoch_rate_per_s` is the pace at which epochs pass now.
    """
    if migration.phase != "running" or migration.chunk is not None or migration.complete:
        return None
    budget = chunk_s * epoch_rate_per_s
    epochs: list[int] = []
    for step in migration.plan.steps[migration.next_step : migration.next_step + CHUNK_STEPS]:
        pace = pace_of(migration, step, epoch_rate_per_s)
        if epochs and sum(epochs) + pace > budget:
            break
        epochs.append(pace)
    ahead = 0
    if migration.plan.strategy == "optimised":
        # Twice the pace: a copy shares its link with the one before and the one after.
        ahead = max(
            migration.plan.ahead_epochs, 2 * max(epochs), math.ceil(AHEAD_S * epoch_rate_per_s)
        )
    return Chunk(start_step=migration.next_step, epochs=tuple(epochs), ahead_epochs=ahead)


def pace_of(migration: Migration, step: Step, epoch_rate_per_s: float) -> int:
    """Epochs from this step to the next. A link carries what its busiest node sends or receives; a
    throttle holds for all nodes together."""
    plan = migration.plan
    pace = epochs_per_step(step.busiest_bytes, epoch_rate_per_s, plan.bandwidth_bytes_per_s)
    if migration.throttle_bytes_per_s is not None:
        pace = max(
            pace,
            epochs_per_step(step.size_bytes, epoch_rate_per_s, migration.throttle_bytes_per_s),
        )
    return pace + plan.gap_epochs


def chunk_layouts(
    migration: Migration, chunk: Chunk, base: Layout, first_epoch: int
) -> tuple[Layout, ...]:
    """The layouts of a chunk, once the epoch of its round is agreed on. `base` is in force."""
    return layouts(
        migration.plan,
        chunk.start_step,
        chunk.steps,
        base,
        first_epoch,
        chunk.epochs,
        chunk.ahead_epochs,
    )


def issue_chunk(migration: Migration, chunk: Chunk) -> Migration:
    """The chunk's round has begun; nothing is in force yet."""
    if migration.chunk is not None or chunk.start_step != migration.next_step:
        raise InternalError(f"chunk {chunk} cannot follow step {migration.next_step}: {migration}")
    return replace(migration, chunk=replace(chunk, committed=False))


def commit_chunk(migration: Migration, last_epoch: int) -> Migration:
    """The chunk's layouts go to the nodes, or may have: from here on they hold."""
    if migration.chunk is None:
        raise InternalError(f"no chunk is under way: {migration}")
    return replace(migration, chunk=replace(migration.chunk, committed=True, last_epoch=last_epoch))


def withdraw_chunk(migration: Migration, at: float) -> Migration:
    """The chunk's round did not come about: its steps are still to be made."""
    if migration.chunk is None or migration.chunk.committed:
        raise InternalError(f"no chunk can be taken back: {migration}")
    return settle(replace(migration, chunk=None), at)


def finish_chunk(migration: Migration, at: float) -> Migration:
    """All nodes have passed the chunk's last layout: its bins are at their targets."""
    chunk = migration.chunk
    if chunk is None or not chunk.committed:
        raise InternalError(f"no committed chunk is under way: {migration}")
    made = migration.plan.steps[chunk.start_step : chunk.end_step]
    return settle(
        replace(
            migration,
            chunk=None,
            next_step=chunk.end_step,
            owners=migration.owners.with_changes(move for step in made for move in step.moves),
            moved_bins=migration.moved_bins + sum(len(step.moves) for step in made),
            moved_bytes=migration.moved_bytes + sum(step.size_bytes for step in made),
        ),
        at,
    )


def settle(migration: Migration, at: float) -> Migration:
    """Done, if there is no chunk under way and there will be none."""
    if migration.chunk is None and not migration.over:
        if migration.complete:
            return replace(migration, phase="done", ended_at=at, reason="")
        if migration.phase == "aborting":
            return replace(migration, phase="done", ended_at=at)
    return migration


def pause(migration: Migration) -> Migration:
    """No further chunk until `resume`; the one under way is finished."""
    return replace(migration, phase="paused") if migration.phase == "running" else migration


def resume(migration: Migration) -> Migration:
    return replace(migration, phase="running") if migration.phase == "paused" else migration


def abort(migration: Migration, reason: str, at: float) -> Migration:
    """No further chunk, ever. What has moved stays where it is."""
    if migration.phase not in ("running", "paused"):
        return migration
    return settle(replace(migration, phase="aborting", reason=reason), at)


def throttle(migration: Migration, bytes_per_s: float | None) -> Migration:
    """So many bytes a second at most from the next chunk on; None: as fast as the links allow."""
    if bytes_per_s is not None and bytes_per_s <= 0.0:
        raise JobError(
            f"a throttle must be above zero, got {bytes_per_s} bytes/s; to stop for a while, pause"
        )
    return replace(migration, throttle_bytes_per_s=bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationProgress:
    """How far it is, for people."""

    phase: Phase
    bins: int
    bins_total: int
    size_bytes: int
    bytes_total: int
    steps: int
    steps_total: int
    elapsed_s: float
    reason: str = ""

    @property
    def done_ratio(self) -> float:
        """By bytes where there are any, else by bins."""
        if self.bytes_total:
            return self.size_bytes / self.bytes_total
        return self.bins / self.bins_total if self.bins_total else 1.0

    def __str__(self) -> str:
        return (
            f"{self.phase}: {self.done_ratio:.0%}, "
            f"{self.bins:,} of {plural(self.bins_total, 'bin')}, "
            f"{bytes_text(self.size_bytes)} of {bytes_text(self.bytes_total)}, "
            f"step {self.steps:,} of {self.steps_total:,}, {seconds_text(self.elapsed_s)}"
            + (f" ({self.reason})" if self.reason else "")
        )


def progress(migration: Migration, at: float) -> MigrationProgress:
    plan = migration.plan
    until = at if migration.ended_at is None else migration.ended_at
    return MigrationProgress(
        phase=migration.phase,
        bins=migration.moved_bins,
        bins_total=plan.bins,
        size_bytes=migration.moved_bytes,
        bytes_total=plan.size_bytes,
        steps=migration.next_step,
        steps_total=len(plan.steps),
        elapsed_s=max(0.0, until - migration.began_at),
        reason=migration.reason,
    )
