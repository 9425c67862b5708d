"""Old records in place of a live source: how `plait.backfill` reads its history.

A `Replay` gives the rows of a bounded source as if they came from the live one, and when they are
over it waits instead of ending: windows stay open. Its position is then the place from which the
live source goes on; before, it is the beginning, so that a replay that was broken off is worth
nothing to a run that finds it. Several replays go on together, by their event times (`Pace`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Reader, Source, Wait
from plait.connectors.columns import to_batch
from plait.connectors.memory_sources import Table
from plait.connectors.opening import open_reader
from plait.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.model.schema import Schema

AHEAD_ROWS = 1 << 16
"""So many rows a replay may be ahead of the event time of the others."""
WAIT_S = 0.001
OVER_S = 0.02
POLLS = 64
"""At most so many polls of the history for one answer, while all rows are left out."""
NO_TIME = -(1 << 63)


class Pace:
    """How far the replays of a job are. Called by the readers, each in its own thread; `over` is
    called once, when all have come to their ends."""

    def __init__(self, labels: set[str], over: Callable[[], None]) -> None:
        self.times = dict.fromkeys(labels, NO_TIME)
        """Of those that have an event time and are not over: the greatest so far."""
        self.rows = dict.fromkeys(labels, 0)
        """Read since the source was not ahead of the others."""
        self.open = set(labels)
        self.read = 0
        self.skipped = 0
        self.over = over
        self.lock = threading.Lock()

    def may_read(self, label: str) -> bool:
        """Whether the replay is not too far ahead."""
        with self.lock:
            others = [time for name, time in self.times.items() if name != label]
            mine = self.times.get(label)
            if mine is None or all(mine <= time for time in others):
                self.rows[label] = 0
            return self.rows[label] < AHEAD_ROWS

    def has_read(self, label: str, time: int | None, rows: int, skipped: int) -> None:
        with self.lock:
            self.rows[label] += rows
            self.read += rows
            self.skipped += skipped
            if time is None:
                self.times.pop(label, None)
            else:
                self.times[label] = max(time, self.times.get(label, time))

    def ended(self, label: str) -> None:
        """Of a replay that has no more rows, when those it had were taken."""
        with self.lock:
            self.times.pop(label, None)
            self.open.discard(label)
            all_over = not self.open
        if all_over:
            self.over()


class Replay(Source):
    """A live source with a history in its place.

    Args:
        live: the source of the job; it is not opened.
        replayed: the history; None: the live source itself, which has an end.
        schema: the columns of the live source.
        until: the position from which the live source goes on.
        column: its event time, or "".
        keep_from_us: rows before this time are left out; None: none are.
    """

    bounded = False

    def __init__(
        self,
        live: Source,
        replayed: Source | None,
        *,
        schema: Schema,
        label: str,
        until: Any,
        column: str,
        pace: Pace,
        keep_from_us: int | None = None,
    ) -> None:
        self.live = live
        self.ends = replayed is None
        self.replayed = live if replayed is None else replayed
        self.schema = schema
        self.label = label
        self.until = until
        self.column = column
        self.pace = pace
        self.keep_from_us = keep_from_us

    def open(self, position: Any = None) -> Reader:
        """A reader at the beginning of the history."""
        return ReplayReader(self)


class ReplayReader(Reader):
    """Reads a history and then waits, or ends."""

    def __init__(self, source: Replay) -> None:
        self.source = source
        where = f"the history of {source.label}"
        self.reader = open_reader(source.replayed, source.schema, None, where)
        self.over = False

    def require(self, schema: Schema) -> None:
        if isinstance(self.reader, Reader):
            self.reader.require(schema)

    def poll(self, max_rows: int) -> Any:
        return self.next(max_rows, self.reader.poll)

    def poll_with_bad(self, max_rows: int) -> Any:
        return self.next(max_rows, self.reader.poll_with_bad)

    def next(self, max_rows: int, poll: Callable[[int], Any]) -> Any:
        source = self.source
        if self.over:
            return None if source.ends else Wait(OVER_S)
        if not source.pace.may_read(source.label):
            return Wait(WAIT_S)
        for _ in range(POLLS):
            answer = poll(max_rows)
            if answer is None:
                self.over = True
                source.pace.ended(source.label)
                return None if source.ends else Wait(OVER_S)
            if isinstance(answer, Wait):
                return answer
            answer = self.take(answer)
            if len(answer):
                return answer
        return Wait(0.0)

    def take(self, answer: Any) -> Any:
        """The rows that are wanted, with the columns of the live source."""
        import pyarrow as pa

        source = self.source
        if isinstance(answer, list | tuple):
            answer = as_batch(answer, source.replayed.schema)
        if not isinstance(answer, pa.RecordBatch | pa.Table):
            source.pace.has_read(source.label, None, len(answer), 0)
            return answer
        answer = answer.select(list(source.schema.names))
        before = answer.num_rows
        answer, time = wanted_rows(answer, source.column, source.keep_from_us)
        source.pace.has_read(source.label, time, answer.num_rows, before - answer.num_rows)
        return answer

    def position(self) -> Any:
        if self.source.ends:
            position, live = self.reader.position(), self.source.live
            # The engine reads tables by itself, from a row on.
            return live.row_at(position) if isinstance(live, Table) else position
        return self.source.until if self.over else None

    def close(self) -> None:
        self.reader.close()


def as_batch(records: Any, schema: Schema) -> Any:
    """Python records as columns; as they are if one is bad, which others say better."""
    try:
        return to_batch(records, schema)
    except SourceError:
        return records


def wanted_rows(rows: Any, column: str, keep_from_us: int | None) -> tuple[Any, int | None]:
    """The rows from that time on, and the greatest time of all; None: they have none."""
    if not column or rows.num_rows == 0:
        return rows, None
    times = times_of(rows, column)
    if keep_from_us is not None and int(times.min()) < keep_from_us:
        import pyarrow as pa

        rows = rows.filter(pa.array(times >= keep_from_us))
    return rows, int(times.max())


def times_of(rows: Any, column: str) -> Any:
    """The event times as numpy microseconds."""
    import pyarrow as pa

    found = rows.column(column)
    if found.null_count:
        raise SourceError(f'the history has a null in "{column}", which is the event time')
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    return found.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()


def greatest_time(source: Source, schema: Schema, column: str, max_jump_us: int) -> int | None:
    """How far the event time of a history comes; None: it is empty, or a time jumps so far that
    the source's time is not the greatest of its rows."""
    import numpy as np
    import pyarrow as pa

    reader = open_reader(source, schema, None, "the history")
    reached = NO_TIME
    try:
        while (rows := reader.poll(1 << 16)) is not None:
            if isinstance(rows, Wait):
                continue
            if isinstance(rows, list | tuple):
                rows = as_batch(rows, source.schema)
            if not isinstance(rows, pa.RecordBatch | pa.Table):
                return None
            if rows.num_rows == 0:
                continue
            times = times_of(rows, column)
            before = np.maximum.accumulate(times)[:-1]
            if reached != NO_TIME:
                before = np.maximum(np.concatenate(([reached], before)), reached)
                later = times
            else:
                later = times[1:]
            if np.any(later - before > max_jump_us):
                return None
            reached = max(reached, int(times.max()))
    finally:
        reader.close()
    return None if reached == NO_TIME else reached
