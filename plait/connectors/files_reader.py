"""Reads the files of a `Files` one after the other, from the start or from a position."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import PolledRows
from plait.connectors.base import Reader
from plait.connectors.file_positions import NO_FILE, anchor_of, find_rest, position_of, stamp_file
from plait.connectors.formats.file_reader import START, UNIT_BYTES, FileReader, rows_within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.connectors.files import Files
    from plait.model.schema import Schema


class FilesReader(Reader):
    """Batches are cut to what is asked for."""

    def __init__(self, source: Files, schema: Schema, position: Any = None) -> None:
        self.source = source
        self.schema = schema
        if position is None:
            self.listed_ns = time.time_ns()
            self.paths = source.paths()
            self.row = 0
            self.anchor = START
        else:
            self.listed_ns = int(position["listed"]) if isinstance(position, dict) else 0
            over = isinstance(position, dict) and position.get("path") is None
            there = [] if over else source.paths()
            self.paths = find_rest(there, position, ", ".join(source.given))
            self.row = int(position["row"])
            self.anchor = anchor_of(position)
        self.file = 0
        self.stamp: dict[str, Any] | None = None
        """Of the present file, once it was asked for."""
        self.reader: FileReader | None = None
        self.batches: Iterator[PolledRows] = iter(())
        self.rest: PolledRows | None = None
        """Rows that were decoded and not yet handed out, or None."""

    def require(self, schema: Schema) -> None:
        self.schema = schema

    def poll(self, max_rows: int) -> Any:
        rest = self.find_rows()
        if rest is None:
            return None
        if rest.bad:
            if rest.bad[0].row == 0:
                raise rest.bad[0].error()
            max_rows = min(max_rows, rest.bad[0].row)
        return self.take(rest, max_rows).good

    def poll_with_bad(self, max_rows: int) -> Any:
        rest = self.find_rows()
        return None if rest is None else self.take(rest, max_rows)

    def take(self, rest: PolledRows, max_rows: int) -> PolledRows:
        if rest.good.nbytes > UNIT_BYTES:
            max_rows = min(max_rows, rows_within(rest.good, max_rows, UNIT_BYTES))
        rows, others = rest.split(max_rows)
        self.row += len(rows)
        self.rest = others if len(others) else None
        if not self.source.rename:
            return rows
        return PolledRows(with_names(rows.good, self.schema), rows.bad)

    def find_rows(self) -> PolledRows | None:
        """The rows at hand, or the next ones; None at the end of all files."""
        while self.rest is None:
            if self.file >= len(self.paths):
                return None
            if self.reader is None:
                self.reader = self.source.reader(self.paths[self.file], self.schema)
                self.batches = self.reader.batches(self.row, self.anchor)
            self.rest = next(self.batches, None)
            if self.rest is None:
                self.close()
                self.file, self.row = self.file + 1, 0
                self.anchor, self.stamp = START, None
            elif len(self.rest) == 0:
                self.rest = None
        return self.rest

    def position(self) -> dict[str, Any]:
        left = self.paths[self.file :]
        if not left:
            return position_of(NO_FILE, 0, START, left, self.listed_ns)
        if self.stamp is None:
            self.stamp = stamp_file(left[0])
        if self.reader is not None:
            self.anchor = self.reader.find_anchor() or self.anchor
        return position_of(self.stamp, self.row, self.anchor, left, self.listed_ns)

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader, self.batches, self.rest = None, iter(()), None


def with_names(rows: Any, schema: Schema) -> Any:
    """Rows of a file under the names of the schema."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(rows.columns, schema=schema.to_arrow())
