"""Spark writes a batch log: `frame.writeStream.format("plait")`.

Tasks write segments, all at once; the driver's commit creates the batch file. Spark makes the
writer anew for every batch, in the tasks and beside the driver, so it holds nothing that changes. A
batch that Spark repeats, after a crash or a failed task, is in the log once. `abort` deletes
nothing: a task may still be writing, and the batch may be in the log already.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from plait.connectors.batch_log.append import (
    SegmentWriter,
    accept,
    check_owner,
    make_log,
    sync_segments,
)
from plait.connectors.batch_log.retire import measure_unread
from plait.connectors.batch_log.storage import LogFolder
from plait.connectors.spark.types import Column, convert, schema_of_columns
from plait.errors import SinkError, StateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.connectors.batch_log.layout import Part

LOG = logging.getLogger("plait.spark")
STEP_S = 0.05
BATCH, QUERY, RUN = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
"""Where Spark says in a task which batch of which query it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much may be unread before tasks wait, or fail."""

    most_bytes: int = 1 << 30
    most_batches: int = 1000
    fail: bool = False


@dataclass
class Written(WriterCommitMessage):
    """What a task has written."""

    query: str
    run: str
    number: int
    """Of the batch in the log, which its segment is named by."""
    part: Part | None
    """None: it had no rows."""


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of one query."""

    def __init__(
        self, path: str, columns: Sequence[Column], room: Room, checkpoint: str | None
    ) -> None:
        self.path = path
        self.columns = tuple(columns)
        self.room = room
        self.checkpoint = checkpoint

    def write(self, iterator: Iterator[Any]) -> Written:
        """In a task: one segment of its rows."""
        context: Any = TaskContext.get()
        batch = int(context.getLocalProperty(BATCH))
        query = str(context.getLocalProperty(QUERY))
        folder = LogFolder(self.path)
        log = folder.read_log()
        number = batch
        if log is not None:
            check_owner(folder, log, query)
            number = batch + log.owner.shift
        wait_for_room(folder, self.room)
        folder.make()
        part: Part | None = None
        segment: SegmentWriter | None = None
        for rows in iterator:
            if rows.num_rows == 0:
                continue
            converted = convert(rows, self.columns)
            if segment is None:
                segment = SegmentWriter(
                    folder,
                    number,
                    part=context.partitionId(),
                    attempt=str(context.taskAttemptId()),
                    schema=schema_of_columns(self.columns),
                )
            segment.write(converted)
        if segment is not None:
            part = segment.close()
            sync_segments(folder, [part])
        run = str(context.getLocalProperty(RUN))
        return Written(query=query, run=run, number=number, part=part)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """At the driver, with one message of each partition in order: the batch is in the log when
        this returns."""
        folder = LogFolder(self.path)
        told = [message for message in messages if message is not None]
        query = told[0].query if told else self.query_of_checkpoint(folder)
        run = told[0].run if told else ""
        log = make_log(
            folder, schema_of_columns(self.columns), writer=query, kind="spark", first=batchId
        )
        parts = [message.part for message in told if message.part is not None]
        done = accept(folder, log, batchId + log.owner.shift, parts, run=run)
        if done.told:
            LOG.warning("%s", done.told)

    def query_of_checkpoint(self, folder: LogFolder) -> str:
        """The id of the query, of a batch without partitions."""
        if self.checkpoint is not None:
            path = Path(self.checkpoint.removeprefix("file:")) / "metadata"
            try:
                return str(json.loads(path.read_text(encoding="utf-8"))["id"])
            except (OSError, ValueError, KeyError):
                pass
        log = folder.read_log()
        if log is None:
            raise SinkError(f"{folder}: the first batch has no partitions, so no query id is known")
        return log.owner.writer

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Nothing to do: what no batch file names does not count, and is swept later."""


def wait_for_room(folder: LogFolder, room: Room) -> None:
    """Waits until readers have made room; Spark's stop ends the wait."""
    while True:
        unread = measure_unread(folder)
        if unread.batches < room.most_batches and unread.size_bytes < room.most_bytes:
            return
        if room.fail:
            raise StateError(
                f"{folder} is full: {unread.batches:,} batches with {unread.size_bytes:,} bytes are"
                " unread; start its readers, or give it room (most=, when_full=)"
            )
        time.sleep(STEP_S)
