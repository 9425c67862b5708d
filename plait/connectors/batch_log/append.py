"""Writes into a batch log: segments first, then the batch file that puts them into it.

A segment has a name of its own, so that a task that is repeated, or runs twice at once, disturbs
nobody: what no batch file names does not count. `accept` creates the batch file, once: whoever
comes with the number again is told that it is there.

    with SegmentWriter(folder, 42, part=0, attempt="7", schema=schema) as segment:
        segment.write(batch)
    accept(folder, log, 42, [segment.part], run="...")
"""

from __future__ import annotations

import json
import secrets
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.connectors.batch_log.layout import (
    END,
    BatchFile,
    LogFile,
    Owner,
    Part,
    WriterKind,
    encode,
    judge_append,
    number_of_segment,
    segment_name,
)
from plait.connectors.durable import sync_file, sync_folder
from plait.errors import StateError
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plait.connectors.batch_log.storage import LogFolder


class CountedFile:
    """A file that knows the length and the CRC-32 of what was written."""

    closed = False

    def __init__(self, path: Path) -> None:
        self.file = path.open("xb")
        self.size = 0
        self.crc = 0

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        written = self.file.write(data)
        self.size += written
        return written

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()
        self.closed = True


class SegmentWriter:
    """Writes the rows of one part of a batch; `part` says what was written once it is closed."""

    def __init__(
        self, folder: LogFolder, number: int, *, part: int, attempt: str, schema: Schema
    ) -> None:
        import pyarrow as pa

        self.name = segment_name(number, part, attempt, secrets.token_hex(6))
        self.path = folder.segments / self.name
        self.arrow = schema.to_arrow()
        self.file = CountedFile(self.path)
        try:
            self.stream = pa.ipc.new_stream(pa.PythonFile(self.file, mode="w"), self.arrow)
        except BaseException:
            self.drop()
            raise
        self.rows = 0

    def write(self, batch: Any) -> None:
        """Takes a RecordBatch in plait's own Arrow types."""
        self.stream.write_batch(batch)
        self.rows += batch.num_rows

    @property
    def size_bytes(self) -> int:
        return self.file.size

    def close(self) -> Part:
        """No more rows. The file is not on disk before `sync`."""
        self.stream.close()
        self.file.close()
        return Part(name=self.name, rows=self.rows, size_bytes=self.file.size, crc=self.file.crc)

    def drop(self) -> None:
        """Removes what was written."""
        self.file.close()
        self.path.unlink(missing_ok=True)


def sync_segments(folder: LogFolder, parts: Sequence[Part]) -> None:
    """Makes segments durable."""
    for part in parts:
        sync_file(folder.segments / part.name)
    if parts:
        sync_folder(folder.segments)


def make_log(
    folder: LogFolder, schema: Schema, *, writer: str, kind: WriterKind, first: int = 0
) -> LogFile:
    """The log of this writer, made if there is none; StateError if it is another's."""
    log = folder.read_log()
    if log is None:
        check_columns(folder, schema)
        owner = Owner(writer=writer, first=first)
        log = folder.create_log(
            LogFile(id=secrets.token_hex(16), kind=kind, schema=schema, owners=(owner,))
        )
    check_owner(folder, log, writer)
    if log.schema != schema:
        raise StateError(
            f"{folder}: the log has the columns {log.schema}, and the rows now have {schema};"
            " the columns of a log stay as they are: take a new log"
        )
    return log


def check_columns(folder: LogFolder, schema: Schema) -> None:
    objects = [field.name for field in schema if field.type is Type.OBJECT]
    if objects:
        raise StateError(
            f'{folder}: column "{objects[0]}" is object, which others cannot read; a batch log has'
            " int, float, bool, str, bytes and timestamps: make columns of these"
        )


def check_owner(folder: LogFolder, log: LogFile, writer: str) -> None:
    owner = log.owner
    if owner.writer != writer:
        who = "Spark query" if log.kind == "spark" else "writer"
        raise StateError(
            f"{folder}: this log belongs to {who} {owner.writer}, not to {writer}; take a new log,"
            f" or hand it over: plait log adopt {folder} --query {writer}"
        )


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of a batch."""

    number: int
    created: bool
    """Whether it came into the log now; False: it was there."""
    told: str = ""
    """Something odd, in words."""


def accept(
    folder: LogFolder,
    log: LogFile,
    number: int,
    parts: Sequence[Part],
    *,
    run: str,
    boundary: int = 0,
    clock: Any = time.time,
) -> Accepted:
    """Puts a batch into the log, if it is not there. `number` is that of the log."""
    # What plait writes between a mark and its commit is named by the batch before.
    fitting = (number - 1, number)
    strange = [part.name for part in parts if number_of_segment(part.name) not in fitting]
    if strange:
        raise StateError(f"{folder}: {strange[0]} is not a segment of batch {number}")
    last = folder.read_end()
    if last is not None and number > last:
        raise StateError(
            f"{folder}: the log has ended with batch {last}; batch {number} is after it"
        )
    there = folder.range()
    oldest, newest = (None, None) if there is None else there
    judgement = judge_append(number, oldest=oldest, newest=newest)
    if judgement == "hole":
        raise StateError(
            f"{folder}: batch {number} comes after batch {newest}, so there would be a hole; the"
            " writer and the log do not belong together"
        )
    if judgement == "there":
        return repeated(folder, log, number, parts)
    batch = BatchFile(
        number=number,
        writer=log.owner.writer,
        run=run,
        parts=tuple(parts),
        committed_at=clock(),
        boundary=boundary,
    )
    if folder.create(folder.batch_path(number), encode(batch)):
        return Accepted(number, created=True)
    return repeated(folder, log, number, parts)


def repeated(folder: LogFolder, log: LogFile, number: int, parts: Sequence[Part]) -> Accepted:
    """A batch that is in the log, or was until all had read it: accepted before."""
    there = folder.read_batch(number)
    if there is None:
        return Accepted(number, created=False)
    if there.writer != log.owner.writer:
        raise StateError(
            f"{folder}: batch {number} is of {there.writer}, not of {log.owner.writer}"
        )
    rows = sum(part.rows for part in parts)
    told = ""
    if rows != there.rows:
        told = (
            f"{folder}: batch {number} came again with {rows:,} rows, and has {there.rows:,} in"
            " the log, which stay: the query does not give the same rows for the same input"
        )
    return Accepted(number, created=False, told=told)


def end_log(folder: LogFolder) -> int:
    """Nothing comes after the newest batch; gives its number. It may be called again."""
    last = folder.read_end()
    if last is not None:
        return last
    folder.make()
    there = folder.range()
    newest = -1 if there is None else there[1]
    folder.create(folder.root / END, json.dumps({"last": newest}).encode())
    found = folder.read_end()
    assert found is not None
    return found
