"""Readers of single files, one class a format: a schema, and rows from a number on.

Parquet is read by row groups, JSONL and text by blocks, CSV in `csv_reader`. A bad line is always
named by file, line number and text: what is quick is for good data.
"""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import BadRow, PolledRows, fit_rows
from plait.connectors.formats import text_files
from plait.connectors.formats.csv_reader import CsvReader
from plait.connectors.formats.file_reader import START, Anchor, EmptyFile, FileReader
from plait.connectors.formats.json_lines import block_reader, infer_lines
from plait.connectors.formats.text_files import DAMAGED, mark_bytes, open_utf8, shown
from plait.errors import SchemaError, SourceError
from plait.model.schema import Schema
from plait.results.result import BadLine

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOKED_AT = 1000
"""How many first lines of a JSONL file its schema is taken from."""


class ParquetReader(FileReader):
    """Reads row groups; to go on at a row it skips the groups before it."""

    def open(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            self.file = pq.ParquetFile(self.path)
        except pa.ArrowException as error:
            raise self.failed(f"no Parquet file: {error}") from None
        except OSError as error:
            raise self.failed(error.strerror or error) from None
        try:
            self.settle(Schema.of(self.file.schema_arrow))
        except BaseException as error:
            self.close()
            if isinstance(error, SchemaError):
                raise self.failed(error) from None
            raise

    def batches(self, start_row: int, anchor: Anchor = START) -> Iterator[PolledRows]:
        import pyarrow as pa

        group = row = 0
        while group < self.file.num_row_groups:
            rows = self.file.metadata.row_group(group).num_rows
            if start_row < row + rows:
                break
            row += rows
            group += 1
        groups = list(range(group, self.file.num_row_groups))
        if not groups:
            return
        there = [name for name in self.schema.names if name in self.file.schema_arrow.names]
        try:
            for batch in self.file.iter_batches(
                self.options.batch_rows, row_groups=groups, columns=there
            ):
                skipped = min(max(start_row - row, 0), batch.num_rows)
                yield self.rows_of(batch.slice(skipped), row + skipped)
                row += batch.num_rows
        except (pa.ArrowException, OSError, SourceError) as error:
            hint = "; give schema= if the files have different types" * self.only_known
            raise self.failed(f"{error}{hint}") from None

    def rows_of(self, batch: Any, row: int) -> PolledRows:
        import pyarrow as pa

        for field in self.schema:
            if field.name not in batch.schema.names:
                batch = batch.append_column(field.name, pa.nulls(batch.num_rows))
        return fit_rows(
            batch, self.schema, f"{self.path}: row", row + 1, rounding=self.options.rounding
        )

    def close(self) -> None:
        self.file.close()


class LineReader(FileReader):
    """Reads files whose rows are lines."""

    anchor: Anchor | None = None
    """Of the block that was read last."""

    def find_anchor(self) -> Anchor | None:
        return self.anchor

    def start(self, anchor: Anchor) -> Anchor:
        """Where the text begins, after a mark."""
        if anchor != START or not self.has_bytes:
            return anchor
        return Anchor(byte=mark_bytes(self.path))

    def stream(self, byte: int = 0) -> Any:
        try:
            return open_utf8(self.path, self.options, byte)
        except OSError as error:
            raise self.failed(error.strerror or error) from None

    def blocks(self, stream: Any, *, start: bool = True) -> Iterator[bytes]:
        try:
            yield from text_files.blocks(stream, start=start)
        except DAMAGED as error:
            raise self.damaged(error) from None
        except UnicodeError as error:
            raise self.failed(f"{self.options.not_text()} ({error})") from None


class JsonlReader(LineReader):
    """Reads one JSON object a line; `json_lines` says what a value may look like."""

    def open(self) -> None:
        if self.wanted is not None:
            self.schema = self.wanted
            if not os.path.exists(self.path):
                raise self.failed("no such file")
            return
        with self.stream() as stream:
            lines = list(itertools.islice(numbered(self.whole(stream)), LOOKED_AT))
        if not lines:
            raise EmptyFile(f"{self.path} has no line to take the schema from; give schema=")
        self.schema = infer_lines(self.path, lines)

    def whole(self, stream: Any, *, start: bool = True) -> Iterator[bytes]:
        """The blocks of the file, which must not be a single array."""
        for number, block in enumerate(self.blocks(stream, start=start)):
            if start and number == 0 and re.match(rb"\s*\[", block):
                raise self.failed(
                    "is one JSON array, and JSONL has one object a line; convert it, for example "
                    "with jq -c '.[]', or read it yourself: plait.stream(json.load(file))"
                )
            yield block

    def batches(self, start_row: int, anchor: Anchor = START) -> Iterator[PolledRows]:
        read = block_reader(self.path, self.schema, only_known=self.only_known)
        at = self.start(anchor)
        with self.stream(anchor.byte) as stream:
            for block in self.whole(stream, start=anchor == START):
                self.anchor = at if self.has_bytes else None
                skipped = max(start_row - at.row, 0)
                rows, found, ends = read(block, skipped, at.line)
                at = Anchor(at.byte + len(block), at.row + found, at.line + ends)
                if skipped < found:
                    yield rows


def numbered(pieces: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    number = 0
    for piece in pieces:
        lines = piece.split(b"\n")
        yield from ((number + i, text) for i, text in enumerate(lines, 1) if text.strip())
        number += len(lines) - 1


class TextReader(LineReader):
    """Reads lines as they are, without their ends; on request with the file and the number."""

    def open(self) -> None:
        columns: dict[str, type] = {"line": str}
        if self.options.file_and_line:
            columns |= {"file": str, "line_number": int}
        self.schema = Schema.of(columns)
        if not os.path.exists(self.path):
            raise self.failed("no such file")

    def batches(self, start_row: int, anchor: Anchor = START) -> Iterator[PolledRows]:
        at = self.start(anchor)
        with self.stream(anchor.byte) as stream:
            for block in self.blocks(stream, start=anchor == START):
                lines = block.removesuffix(b"\n").split(b"\n")
                self.anchor = at if self.has_bytes else None
                skipped = min(max(start_row - at.row, 0), len(lines))
                first = at.row + skipped + 1
                at = Anchor(at.byte + len(block), at.row + len(lines), at.line + len(lines))
                if skipped < len(lines):
                    yield self.rows_of(lines[skipped:], first)

    def rows_of(self, lines: list[bytes], first: int) -> PolledRows:
        import pyarrow as pa

        texts: list[str] = []
        numbers: list[int] = []
        bad: list[BadRow] = []
        for i, line in enumerate(lines):
            try:
                texts.append(line.removesuffix(b"\r").decode())
                numbers.append(first + i)
            except UnicodeDecodeError:
                text = shown(line.decode("utf-8", "surrogateescape"))
                where = BadLine(file=self.path, line=first + i, text=text)
                bad.append(BadRow(row=i, reason=self.options.not_text(), record=where))
        columns: list[Any] = [texts]
        if self.options.file_and_line:
            name = self.path.removeprefix(self.options.left_out)
            columns += [[name] * len(texts), numbers]
        arrow = self.schema.to_arrow()
        arrays = [pa.array(v, kind) for v, kind in zip(columns, arrow.types, strict=True)]
        return PolledRows(pa.RecordBatch.from_arrays(arrays, schema=arrow), tuple(bad))


READERS: dict[str, type[FileReader]] = {
    "parquet": ParquetReader,
    "csv": CsvReader,
    "jsonl": JsonlReader,
    "text": TextReader,
}
