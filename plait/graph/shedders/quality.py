"""What a sink says of its quality, and the samples that a shedder lets through, as plain data.

A query is a sink with all that leads to it. It keeps a record iff a hash of the record is below its
threshold; the hash is the same at all shedders of a job, so the sample of a query with a lower
ratio is a part of that of a higher one. `shedding/plan.py` has the hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ShedMode = Literal["auto", "records", "keys"]
"""How records of a query are chosen: single ones; all records of a key or none; as its operators
need it."""
BelowFloor = Literal["wait", "suspend"]
"""What becomes of a query whose floor cannot be met: sources wait; or it gets nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What was asked for a query. By default it is lossless: nothing of it is ever shed."""

    priority: int = 0
    """Queries of a lower one give way first."""
    min_accuracy: float = 1.0
    """The floor: the least share of its input that must be processed."""
    freshness_us: int = 0
    """How old its results may become before records are shed; 0: as the policy says."""
    shed: ShedMode = "auto"
    below_floor: BelowFloor = "wait"

    @property
    def lossless(self) -> bool:
        return self.min_accuracy >= 1.0


LOSSLESS = Quality()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The records that some queries want of a stream: by the hash of their row in the source, or by
    that of these key columns. The ratio is the greatest of its queries'."""

    columns: tuple[str, ...]
    """Of the key; none: by row."""
    queries: tuple[int, ...]
    """Numbers of the sinks among the sinks of the graph; ascending."""

    @property
    def by(self) -> Literal["records", "keys"]:
        return "keys" if self.columns else "records"
