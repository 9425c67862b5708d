"""What readers of a batch log say of themselves, and the removal of what none of them needs.

A reader says how far it has read and to which batch it may still go back. Whatever is before the
least of these goes. A log without readers keeps everything, and fills up (`unread`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.connectors.batch_log.layout import (
    ReaderFile,
    number_of_segment,
    plan_deletions,
    plan_sweep,
)
from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.connectors.batch_log.storage import LogFolder

SWEEP_AGE_S = 600.0
"""How old a segment is that nobody can be writing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What is in the log and not read by the slowest reader."""

    batches: int
    rows: int
    size_bytes: int
    oldest_at: float | None
    """When the oldest such batch came: wall clock, in seconds."""


def tell_read(
    folder: LogFolder,
    name: str,
    *,
    read: int,
    needed: int,
    clock: Callable[[], float] = time.time,
) -> None:
    """A reader says how far it is; then what nobody needs is removed."""
    folder.make()
    folder.put_reader(ReaderFile(name=name, read=read, needed=needed, at=clock()))
    retire(folder, clock)


def retire(folder: LogFolder, clock: Callable[[], float] = time.time) -> int:
    """Removes batches that no reader may go back to, oldest first; gives how many."""
    readers = folder.read_readers()
    numbers, _ = folder.listing()
    needed = min((reader.needed for reader in readers), default=0)
    if not numbers or needed <= numbers[0]:
        return 0
    batches = {number: segments_of(folder, number) for number in numbers if number < needed}
    batches.setdefault(numbers[-1], [])
    doomed = plan_deletions(batches, readers)
    if doomed.batches:
        folder.begin_at(doomed.first)
    for number in doomed.batches:
        folder.batch_path(number).unlink(missing_ok=True)
    for name in doomed.segments:
        (folder.segments / name).unlink(missing_ok=True)
    if doomed.batches:
        sweep(folder, clock)
    return len(doomed.batches)


def sweep(folder: LogFolder, clock: Callable[[], float] = time.time) -> None:
    """Removes segments of tasks that failed or were repeated."""
    times = folder.segment_times()
    old = {name: at for name, at in times.items() if clock() - at > SWEEP_AGE_S}
    if not old:
        return
    numbers = folder.numbers()
    named = {number_of_segment(name) or 0 for name in old}
    wanted = named.union((number + 1 for number in named), numbers[-1:])
    batches = {number: segments_of(folder, number) for number in numbers if number in wanted}
    for name in plan_sweep(old, batches, clock(), SWEEP_AGE_S):
        (folder.segments / name).unlink(missing_ok=True)


def segments_of(folder: LogFolder, number: int) -> list[str]:
    batch = folder.read_batch(number)
    return [] if batch is None else [part.name for part in batch.parts]


def measure_unread(folder: LogFolder) -> Unread:
    """What the slowest reader has not read; without readers all that is there."""
    there = folder.range()
    if there is None:
        return Unread(batches=0, rows=0, size_bytes=0, oldest_at=None)
    oldest, newest = there
    read = min((reader.read for reader in folder.read_readers()), default=oldest)
    rows = size = count = 0
    at: float | None = None
    for number in range(max(oldest, read), newest + 1):
        batch = folder.read_batch(number)
        if batch is None:  # removed meanwhile: it is read
            continue
        at = batch.committed_at if at is None else at
        count, rows, size = count + 1, rows + batch.rows, size + batch.size_bytes
    return Unread(batches=count, rows=rows, size_bytes=size, oldest_at=at)


def forget(folder: LogFolder, name: str) -> None:
    """A reader that is gone for good: nothing is kept for it any more."""
    names = [reader.name for reader in folder.read_readers()]
    if name not in names:
        have = ", ".join(names) or "none"
        raise StateError(f"{folder} has no reader {name!r}; its readers: {have}")
    folder.reader_path(name).unlink(missing_ok=True)
    retire(folder)
