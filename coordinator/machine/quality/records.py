"""What the quality controller remembers from one cycle to the next. Not journalled: after a restart
of the coordinator it is learnt anew, beginning with what is kept by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.coordinator.messages.events import QualityDecided
    from plait.protocol.messages import Rank, TaskReport
    from plait.protocol.quality import QualityPoint, QueryQuality
    from plait.shedding.view import Memory

POINTS = 600
"""Of each query: so many are kept, ten minutes of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the sub-pipelines of a node had done at one time."""

    at: float
    tasks: tuple[TaskReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRecord:
    """Of a job: what was measured, and what its queries get."""

    attempt: int = 0
    owners: tuple[int, ...] = ()
    """Of its bins, when it was last looked at."""
    looks: int = 0
    """Since these are what they are: until then what is measured is warming up."""
    since: float = 0.0
    samples: Mapping[Rank, tuple[Sample, ...]] = field(default_factory=dict)
    """The last ones of each node, oldest first."""
    queries: tuple[QueryQuality, ...] = ()
    points: tuple[QualityPoint, ...] = ()
    pending: QualityDecided | None = None
    """What was decided in the last cycle; a fact with the next tick of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityMemory:
    """Of the controller, for all jobs."""

    at: float = float("-inf")
    """Of the last cycle."""
    memory: Memory | None = None
    failure: str = ""
    """Why the last cycle could not decide anything."""
