"""A failure as the engine gives it: a dead letter, or what ended a run."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class FailureKind(Enum):
    """What failed; the numbers are those of `FailureKind` in columns/failure.hpp."""

    RECORD = 0
    """An operator could not take a record."""
    TIMER = 1
    """A timer, or what an operator did at the end of a source."""
    SOURCE = 2
    SINK = 3
    WORKER = 4
    """Worker processes died on a timer, or on the state itself."""
    POOL = 5
    """No worker process can be used."""
    SCHEDULER = 6
    INTERNAL = 7
    """The runtime itself, or what a function raised that is not a matter of one record."""
    SUM = 8
    """Sums that were added to each other do not fit int64."""
    TEXT = 9
    """The texts of a unit take more than a column can hold."""


class EngineFailure(NamedTuple):
    """Where it is in the total order, what was wrong, and the record."""

    op: int
    source: int
    epoch: int
    row: int
    """-1: no record is to blame. Of a timer: how many records were before it."""
    kind: FailureKind
    message: str
    error: BaseException | None
    """What was raised, if it was raised in this process."""
    record: Any
    """A NativeBatch of one row, the operator's input; empty if no record is to blame."""

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Its place in the order of records."""
        return self.epoch, self.source, self.row, self.op
