"""`BatchLog`: a folder of numbered batches, as a source and as a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.connectors.base import Resume, Sink, Source
from plait.connectors.batch_log.append import (
    SegmentWriter,
    accept,
    check_columns,
    end_log,
    make_log,
    sync_segments,
)
from plait.connectors.batch_log.follow import LogFollower, PlainLogWriter, as_sink_error
from plait.connectors.batch_log.read import BatchLogReader
from plait.connectors.batch_log.retire import tell_read
from plait.connectors.batch_log.storage import LogFolder
from plait.errors import SinkError, SourceError, StateError
from plait.model.schema import Field, Schema

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from plait.connectors.base import Reader, Writer
    from plait.connectors.batch_log.layout import LogFile


class BatchLog(Source, Sink):
    """A folder of numbered batches, written once and read in order: between Spark and plait, or
    between two jobs. Spark writes and reads it as the format "plait".

    As a source it gives the batches in order, waits for more, and ends when the log has ended
    (`end`). As a sink it gets a batch for each checkpoint that has rows, each row exactly once.

    Args:
        path: a folder that the writer and all readers see.
        schema: its columns, for a log that is not there yet: the job then waits for it. Of a log
            that is there: the columns to read.
        required: columns that are never null: Spark says of most that they may be, and an event
            time may not. A null in one of them is an error.
        order_by: sort each batch by this column, for the event time of a log that Spark wrote: its
            partitions come one after the other, so that the time goes back at each of them.
        reader: the name under which the log knows this reader. In a job with `checkpoint=` it has
            one of itself: job and source.
        once: remove what was read. For runs without `checkpoint=`; they cannot begin anew.
        label: its name in results and errors.

    >>> import plait, tempfile
    >>> log = plait.BatchLog(tempfile.mkdtemp() + "/bids")
    >>> _ = plait.stream([{"price": 3}, {"price": 5}]).sink(log).run()
    >>> _ = log.end()
    >>> [bid.price for bid in plait.stream(log).collect()]
    [3, 5]
    """

    kind = "follower"
    bounded = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Any = None,
        *,
        required: Sequence[str] = (),
        order_by: str = "",
        reader: str = "",
        once: bool = False,
        label: str = "",
    ) -> None:
        try:
            self.folder = LogFolder(path)
        except StateError as error:
            raise SourceError(str(error)) from None
        if isinstance(required, str):
            raise SourceError('BatchLog: required= takes a list of columns, such as ["ts"]')
        self.given = None if schema is None else Schema.of(schema)
        self.required = frozenset(required)
        self.order_by = order_by
        self.reader = reader
        self.once = once
        self.replayable = not once
        self.label = label

    def __repr__(self) -> str:
        return f"BatchLog({str(self.folder)!r})"

    def __getattr__(self, name: str) -> Any:
        # Reached only while the schema is not known yet: a sink's log need not be there.
        if name != "schema" or "given" not in self.__dict__:
            raise AttributeError(name)
        log = self.read_log()
        if log is not None:
            self.check_log(log)
        elif self.given is None:
            raise SourceError(
                f"{self.folder}: there is no batch log yet; start its writer first, or give schema="
            )
        self.schema = self.narrowed(self.given if log is None else log.schema)
        return self.schema

    def narrowed(self, found: Schema | None) -> Schema:
        """The columns as the user wants them, of those in the log."""
        base = self.given or found
        assert base is not None
        unknown = sorted(self.required - set(base.names))
        if unknown:
            raise SourceError(f'{self.folder}: required= names no column "{unknown[0]}"')
        fields = [
            Field(field.name, field.type, field.nullable and field.name not in self.required)
            for field in base
        ]
        return Schema(tuple(fields), base.record_class)

    def read_log(self) -> LogFile | None:
        """What the log is; None: it is not there yet."""
        try:
            return self.folder.read_log()
        except (StateError, OSError) as error:
            raise SourceError(str(error)) from None

    def check_log(self, log: LogFile) -> None:
        """Raises if the columns that are asked for are not in the log."""
        for field in self.given or ():
            if field.name not in log.schema:
                have = ", ".join(log.schema.names)
                raise SourceError(f'{self.folder} has no column "{field.name}"; it has: {have}')
            found = log.schema[field.name].type
            if found is not field.type:
                raise SourceError(
                    f'{self.folder}: column "{field.name}" is {found.value} in the log, not'
                    f" {field.type.value}"
                )
        if self.order_by and self.order_by not in log.schema:
            have = ", ".join(log.schema.names)
            raise SourceError(
                f'{self.folder}: order_by="{self.order_by}" is no column; it has: {have}'
            )

    def check(self, given: Any = None) -> None:
        """Raises if the log cannot be read as described, or rows of the schema not be written."""
        if given is None:
            _ = self.schema
            return
        used = {"required": self.required, "order_by": self.order_by, "once": self.once}
        wrong = [name for name, value in used.items() if value]
        if wrong:
            raise SinkError(f"BatchLog: {wrong[0]}= is for reading")
        as_sink_error(lambda: check_columns(self.folder, given))

    def check_time(self, column: str) -> None:
        """The event time inside a batch of Spark's goes back at each partition."""
        log = self.read_log()
        if self.order_by or (log is not None and log.kind == "plait"):
            return
        shown = column or "ts"
        raise SourceError(
            f"{self.folder}: Spark wrote this log, or may write it: the partitions of a batch come"
            f" one after the other, so that most rows would be late. Sort each batch by its time:"
            f' plait.BatchLog(..., order_by="{shown}")'
        )

    def open(self, given: Any = None, resume: Resume | None = None) -> Any:
        """A Reader at a position or the start; a Writer when given the Schema of the rows."""
        if isinstance(given, Schema):
            return self.open_writer(given, resume)
        return self.open_reader(given)

    def open_reader(self, position: Any) -> Reader:
        """A reader at the oldest batch, or at a position."""
        try:
            return BatchLogReader(self, position)
        except (StateError, OSError) as error:
            raise SourceError(str(error)) from None

    def open_writer(self, schema: Schema, resume: Resume | None) -> Writer:
        """A writer of the next batches."""
        if resume is None:
            return PlainLogWriter(self.folder, schema)
        return LogFollower(self.folder, schema, resume)

    def has_read(self, number: int) -> None:
        """The reader has read all batches before this one."""
        if self.once:
            tell_read(self.folder, self.reader or "once", read=number, needed=number)

    def release(self, positions: Sequence[Any], who: str) -> None:
        """Removes batches that no kept checkpoint goes back to, if no other reader needs them."""
        batches = [int(position[0]) for position in positions if position[3] is not None]
        if batches and len(batches) == len(positions):
            name = self.reader or who
            tell_read(self.folder, name, read=max(batches), needed=min(batches))

    def position_after(self, until: Any) -> Any:
        """Of the number of a batch: everything before it is read."""
        if isinstance(until, bool) or not isinstance(until, int):
            return until
        log = self.read_log()
        if log is None:
            raise SourceError(f"{self.folder}: there is no batch log yet, so there is no batch")
        return [until, 0, 0, log.crc]

    def append(self, number: int, rows: Any, *, writer: str) -> bool:
        """Puts a batch into the log by hand; False: it was there already. For a writer with its own
        numbers, such as a function of Spark's `foreachBatch`: they have no holes, and a number that
        comes again is accepted once.

        >>> import plait, pyarrow, tempfile
        >>> log = plait.BatchLog(tempfile.mkdtemp() + "/bids")
        >>> log.append(0, pyarrow.table({"price": [3, 5]}), writer="me")
        True
        >>> log.append(0, pyarrow.table({"price": [3, 5]}), writer="me")
        False
        """
        from plait.connectors.columns import canonical

        schema = Schema.of(rows.schema) if self.given is None else self.given
        self.folder.make()
        as_sink_error(lambda: check_columns(self.folder, schema))
        log = as_sink_error(
            lambda: make_log(self.folder, schema, writer=writer, kind="other", first=number)
        )
        at = number + log.owner.shift
        segment = SegmentWriter(self.folder, at, part=0, attempt="0", schema=schema)
        try:
            for batch in canonical(rows, schema).to_batches():
                segment.write(batch)
            part = segment.close()
            sync_segments(self.folder, [part])
        except BaseException:
            segment.drop()
            raise
        parts = [part] if part.rows else []
        done = as_sink_error(lambda: accept(self.folder, log, at, parts, run=writer))
        if not done.created or not parts:
            segment.drop()
        return bool(done.created)

    def end(self) -> int:
        """Nothing comes after the newest batch, whose number it gives: readers end there."""
        return int(as_sink_error(lambda: end_log(self.folder)))
