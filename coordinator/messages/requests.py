"""What a client may ask of the coordinator, and what it is told.

A request has an id chosen by the client (in the event around it): asked again with the same id, it
is answered as the first time and does nothing twice. A reply says only that the request was taken
on; how it goes is in the `JobView` (views.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from plait.coordinator.messages.spec import JobSpec
    from plait.protocol.messages import Finish, Rank

Strategy = Literal["all_at_once", "fluid", "batched", "optimised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Run this job on `spec.nodes` nodes. A job of the same name that is over makes room if its
    result was taken, if it was cancelled, or with `replace`."""

    spec: JobSpec
    replace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """Run on another number of nodes, or spread the bins anew over the same ones.

    More nodes: new ones join. Fewer: the ones named in `away` leave, then the highest ranks.
    """

    job: str
    nodes: int | None = None
    """None: as many as now, less the ones in `away`."""
    away: tuple[Rank, ...] = ()
    strategy: Strategy = "fluid"
    gap_epochs: int = 0
    """Epochs left in peace between two steps."""
    throttle_bytes_per_s: float | None = None
    balance: bool = True
    """Spread by the measured load of the bins as well as by their number."""
    dry_run: bool = False
    """Only say what would be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Move everything away from a node and let it leave."""

    job: str
    rank: Rank
    strategy: Strategy = "fluid"
    gap_epochs: int = 0
    throttle_bytes_per_s: float | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End all sources at a common epoch; what was read is delivered. A job with checkpoints makes
    a last one there and leaves its windows open, unless they are to be flushed."""

    job: str
    finish: Finish | None = None
    """What becomes of open windows; None: as the job's settings say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Make a checkpoint now; one with a name, a savepoint, stays until it is deleted. Its number is
    in the reply: that one or a later one."""

    job: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """End at once; what is in flight is dropped."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseMigration:
    """No further steps until resumed; what is under way completes."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeMigration:
    """Go on after a pause."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortMigration:
    """No further steps. What has moved stays moved; nodes that own nothing leave again."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Move at most so many bytes a second; None: as fast as the policy allows."""

    job: str
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shed:
    """Keep at most this share of a query's input; None: all of it again."""

    job: str
    query: str
    """The label of its sink."""
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """The client has the outcome of a job that is over: its name is free from now on."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The outcome of a job that is over is not wanted any more: end its nodes, free its name."""

    job: str


Request = (
    Submit
    | Rescale
    | Drain
    | Stop
    | Save
    | Cancel
    | PauseMigration
    | ResumeMigration
    | AbortMigration
    | Throttle
    | Shed
    | Take
    | Forget
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The request was taken on (or, of a dry run, looked at)."""

    job: str
    plan: str = ""
    """Of a rescale or drain: what will move, in words."""
    number: int = 0
    """Of a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The request changed nothing."""

    reason: str


Reply = Accepted | Rejected
