"""What the coordinator knows of a job's checkpoints and attempts, as frozen data; journalled."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from plait.errors import InternalError
from plait.protocol.checkpoint_messages import SLOW_IDS, Mark

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState
    from plait.coordinator.messages.spec import CheckpointSpec
    from plait.protocol.checkpoint_messages import PartRef, Restore
    from plait.protocol.messages import Rank

KEPT = 8
"""So many failed checkpoints, savepoints and restarts are remembered."""

SaveStep = Literal["parts", "seal", "publish", "retire"]
Ending = Literal["", "stopped", "finished", "satisfied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A checkpoint in flight: its mark is committed, and it is not yet over."""

    mark: Mark
    ranks: tuple[Rank, ...]
    """The nodes that owe a part."""
    began_at: float
    step: SaveStep = "parts"
    command_id: int = 0
    """Of the slow command of this step."""
    parts: tuple[PartRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint that is published, or the one that was gone back to."""

    number: int
    epoch: int
    name: str
    at: float
    size_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaved:
    """A checkpoint that was given up."""

    number: int
    name: str
    at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The job went back to a checkpoint."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The last way back, with the time each step began."""

    attempt: int
    reason: str
    began_at: float
    steps: tuple[tuple[str, float], ...] = ()
    number: int = 0
    epoch: int = 0
    ended_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Of a job with checkpoints."""

    attempt: int = 0
    restore: Restore | None = None
    """Where the present attempt began; until its survey is done: the one before."""
    next_number: int = 1
    next_slow: int = SLOW_IDS
    saving: Saving | None = None
    parent: int = 0
    """The newest checkpoint that is sealed, or was gone back to."""
    marked: int = -1
    """The epoch of the newest mark."""
    next_at: float = 0.0
    """The next checkpoint begins then, if the job is quiet."""
    fresh_at: float = 0.0
    """Since when nothing newer is sealed: the age of what the job would go back to."""
    wishes: tuple[str, ...] = ()
    """Checkpoints that were asked for, by name; empty: without one."""
    last: Saved | None = None
    unsaved: tuple[Unsaved, ...] = ()
    savepoints: tuple[str, ...] = ()
    ending: Ending = ""
    """All sources end, or have ended: the next checkpoint is the last one."""
    stop_epoch: int = 0
    at_end: bool = False
    """... and all nodes are at their end."""
    complete: bool = False
    """... and the last checkpoint is published."""
    restarts: tuple[Restart, ...] = ()
    recovery: Recovery | None = None
    wanted: int = 0
    """The number of nodes that the user wants."""
    grow_at: float = 0.0
    """Not before then are missing nodes asked for."""


def saves(job: JobState) -> Checkpoints:
    """What is known of the checkpoints of a job that has some."""
    if job.checkpoints is None:
        raise InternalError(f"{job.name} has no checkpoints")
    return job.checkpoints


def settings(job: JobState) -> CheckpointSpec:
    if job.spec.checkpoint is None:
        raise InternalError(f"{job.name} has no checkpoints")
    return job.spec.checkpoint


def with_saves(job: JobState, known: Checkpoints) -> JobState:
    return replace(job, checkpoints=known)


def owes_part(job: JobState, rank: Rank) -> bool:
    """Whether the checkpoint in flight waits for a part of this node."""
    saving = job.checkpoints.saving if job.checkpoints is not None else None
    return saving is not None and saving.step == "parts" and rank in saving.ranks


def run_of(job: JobState) -> str:
    """The name of this life of the job, over all attempts; no secret can be read from it."""
    return hashlib.sha256(f"run {job.spec.token}".encode()).hexdigest()[:16]


def token_of(job: JobState) -> str:
    """By which the nodes of the present attempt know each other: a node of another one has none."""
    secret = f"{job.spec.token}/{job.attempt}"
    return hashlib.sha256(secret.encode()).hexdigest()


def is_saving(job: JobState) -> bool:
    return job.checkpoints is not None and job.checkpoints.saving is not None


def free_epoch(job: JobState, fence: int) -> int:
    """The epoch of a round: neither a layout nor a mark is there or behind it. Later than all
    fences is as safe as the greatest of them."""
    marked = job.checkpoints.marked if job.checkpoints is not None else -1
    return max(fence, job.layout.epoch + 1, marked + 1)


def set_mark(
    job: JobState, epoch: int, ranks: tuple[Rank, ...], at: float, *, ended: bool = False
) -> tuple[JobState, Mark]:
    """The job with a checkpoint in flight that begins at this epoch."""
    known = saves(job)
    name = next((wish for wish in known.wishes if wish), "")
    mark = Mark(
        number=known.next_number,
        epoch=epoch,
        since=known.parent,
        name=name,
        last=bool(known.ending),
        finished=known.ending in ("finished", "satisfied"),
        ended=ended,
    )
    known = replace(
        known,
        saving=Saving(mark=mark, ranks=ranks, began_at=at),
        next_number=known.next_number + 1,
        marked=epoch,
        wishes=tuple(wish for wish in known.wishes if wish not in ("", name)),
    )
    return replace(job, checkpoints=known, watch=replace(job.watch, parts={})), mark
