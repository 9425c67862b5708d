"""Values that are Arrow IPC streams or files, each with any number of rows.

Rows of a value that do not fit into a poll wait here. The position is then that of the record, and
how many of its rows were handed out; a reader that goes on skips these.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import BadRow, PolledRows, fit_rows
from plait.connectors.columns import to_batch
from plait.connectors.kafka.batch_decoding import RECORD, as_one
from plait.connectors.kafka.formats import NO_VALUE, Decoded
from plait.errors import SourceError

if TYPE_CHECKING:
    from plait.connectors.kafka.client import Record
    from plait.model.schema import Schema

AT_ONCE = 64
"""Records that are decoded at a time: each may have many rows."""


class Piece:
    """What is left of a record."""

    __slots__ = ("before_ms", "record", "rows", "taken")

    def __init__(self, record: Record, before_ms: int, rows: PolledRows, taken: int) -> None:
        self.record = record
        self.before_ms = before_ms
        """Of a bounded read: up to where its partition was merged before it."""
        self.rows = rows
        self.taken = taken
        """How many of its rows were handed out."""


class ArrowValues:
    """Rows that wait for the next poll."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.waiting: deque[Piece] = deque()

    def add(self, record: Record, before_ms: int, skip: int = 0) -> None:
        rows = rows_of_value(record.value, self.schema)
        if skip:
            rows = rows.split(skip)[1]
        if len(rows):
            self.waiting.append(Piece(record, before_ms, rows, skip))

    def take(self, most: int) -> tuple[list[Record], Decoded]:
        """At most so many rows: the record of each, and what they are."""
        records: list[Record] = []
        good: list[Any] = []
        numbers: list[int] = []
        reasons: dict[int, str] = {}
        while self.waiting and len(records) < most:
            piece = self.waiting[0]
            here, rest = piece.rows.split(most - len(records))
            first = len(records)
            records += [piece.record] * len(here)
            good.append(here.good)
            bad = {one.row: one.reason for one in here.bad}
            reasons |= {first + row: reason for row, reason in bad.items()}
            numbers += [first + row for row in range(len(here)) if row not in bad]
            if len(rest):
                piece.rows, piece.taken = rest, piece.taken + len(here)
            else:
                self.waiting.popleft()
        return records, Decoded(as_one(good, self.schema), numbers, reasons)


def rows_of_value(value: bytes | None, schema: Schema) -> PolledRows:
    """The rows of a value; one bad row if it is no Arrow, or has other columns."""
    import pyarrow as pa

    try:
        if value is None:
            raise SourceError(NO_VALUE)
        try:
            table = read_table(value)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise SourceError(f"no Arrow stream: {error}") from None
        rows = fit_rows(table, schema, "row", 1)
    except SourceError as error:
        reason = RECORD.sub("", str(error))
        return PolledRows(to_batch([], schema), (BadRow(row=0, reason=reason, record=None),))
    return PolledRows(as_one([rows.good], schema), rows.bad)


def read_table(value: bytes) -> Any:
    """The table in a value; what it says of itself is checked before it is believed."""
    import pyarrow as pa

    whole = value.startswith(b"ARROW1")
    with pa.ipc.open_file(value) if whole else pa.ipc.open_stream(value) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table
