"""A batch log as a sink: one batch for each checkpoint that has rows, each row exactly once.

With `checkpoint=` it is a follower: rows go to a segment, `mark` ends it, `prepare` makes it
durable, and `commit` creates the batch file, which can be repeated. All that a checkpoint needs is
in its position: `{"next": number of the batch, "parts": [name, rows, bytes, crc]}`. Without
checkpoints a batch is made after a second or 64 MB, and when the run ends.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Resume, Writer
from plait.connectors.batch_log.append import SegmentWriter, accept, make_log, sync_segments
from plait.connectors.batch_log.layout import LogFile, Part
from plait.errors import SinkError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.connectors.batch_log.storage import LogFolder
    from plait.model.schema import Schema

PLAIN_S = 1.0
PLAIN_BYTES = 64 << 20


class LogWriter(Writer):
    """What both ways of writing share: rows go to one segment at a time."""

    def __init__(self, folder: LogFolder, schema: Schema, writer: str, run: str) -> None:
        self.folder = folder
        self.schema = schema
        self.run = run
        self.log: LogFile = as_sink_error(
            lambda: make_log(folder, schema, writer=writer, kind="plait")
        )
        there = folder.range()
        self.next = self.log.owner.first if there is None else there[1] + 1
        self.segment: SegmentWriter | None = None
        self.parts: list[Part] = []
        """Segments that are closed and in no batch yet."""

    def write(self, batch: Any) -> None:
        if self.segment is None:
            attempt = self.run.rsplit("-", 1)[-1]
            self.segment = SegmentWriter(
                self.folder,
                self.next,
                part=len(self.parts),
                attempt=attempt,
                schema=self.schema,
            )
        self.segment.write(batch)

    def end_segment(self) -> None:
        if self.segment is not None:
            segment, self.segment = self.segment, None
            self.parts.append(segment.close())

    def append(self, parts: tuple[Part, ...], boundary: int) -> None:
        """Puts a batch into the log; one that is there must be the same."""
        done = as_sink_error(
            lambda: accept(self.folder, self.log, self.next, parts, run=self.run, boundary=boundary)
        )
        if not done.created:
            there = self.folder.read_batch(self.next)
            if there is not None and there.parts != parts:
                raise SinkError(
                    f"{self.folder}: batch {self.next} is there already, with other rows; another"
                    " run writes to this log"
                )
        self.next += 1

    def close(self) -> str:
        return str(self.folder)


class PlainLogWriter(LogWriter):
    """In a run without checkpoints."""

    def __init__(
        self, folder: LogFolder, schema: Schema, clock: Callable[[], float] = time.monotonic
    ) -> None:
        run = f"run-{secrets.token_hex(8)}"
        super().__init__(folder, schema, run, f"{run}-0")
        self.clock = clock
        self.since = clock()

    def write(self, batch: Any) -> None:
        super().write(batch)
        assert self.segment is not None
        if self.segment.size_bytes >= PLAIN_BYTES or self.clock() - self.since >= PLAIN_S:
            self.show()

    def show(self) -> None:
        self.end_segment()
        if self.parts:
            sync_segments(self.folder, self.parts)
            self.append(tuple(self.parts), 0)
            self.parts = []
        self.since = self.clock()

    def close(self) -> str:
        self.show()
        return super().close()


class LogFollower(LogWriter):
    """In a job with `checkpoint=`."""

    def __init__(self, folder: LogFolder, schema: Schema, resume: Resume) -> None:
        lineage = resume.run.rsplit("-", 1)[0]
        super().__init__(folder, schema, lineage, resume.run)
        self.lock = threading.Lock()
        """Of `parts`, which both `mark` and `commit` change."""
        self.boundary = resume.boundary
        self.marked: tuple[int, tuple[Part, ...]] = (0, ())
        self.prepared: tuple[int, tuple[Part, ...]] = (0, ())
        newest = self.next - 1
        self.next = self.log.owner.first
        if resume.position is not None:
            self.restore(resume.position)
        if newest >= self.next:
            raise SinkError(
                f"{folder}: the log has batches up to {newest}, and the checkpoint that the job"
                f" goes on from knows those before {self.next}; take a new log"
            )

    def restore(self, position: Any) -> None:
        """Makes the batch of the checkpoint visible, which may have been done before."""
        self.next = int(position["next"])
        parts = tuple(
            Part(name=name, rows=rows, size_bytes=size, crc=crc)
            for name, rows, size, crc in position["parts"]
        )
        if not parts:
            return
        if self.folder.batch_data(self.next) is None:
            for part in parts:
                self.check(part)
        self.append(parts, self.boundary)

    def check(self, part: Part) -> None:
        path = self.folder.segments / part.name
        there = self.folder.range()
        if there is not None and there[0] > self.next:
            return  # the batch was read by all and removed
        if not path.exists() or path.stat().st_size != part.size_bytes:
            raise SinkError(
                f"{path} is gone or damaged, with {part.rows:,} rows that the checkpoint counts as"
                " written"
            )

    def mark(self, boundary: int) -> None:
        self.end_segment()
        with self.lock:
            self.marked = (boundary, tuple(self.parts))

    def prepare(self, boundary: int) -> Any:
        marked, parts = self.marked
        if marked != boundary:
            raise SinkError(f"{self.folder}: prepare({boundary}) without its mark")
        sync_segments(self.folder, parts)
        self.prepared = self.marked
        return {
            "next": self.next,
            "parts": [[part.name, part.rows, part.size_bytes, part.crc] for part in parts],
        }

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        if boundary <= self.boundary:
            return
        prepared, parts = self.prepared
        if prepared != boundary:
            raise SinkError(f"{self.folder}: commit({boundary}) without its prepare")
        if parts:
            with self.lock:
                self.parts = self.parts[len(parts) :]
                self.append(parts, boundary)
        self.boundary = boundary

    def close(self) -> str:
        if self.segment is not None or self.parts:
            raise SinkError(f"{self.folder}: rows came after the last checkpoint")
        return super().close()

    def abort(self) -> str:
        """What was not committed comes again; what a checkpoint may know stays."""
        if self.segment is not None:
            self.segment.drop()
            self.segment = None
        return super().close()


def as_sink_error(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except StateError as error:
        raise SinkError(str(error)) from None
