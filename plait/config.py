"""Settings of a run: frozen, units in the names, checked when made. Every default is safe."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from plait.errors import JobError

Scheduler = Literal["ct", "et", "lp", "qst"]
Queue = Literal["lanes", "hybrid", "partitioned", "shared"]
Reorder = Literal["nonblocking", "locked"]
Order = Literal["total", "key", "none"]

MAX_WORKERS = 64


def usable_cores() -> int:
    """The cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a job is run on this machine."""

    workers: int = field(default_factory=usable_cores)
    scheduler: Scheduler = "ct"
    queue: Queue = "lanes"
    """How a keyed stage shares its work out: "lanes" is plait's own, the others are the
    published structures it was measured against."""
    reorder: Reorder = "nonblocking"
    order: Order = "total"
    """total: as a sequential run. key: on several nodes every node has its own sinks, with the
    records of a key in order (on one node as total). none: state is updated in order, outputs leave
    when they are ready; on one node only."""
    epoch_records: int = 4096
    """The most records a source puts into one epoch: one batch. Live sources cut smaller ones when
    idle."""
    bin_bits: int = 10
    """A keyed operator's state has 2 ** bin_bits bins."""
    lanes: int | None = None
    """How many parts of the key space run side by side; None: as many as workers, rounded up to a
    power of two."""
    slice_us: int = 200
    """How long a worker stays with a stage before it asks the scheduler again."""
    queue_records: int = 1 << 17
    """A stage's worklist takes no more batches above this many records..."""
    queue_bytes: int = 64 << 20
    """... or this many bytes: it pushes back to the source."""
    queue_batches: int = 32
    """Batches a stage holds at most, waiting or in work; a power of two."""
    limit: int | None = None
    """Stop after so many records were read from each source."""
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        check("workers", self.workers, 1, MAX_WORKERS)
        check("epoch_records", self.epoch_records, 1, 1 << 20)
        check("bin_bits", self.bin_bits, 0, 20)
        check("slice_us", self.slice_us, 1, 1_000_000)
        check("queue_records", self.queue_records, 1, 1 << 40)
        check("queue_bytes", self.queue_bytes, 1, 1 << 50)
        check("queue_batches", self.queue_batches, 2, 1 << 16)
        if self.queue_batches & (self.queue_batches - 1):
            raise JobError(f"queue_batches is {self.queue_batches}; it must be a power of two")
        if self.lanes is not None:
            check("lanes", self.lanes, 1, 256)
            if self.lanes & (self.lanes - 1):
                raise JobError(f"lanes is {self.lanes}; it must be a power of two")
        if self.limit is not None:
            check("limit", self.limit, 0, 1 << 62)
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise JobError(f"timeout is {self.timeout_s}; it must be above 0 seconds")
        choices = (
            ("scheduler", Scheduler),
            ("queue", Queue),
            ("reorder", Reorder),
            ("order", Order),
        )
        for name, allowed in choices:
            if getattr(self, name) not in allowed.__args__:  # type: ignore[attr-defined]
                words = ", ".join(f'"{word}"' for word in allowed.__args__)  # type: ignore[attr-defined]
                raise JobError(f"{name} is {getattr(self, name)!r}; it must be one of {words}")


def check(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise JobError(f"{name} is {value!r}; it must be a whole number from {least} to {most}")
