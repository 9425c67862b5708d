"""What nodes are told, and tell, about checkpoints and recovery.

Checkpoint `number` is everything that is needed to go on from the boundary in front of an epoch.
All members agree on that epoch in a round, as they do for a layout: `Commit` brings a `Mark`. Each
saves by itself what it has at the mark, its *part*, and says so in its report. Then the home node
is told to `Seal` (write the manifest, which makes the checkpoint whole), to `Publish` (what the
sinks hold back becomes visible) and to `Retire` (old checkpoints go).

A job's life between two recoveries is an *attempt*. After a loss the survivors get `Halt`; the new
home gets `Survey`: it claims the checkpoint folder, fences older writers, and chooses the
checkpoint to go on from. Then all are prepared and begin again, with a token of that attempt.

`Seal`, `Publish`, `Retire` and `Survey` wait for stores and brokers. They are *slow*: answered at
once, carried out in the order in which they come, by a thread of their own, and told done in
`NodeReport.finished`. Their command ids are a sequence of their own, from SLOW_IDS on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SLOW_IDS = 1 << 40
"""Ids of slow commands are above this, all others below: each sequence ascends for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A checkpoint at the boundary in front of `epoch`.

    A checkpoint before it that was not published was given up: what was being saved for it is not
    wanted any more, and its interval of the sinks is a part of this one's.
    """

    number: int
    """Ascending over all attempts of a job; never used twice."""
    epoch: int
    since: int = 0
    """The newest checkpoint that is sealed: what did not change since is not saved again."""
    name: str = ""
    """Of a savepoint."""
    last: bool = False
    """The sources stop here and windows stay open: the job ends when this is published."""
    finished: bool = False
    """Nothing comes any more, because all sources have ended or the sinks have all they wanted."""
    ended: bool = False
    """The node is at its end already (all it read has come to its sinks): it marks where it is.
    No round was promised for this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRef:
    """What a node saved at a mark."""

    number: int
    rank: int
    path: str
    digest: str
    size_bytes: int
    """That were written for it; what had not changed was not written again."""
    file_bytes: int = 0
    """Of the file that `path` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """To the home: all parts of this checkpoint are in the store; write its manifest.

    Finished without error: it is there to stay. With an error nobody knows: it may be there, or
    come later; the checkpoint is given up, and the next one has a higher number.
    """

    number: int
    epoch: int
    parent: int
    """The checkpoint sealed before it in this lineage, or the one that was restored."""
    parts: tuple[PartRef, ...]
    name: str = ""
    last: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """To the home, after its Seal: all output before the checkpoint becomes visible, deciders
    first, then followers. Look at the claims before. May be repeated."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """To the home, after its Publish: delete what `keep` checkpoints do not need."""

    number: int
    """The newest published one: it and all it needs stay."""
    keep: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Drop the engine, the links and what is being saved, and abort the sinks; keep the process.

    Afterwards the node is as a fresh one, of this attempt: slow commands that came before are
    broken off or come to nothing, and are not told done. It keeps its address.
    """

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """To the home that will be: claim the folder; then fence and ask the deciders; then choose.

    In this order: after the claim no older manifest counts, after the fence nothing more can be
    delivered. What is newer than the chosen checkpoint is void; followers are rolled to it. If
    there is none and nothing was ever delivered, manifest 0 is written, with the positions at
    which the sources begin.
    """

    attempt: int
    lineage: str = ""
    """As the first survey of this job found it; empty: this is the first."""
    run: str = ""
    """Written into the claim: the same in all attempts of one submitted job, and in no other."""
    start: str = ""
    """Of the first survey: where the user wants to start; empty: at the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """What a survey found."""

    lineage: str
    claim: int
    """The number under which the folder is claimed: in the names of all that is written now."""
    number: int
    """The checkpoint to go on from; 0: from the start."""
    epoch: int
    """Of its boundary."""
    newest: int
    """No checkpoint in the folder has a higher number, void ones included."""
    last: bool = False
    finished: bool = False
    """Its sources had ended: there is nothing left to do."""
    bins: tuple[int, ...] = ()
    """Bins that have state there, and their bytes over all operators."""
    sizes: tuple[int, ...] = ()
    first_rows: tuple[int, ...] = ()
    """For each source: the row number with which `epoch` begins."""
    epoch_records: int = 0
    """Records of each source in an epoch, as the checkpoint has it; 0: as the nodes choose."""
    positions: tuple[str, ...] = ()
    """For each source, in words, for people. Nodes find them in the manifest."""
    sealed_at: float = 0.0
    """Wall clock, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """What to load before the beginning."""

    lineage: str
    claim: int
    number: int
    """The checkpoint; 0: only positions, from the start."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A slow command came to its end."""

    what: Literal["seal", "publish", "retire", "survey"]
    number: int
    """Of the checkpoint; of a survey: the attempt."""
    error: str = ""
    """Why it could not be done, in words."""
    fatal: bool = False
    """It would fail again: something that should be there is not, or is damaged, or another run
    has claimed the folder. The job fails."""
    lost_claim: bool = False
    """The folder is claimed by another attempt of this very run: a survey of a node that was given
    up came through late. Or a checkpoint that was given up is there after all. The job goes back
    and claims it anew."""
    found: Surveyed | None = None
    """Of a survey."""


SlowCommand = Seal | Publish | Retire | Survey
