"""Reads a batch log: batch after batch, part after part, row after row.

The position is [batch, part, row, crc]: the next row, and the CRC-32 of the batch file it is in, or
of the log's own id between two batches. With `order_by` each batch is sorted, stably, before it is
handed out, and the place of `part` is taken by the name of the column. A batch that should be there
and is not, or has other bytes, is an error: never a hole.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Backlog, Reader, Wait
from plait.connectors.batch_log.layout import BatchFile, LogFile, Part, decode_batch
from plait.errors import PlaitError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.connectors.batch_log.log import BatchLog
    from plait.connectors.batch_log.storage import LogFolder
    from plait.model.schema import Schema

WAIT_S = 0.02
LOOK_S = 1.0
"""How often a reader that waits for a batch makes sure that it was not removed."""
MOST_SORTED_BYTES = 1 << 30


class BatchLogReader(Reader):
    """Reads what is there and waits for more, until the log has ended."""

    def __init__(self, source: BatchLog, position: Any = None) -> None:
        self.source = source
        self.folder = source.folder
        self.columns: tuple[str, ...] = source.schema.names
        self.log: LogFile | None = None
        self.schema = source.schema
        """Of the log, once it is there."""
        self.number = 0
        self.part = 0
        self.row = 0
        self.batch: BatchFile | None = None
        """The one that is being read."""
        self.crc = 0
        """Of its file."""
        self.batches: Iterator[Any] = iter(())
        """Of the part that is being read, from the row on."""
        self.rest: Any = None
        self.looked_at = 0.0
        self.given = position
        self.started = False
        self.start()

    def require(self, schema: Schema) -> None:
        self.columns = schema.names

    # Where it begins

    def start(self) -> bool:
        """Finds the log and the place in it; False: there is no log yet."""
        if self.started:
            return True
        self.log = self.folder.read_log()
        if self.log is None:
            if self.given is not None and self.given[3] is not None:
                raise SourceError(f"{self.folder}: the log is gone, and the job has read from it")
            return False
        self.source.check_log(self.log)
        self.schema = self.log.schema
        if self.given is None or self.given[3] is None:
            there = self.folder.range()
            self.number = self.log.owners[0].first if there is None else there[0]
        else:
            self.go_to(self.log, self.given)
        self.started = True
        return True

    def go_to(self, log: LogFile, position: Any) -> None:
        number, part, row, crc = position
        order_by = part if isinstance(part, str) else ""
        self.number, self.row = int(number), int(row)
        self.part = 0 if order_by else int(part)
        if self.part == 0 and self.row == 0:
            if crc != log.crc:
                raise self.changed("it is another log")
            return
        if order_by != self.source.order_by:
            raise SourceError(
                f"{self.folder}: the job goes on in the middle of batch {self.number}, which it"
                f" read with order_by={order_by!r}; this is order_by={self.source.order_by!r}"
            )
        if not self.load_batch():
            raise self.missing()
        if crc != self.crc:
            raise self.changed(f"{self.folder.batch_path(self.number)} has other bytes")

    def position(self) -> list[Any]:
        if self.log is None:
            return [0, 0, 0, None]
        inside = self.part > 0 or self.row > 0
        part: Any = self.part
        if inside and self.source.order_by:
            part = self.source.order_by
        return [self.number, part, self.row, self.crc if inside else self.log.crc]

    # Rows

    def poll(self, max_rows: int) -> Any:
        try:
            if not self.start():
                return Wait(WAIT_S)
            while self.rest is None:
                if not self.load_batch():
                    return self.wait()
                self.rest = next(self.batches, None)
                if self.rest is None:
                    self.next_part()
        except SourceError:
            raise
        except (PlaitError, OSError) as error:
            raise SourceError(str(error)) from None
        rows = self.rest.slice(0, max_rows)
        left = self.rest.slice(max_rows)
        self.rest = left if left.num_rows else None
        self.row += rows.num_rows
        if self.rest is None and self.row == self.rows_here():
            self.next_part()
        return rows.select(list(self.columns))

    def rows_here(self) -> int:
        """Of the part, or of the batch if it is sorted."""
        assert self.batch is not None
        return self.batch.rows if self.source.order_by else self.batch.parts[self.part].rows

    def next_part(self) -> None:
        """The part is read; so may be the batch."""
        assert self.batch is not None
        self.row, self.batches = 0, iter(())
        self.part += 1
        if self.source.order_by or self.part >= len(self.batch.parts):
            self.number, self.part, self.batch = self.number + 1, 0, None
            self.source.has_read(self.number)
        else:
            self.batches = self.batches_of(self.batch.parts[self.part], 0)

    def load_batch(self) -> bool:
        """Takes up the batch at the position; False: it is not there."""
        if self.batch is not None:
            return True
        data = self.folder.batch_data(self.number)
        if data is None:
            return False
        path = self.folder.batch_path(self.number)
        batch = decode_batch(data, path)
        if batch.number != self.number:
            raise self.changed(f"{path} says that it is batch {batch.number}")
        self.crc = zlib.crc32(data)
        if self.source.order_by:
            self.batches = self.sorted_batches(batch)
        elif self.part < len(batch.parts):
            self.batches = self.batches_of(batch.parts[self.part], self.row)
        self.batch = batch
        return True

    def batches_of(self, part: Part, skip: int) -> Iterator[Any]:
        """The rows of a part from a row on."""
        for batch in open_segment(self.folder, self.schema, self.number, part):
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            yield batch.slice(skip)
            skip = 0

    def sorted_batches(self, batch: BatchFile) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if batch.size_bytes > MOST_SORTED_BYTES:
            raise SourceError(
                f"{self.folder}: batch {batch.number} has {batch.size_bytes:,} bytes, too many to"
                " sort; let Spark take less at a time (maxOffsetsPerTrigger, maxBytesPerTrigger)"
            )
        parts = [
            piece
            for part in batch.parts
            for piece in open_segment(self.folder, self.schema, batch.number, part)
        ]
        if not parts:
            return iter(())
        table = pa.Table.from_batches(parts)
        column = table.column(self.source.order_by)
        if column.null_count:
            raise SourceError(
                f"{self.folder}: batch {batch.number} has {column.null_count:,} nulls in"
                f' "{self.source.order_by}", by which it is to be sorted'
            )
        indices = pc.sort_indices(column)  # stable
        return iter(table.take(indices).slice(self.row).combine_chunks().to_batches())

    def wait(self) -> Wait | None:
        """Nothing is there: later there may be, unless the log has ended or the batch is gone."""
        now = time.monotonic()
        if now - self.looked_at < LOOK_S and self.looked_at:
            return Wait(WAIT_S)
        last = self.folder.read_end()
        there = self.folder.range()
        if there is not None and there[1] >= self.number:
            if there[0] <= self.number:
                return Wait(0.0)  # it came just now
            raise self.missing()
        if last is not None and self.number > last:
            return None
        self.looked_at = now
        return Wait(WAIT_S)

    def backlog(self) -> Backlog | None:
        """What is in the log and not read by this reader."""
        there = self.folder.range()
        if self.log is None or there is None:
            return Backlog(rows=0, oldest_s=0.0)
        rows, oldest = 0, 0.0
        for number in range(self.number, there[1] + 1):
            batch = self.folder.read_batch(number)
            if batch is None:
                continue
            rows += batch.rows
            oldest = oldest or batch.committed_at
        if self.batch is not None:
            before = () if self.source.order_by else self.batch.parts[: self.part]
            rows -= sum(part.rows for part in before) + self.row
        return Backlog(rows=rows, oldest_s=max(0.0, time.time() - oldest) if rows else 0.0)

    def close(self) -> None:
        self.rest, self.batches = None, iter(())

    # Errors

    def missing(self) -> SourceError:
        there = self.folder.range()
        have = "it has no batches" if there is None else f"it has {there[0]} to {there[1]}"
        return SourceError(
            f"{self.folder}: batch {self.number}, which the job reads next, is gone ({have});"
            " removed by hand, or by plait log forget"
        )

    def changed(self, why: str) -> SourceError:
        return SourceError(f"{self.folder}: the input has changed since the checkpoint: {why}")


def open_segment(folder: LogFolder, schema: Schema, number: int, part: Part) -> Iterator[Any]:
    """The batches of a segment, which is mapped, not read: its size and CRC-32 are checked before
    anything is made of its bytes."""
    import pyarrow as pa

    path = folder.segments / part.name
    where = f"batch {number}, {path}"
    try:
        mapped = pa.memory_map(str(path))
    except FileNotFoundError:
        raise SourceError(f"{where} is gone, with {part.rows:,} rows") from None
    data = mapped.read_buffer()
    if data.size != part.size_bytes:
        raise SourceError(
            f"{where} is damaged: it has {data.size:,} bytes, and {part.size_bytes:,} were written"
        )
    if zlib.crc32(data) != part.crc:
        raise SourceError(f"{where} is damaged: its bytes are not those that were written")
    stream = pa.ipc.open_stream(data)
    if not stream.schema.equals(schema.to_arrow()):
        raise SourceError(f"{where} has the columns {stream.schema.names}, which are not the log's")
    batches = [batch for batch in stream if batch.num_rows]
    rows = sum(batch.num_rows for batch in batches)
    if rows != part.rows:
        raise SourceError(f"{where} has {rows:,} rows, and {part.rows:,} were written")
    return iter(batches)
