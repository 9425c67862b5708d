"""Readers of single files, one class a format: a schema, and batches from a row on.

All are streams over pyarrow: Parquet by row groups, CSV and JSONL by blocks. When pyarrow refuses a
block of text, the block is read again slowly to name the line: speed is for good data, and a bad
line is always named by file, line number and text.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from typing import TYPE_CHECKING, Any, Self

from plait.connectors.columns import Rounding, canonical
from plait.connectors.json_lines import has_python_types, infer_lines, lines_to_batch, text_to_bytes
from plait.errors import SchemaError, SourceError
from plait.model.declared_json import is_written_as_text
from plait.model.schema import Field, Schema, Type, type_of_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLOCK_BYTES = 1 << 22
LOOKED_AT = 1000
"""How many first lines of a JSONL file its schema is taken from."""


class FileReader:
    """An open file. `schema` is the wanted one, or None for the file's own."""

    schema: Schema

    def __init__(
        self,
        path: str,
        schema: Schema | None,
        *,
        only_known: bool,
        batch_rows: int,
        rounding: Rounding = "error",
    ) -> None:
        self.path = path
        self.rounding = rounding
        self.only_known = only_known
        self.batch_rows = batch_rows
        self.wanted = schema
        self.open()

    def open(self) -> None:
        raise TypeError(f"{type(self).__name__} has no method open()")

    def batches(self, start_row: int) -> Iterator[Any]:
        """The rows from `start_row` on, as RecordBatches of the schema."""
        raise TypeError(f"{type(self).__name__} has no method batches(start_row)")

    def close(self) -> None:
        """Gives the file back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def failed(self, what: object) -> SourceError:
        return SourceError(f"{self.path}: {what}")

    def settle(self, own: Schema) -> None:
        """Takes the wanted schema, or the file's own; the wanted columns must be in the file."""
        self.schema = self.wanted or own
        missing = [name for name in self.schema.names if name not in own]
        extra = [name for name in own.names if name not in self.schema] if self.only_known else []
        if missing or extra:
            raise self.failed(
                f"its columns are {', '.join(own.names)}; expected {', '.join(self.schema.names)}"
                + (" as in the first file, or give schema=" if self.only_known else "")
            )


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

    def batches(self, start_row: int) -> Iterator[Any]:
        import pyarrow as pa

        group = 0
        while group < self.file.num_row_groups:
            rows = self.file.metadata.row_group(group).num_rows
            if start_row < rows:
                break
            start_row -= rows
            group += 1
        groups = list(range(group, self.file.num_row_groups))
        if not groups:
            return
        try:
            for batch in self.file.iter_batches(
                self.batch_rows, row_groups=groups, columns=list(self.schema.names)
            ):
                skipped = min(start_row, batch.num_rows)
                start_row -= skipped
                yield canonical(batch.slice(skipped), self.schema, self.rounding)
        except (pa.ArrowException, OSError, SourceError) as error:
            raise self.failed(error) from None

    def close(self) -> None:
        self.file.close()


