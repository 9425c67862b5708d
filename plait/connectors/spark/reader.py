"""Spark reads a batch log: `spark.readStream.format("plait")`, and `spark.read` for what is there.

An offset is the next batch; a partition is a segment, so that Spark has the rows in the order of
the log until its first shuffle. Spark asks for the latest offset every few milliseconds, so the
answer comes from memory most of the time. It tells of a batch that is done only when the next one
is planned; what a restart may ask for again is kept.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from plait.connectors.batch_log.read import open_segment
from plait.connectors.batch_log.retire import tell_read
from plait.connectors.batch_log.storage import LogFolder
from plait.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plait.connectors.batch_log.layout import Part
    from plait.model.schema import Schema

LOOK_S = 0.05
KEEP_BATCHES = 2
"""Batches of Spark that are kept after it said that it is done with them."""


class Segment(InputPartition):
    """A part of a batch."""

    def __init__(self, batch: int, part: Part, first: int) -> None:
        super().__init__((batch, part.name))
        self.batch = batch
        self.part = part
        self.first = first
        """The row of the batch with which it begins."""


class SegmentReader:
    """What both readers share: planned in one process, read in others."""

    def __init__(self, path: str, schema: Schema, *, place: bool) -> None:
        self.path = path
        self.log_schema = schema
        self.place = place

    def segments(self, first: int, end: int) -> list[Segment]:
        """Of the batches from `first` to before `end`, in order."""
        folder = LogFolder(self.path)
        found = []
        for number in range(first, end):
            batch = folder.read_batch(number)
            if batch is None:
                there = folder.range()
                have = "none" if there is None else f"{there[0]} to {there[1]}"
                raise SourceError(f"{self.path}: batch {number} is gone; the log has {have}")
            row = 0
            for part in batch.parts:
                found.append(Segment(number, part, row))
                row += part.rows
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        """The rows of a segment as Arrow batches."""
        import pyarrow as pa

        row = partition.first
        folder = LogFolder(self.path)
        for batch in open_segment(folder, self.log_schema, partition.batch, partition.part):
            rows = batch
            if self.place:
                numbers = pa.array([partition.batch] * batch.num_rows, pa.int64())
                places = pa.array(range(row, row + batch.num_rows), pa.int64())
                for name, column in (("_batch", numbers), ("_row", places)):
                    rows = rows.append_column(pa.field(name, pa.int64(), False), column)
            row += batch.num_rows
            yield rows


class LogBatchReader(SegmentReader, DataSourceReader):
    """What is in the log when the query is planned."""

    def partitions(self) -> list[Segment]:
        there = LogFolder(self.path).range()
        return [] if there is None else self.segments(there[0], there[1] + 1)


class LogStreamReader(SegmentReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads batch after batch."""

    def __init__(self, path: str, schema: Schema, options: Mapping[str, str]) -> None:
        super().__init__(path, schema, place=is_true(options.get("place")))
        self.max_batches = int(options.get("maxbatches", 0))
        self.max_bytes = int(options.get("maxbytes", 0))
        self.name = options.get("reader") or default_name(options.get("checkpointlocation"))
        self.end: int | None = None
        """Of a query that reads what is there now: where it ends."""
        self.newest = 0
        """One after the newest batch, as of `looked_at`."""
        self.looked_at = 0.0
        self.done: list[int] = []
        """The ends that Spark has committed last."""

    def initialOffset(self) -> dict[str, int]:
        there = LogFolder(self.path).range()
        return {"next": 0 if there is None else there[0]}

    def look(self) -> int:
        now = time.monotonic()
        if now - self.looked_at >= LOOK_S or not self.looked_at:
            there = LogFolder(self.path).range()
            self.newest = 0 if there is None else there[1] + 1
            self.looked_at = now
        return self.newest

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        first = int(start["next"])
        end = self.look() if self.end is None else self.end
        end = max(end, first)
        match limit:
            case ReadMaxFiles():
                end = min(end, first + int(limit.max_files))
            case ReadMaxBytes():
                end = self.within(first, end, int(limit.max_bytes))
        return {"next": end}

    def within(self, first: int, end: int, most_bytes: int) -> int:
        """The end of batches with so many bytes together, at least one."""
        folder = LogFolder(self.path)
        size = 0
        for number in range(first, end):
            batch = folder.read_batch(number)
            size += 0 if batch is None else batch.size_bytes
            if size > most_bytes:
                return max(number, first + 1)
        return end

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.max_batches:
            return ReadMaxFiles(self.max_batches)
        return ReadMaxBytes(self.max_bytes) if self.max_bytes else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, int]:
        return {"next": self.look()}

    def prepareForTriggerAvailableNow(self) -> None:
        self.looked_at = 0.0
        self.end = self.look()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Segment]:
        return self.segments(int(start["next"]), int(end["next"]))

    def commit(self, end: dict[str, int]) -> None:
        """Spark has done all before `end`. A restart asks for its last batches again."""
        if not self.name:
            return
        self.done = [*self.done, int(end["next"])][-KEEP_BATCHES - 1 :]
        needed = self.done[0] if len(self.done) > KEEP_BATCHES else None
        if needed is not None:
            tell_read(LogFolder(self.path), self.name, read=self.done[-1], needed=needed)


def default_name(checkpoint: str | None) -> str:
    """The name of a query's reader; "": it holds nothing back and removes nothing."""
    if not checkpoint:
        return ""
    return f"spark-{hashlib.sha256(checkpoint.encode()).hexdigest()[:16]}"


def is_true(text: str | None) -> bool:
    return (text or "").lower() == "true"