class CsvReader(FileReader):
    """Reads CSV with a header line. An empty field is null, a quoted empty one is a text."""

    def open(self) -> None:
        import pyarrow as pa

        self.read_types: dict[str, Any] = {}
        self.one_column = False
        """An empty line is then a row: its one field is null."""
        try:
            with self.stream({}, 0) as reader:
                own = reader.schema
        except pa.ArrowException as error:
            raise self.explained(error) from None
        except OSError as error:
            raise self.failed(error.strerror or error) from None
        self.one_column = len(own) == 1
        fields = []
        for column in own:
            kind = type_of_arrow(column.type)
            if pa.types.is_binary(column.type):
                raise self.failed(f'column "{column.name}" has text that is not UTF-8')
            # Arrow sees clock times and all-empty columns; plait has no type for these.
            fields.append(Field(column.name, Type.STRING if kind is Type.OBJECT else kind, True))
        try:
            self.settle(Schema(tuple(fields)))
        except SchemaError as error:
            raise self.failed(error) from None
        for field in self.schema:
            self.read_types[field.name] = self.read_type(field, own.field(field.name).type)

    def read_type(self, field: Field, seen: Any) -> Any:
        import pyarrow as pa

        if field.type is Type.OBJECT and not is_written_as_text(field.declared):
            raise self.failed(f'column "{field.name}": a CSV file has no objects; choose a type')
        if field.type in (Type.BYTES, Type.OBJECT):
            return pa.string()
        if field.type is Type.TIMESTAMP:
            zoneless = pa.types.is_date(seen) or (pa.types.is_timestamp(seen) and seen.tz is None)
            return pa.timestamp("us", None if zoneless else "UTC")
        return Schema((field,)).to_arrow().field(0).type

    def stream(self, types: dict[str, Any], skip: int, text: Any = None) -> Any:
        """The file from a row on, or other text of its kind. Arrow reads its first block here."""
        import pyarrow as pa
        import pyarrow.csv as pc

        return pc.open_csv(
            text or pa.input_stream(self.path),
            # One thread: only then do errors say the row.
            pc.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, skip_rows_after_names=skip),
            pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=not self.one_column),
            pc.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def batches(self, start_row: int) -> Iterator[Any]:
        import pyarrow as pa

        row = start_row
        try:
            with self.stream(self.read_types, start_row) as reader:
                for batch in reader:
                    yield self.fitting(batch, row)
                    row += batch.num_rows
        except pa.ArrowException as error:
            yield from self.good_rows(row, error)
            raise self.explained(error) from None
        except OSError as error:
            raise self.failed(error.strerror or error) from None

    def fitting(self, batch: Any, row: int) -> Any:
        self.refuse_nulls(batch, row)
        try:
            return canonical(text_to_bytes(batch, self.schema), self.schema)
        except SourceError as error:
            raise self.failed(error) from None

    def good_rows(self, first: int, error: Exception) -> Iterator[Any]:
        """The rows from `first` to the one Arrow refused, which it refused a whole block for."""
        import pyarrow as pa

        found = re.search(r"Row #(\d+): ", re.sub(r"\s+", " ", str(error)))
        if found is None or int(found[1]) - 2 <= first:
            return
        text = "".join(self.rows_between(first, int(found[1]) - 2)).encode()
        try:
            with self.stream(self.read_types, 0, pa.BufferReader(text)) as reader:
                for batch in reader:
                    yield self.fitting(batch, first)
                    first += batch.num_rows
        except pa.ArrowException:
            return  # not even these: the error of the block says what there is to say

    def rows_between(self, first: int, end: int) -> Iterator[str]:
        """The text of the header and of the rows from `first` up to `end`."""
        import pyarrow as pa

        text = io.TextIOWrapper(pa.input_stream(self.path), "utf-8", "replace", newline="")
        with text:
            lines: list[str] = []
            number = -1
            for record in csv.reader(remembered(text, lines)):
                if record or self.one_column:
                    if number == end:
                        return
                    if number == -1 or number >= first:
                        yield "".join(lines)
                    number += 1
                lines.clear()

    def refuse_nulls(self, batch: Any, row: int) -> None:
        for field in self.schema:
            column = batch.column(field.name)
            if column.null_count and not field.nullable:
                at = row + column.is_null().to_pylist().index(True)
                raise self.failed(
                    f'{self.place(at + 2)}: column "{field.name}" is empty, but is {field} '
                    "and not nullable"
                )

    def explained(self, error: Exception) -> SourceError:
        """Arrow's message with the line instead of its row number, and the line's text."""
        said = re.sub(r"\s+", " ", str(error))
        row = re.search(r"Row #(\d+): ", said)
        if row is None:
            return self.failed(said)
        column = re.search(r"In CSV column #(\d+)", said)
        what = said[row.end() :].removeprefix("CSV conversion error to ")
        if column is not None:
            name = list(self.read_types)[int(column[1])]
            what = f'column "{name}": expected {what}'
        else:
            what = what.split(": ")[0]
        return self.failed(f"{self.place(int(row[1]))}: {what}")

    def place(self, row: int) -> str:
        """The line of a row (the header is row 1) and its text; a row may span lines."""
        import pyarrow as pa

        text = io.TextIOWrapper(pa.input_stream(self.path), "utf-8", "replace", newline="")
        with text:
            lines: list[str] = []
            rows = csv.reader(remembered(text, lines))
            for record in rows:
                row -= bool(record or self.one_column)
                if row == 0:
                    begin = rows.line_num - len(lines) + 1
                    return f"line {begin:,} {quoted(''.join(lines))}"
                lines.clear()
        return "a row at the end"


class JsonlReader(FileReader):
    """Reads one JSON object a line; `json_lines` says what a value may look like."""

    def open(self) -> None:
        if self.wanted is not None:
            self.schema = self.wanted
            if not os.path.exists(self.path):
                raise self.failed("no such file")
            return
        with self.stream() as stream:
            lines = itertools.islice(numbered(self.blocks(stream)), LOOKED_AT)
            self.schema = infer_lines(self.path, list(lines))

    def stream(self) -> Any:
        import pyarrow as pa

        try:
            return pa.input_stream(self.path)
        except OSError as error:
            raise self.failed(error.strerror or error) from None

    def batches(self, start_row: int) -> Iterator[Any]:
        line = 1
        by_arrow = not has_python_types(self.schema)
        with self.stream() as stream:
            for block in self.blocks(stream):
                lines = block.split(b"\n")
                rows = [(line + i, text) for i, text in enumerate(lines) if text.strip()]
                line += len(lines) - 1
                skipped = min(start_row, len(rows))
                start_row -= skipped
                if skipped == len(rows):
                    continue
                if skipped:
                    rows = rows[skipped:]
                    block = b"\n".join(text for _, text in rows)
                batch = self.read_block(block, len(rows)) if by_arrow else None
                if batch is not None:
                    yield batch
                else:
                    yield from self.read_lines(rows)

    def read_lines(self, rows: list[tuple[int, bytes]]) -> Iterator[Any]:
        """The rows one by one; those before a bad one are given before the error."""
        try:
            yield self.batch_of(rows)
        except SourceError:
            good, bad = 0, len(rows)
            while bad - good > 1:  # the first `good` rows are good, the first `bad` are not
                middle = (good + bad) // 2
                try:
                    self.batch_of(rows[:middle])
                except SourceError:
                    bad = middle
                else:
                    good = middle
            if good:
                yield self.batch_of(rows[:good])
            raise

    def batch_of(self, rows: list[tuple[int, bytes]]) -> Any:
        return lines_to_batch(self.path, rows, self.schema, only_known=self.only_known)

    def blocks(self, stream: Any) -> Iterator[bytes]:
        try:
            yield from blocks(stream)
        except OSError as error:  # a damaged archive, or the disk
            raise self.failed(error.strerror or error) from None

    def read_block(self, block: bytes, rows: int) -> Any:
        """The block as Arrow reads it, or None where it does not or might read it differently."""
        import pyarrow as pa
        import pyarrow.json as pj

        options = pj.ParseOptions(
            explicit_schema=self.schema.to_arrow().remove_metadata(),
            unexpected_field_behavior="error" if self.only_known else "ignore",
        )
        size = max(len(block) + 1, 1 << 16)
        try:
            if not block.isascii():
                block.decode()
            reading = pj.ReadOptions(use_threads=False, block_size=size)
            table = pj.read_json(pa.BufferReader(block), reading, options)
            batch = canonical(table, self.schema).combine_chunks().to_batches()
        except (pa.ArrowException, UnicodeDecodeError, SourceError, OverflowError):
            return None
        return batch[0] if len(batch) == 1 and batch[0].num_rows == rows else None


def blocks(stream: Any) -> Iterator[bytes]:
    """Whole lines in large pieces; every piece but the last ends with a line end."""
    held = stream.read(BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf")
    while True:
        more = stream.read(BLOCK_BYTES)
        if not more:
            break
        end = more.rfind(b"\n") + 1
        if end:
            yield held + more[:end]
            held = more[end:]
        else:
            held += more
    if held:
        yield held


def numbered(pieces: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    number = 0
    for piece in pieces:
        lines = piece.split(b"\n")
        yield from ((number + i, text) for i, text in enumerate(lines, 1) if text.strip())
        number += len(lines) - 1


def remembered(lines: Iterable[str], seen: list[str]) -> Iterator[str]:
    for line in lines:
        seen.append(line)
        yield line


def quoted(text: str, width: int = 80) -> str:
    """A line of a file for a message."""
    text = text.rstrip("\r\n")
    return repr(text if len(text) <= width else text[: width - 3] + "...")


READERS: dict[str, type[FileReader]] = {
    "parquet": ParquetReader,
    "csv": CsvReader,
    "jsonl": JsonlReader,
}
