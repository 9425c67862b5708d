"""The reader of CSV files: fast through pyarrow, and closely where a row is bad.

Arrow reads typed columns block by block. When it refuses a block, or a column has a null where none
may be, rows are read closely from there on: Python finds them with their lines, rows of the wrong
width are bad, and the cells of the others are tried by Arrow again, so that a row is good or bad
whichever way it is read. After `CLOSELY` rows without a bad one Arrow reads on, if the bytes of the
file are those of the text. CsvRow numbers count good and bad rows; blank lines are none.
"""

from __future__ import annotations

import csv
import itertools
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import BadRow, PolledRows
from plait.connectors.columns import canonical
from plait.connectors.formats import text_files
from plait.connectors.formats.csv_blocks import TrackedBlocks, same_rows
from plait.connectors.formats.csv_rows import CsvRow, RowScan, text_of
from plait.connectors.formats.file_reader import START, Anchor, EmptyFile, FileReader
from plait.connectors.formats.json_lines import from_json
from plait.connectors.formats.text_files import (
    DAMAGED,
    Head,
    Uncommented,
    is_text,
    open_utf8,
    shown,
)
from plait.errors import SchemaError, SourceError
from plait.model.declared_json import is_written_as_text
from plait.model.schema import Field, Schema, Type, type_of_arrow
from plait.results.result import BadLine

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOKED_AT = 1000
"""How many rows say the types of a file whose first block Arrow refuses."""
CLOSELY = 10_000
"""How many rows are read closely at a time."""


class CsvReader(FileReader):
    """Reads CSV. An empty field is null, a quoted empty one is a text."""

    def open(self) -> None:
        import pyarrow as pa

        self.anchor: Anchor | None = None
        self.blocks: TrackedBlocks | None = None
        """The bytes of the batch that was given last, and ..."""
        self.batch: Any = None
        """... the batch, if nobody has compared them yet."""
        self.names: list[str] = []
        """The columns of the file; none: it is empty."""
        self.read_types: dict[str, Any] = {}
        self.by_python: list[Field] = []
        """Columns that Arrow reads as text: Python makes values of them."""
        self.one_column = False
        """An empty line is then a row: its one field is null."""
        own = self.find_columns()
        self.names = own.names
        self.one_column = len(own) == 1
        if not self.names:
            if self.wanted is None:
                raise EmptyFile(f"{self.path} is empty: no line says its columns; give schema=")
            self.schema = self.wanted
            return
        fields = []
        for column in own:
            kind = type_of_arrow(column.type)
            if pa.types.is_binary(column.type):
                if self.wanted is None:
                    raise self.failed(f'column "{column.name}" has {self.options.not_text()}')
                kind = Type.STRING  # the rows are named as they are read
            # Arrow sees clock times and all-empty columns; plait has no type for these.
            fields.append(Field(column.name, Type.STRING if kind is Type.OBJECT else kind, True))
        try:
            self.settle(Schema(tuple(fields)))
        except SchemaError as error:
            raise self.failed(error) from None
        for field in self.schema:
            seen = own.field(field.name).type if field.name in own.names else pa.null()
            self.read_types[field.name] = self.read_type(field, seen)

    def read_type(self, field: Field, seen: Any) -> Any:
        import pyarrow as pa

        if field.type is Type.OBJECT and not is_written_as_text(field.declared):
            raise self.failed(f'column "{field.name}": a CSV file has no objects; choose a type')
        if field.type is Type.TIMESTAMP and pa.types.is_temporal(seen):
            zoneless = pa.types.is_date(seen) or (pa.types.is_timestamp(seen) and seen.tz is None)
            return pa.timestamp("us", None if zoneless else "UTC")
        if field.type in (Type.BYTES, Type.TIMESTAMP, Type.OBJECT):
            self.by_python.append(field)
            return pa.string()
        return Schema((field,)).to_arrow().field(0).type

    def find_columns(self) -> Any:
        """The columns and types of the first rows as an Arrow schema; none if there is no row."""
        import pyarrow as pa

        try:
            with self.stream({}) as reader:
                names = reader.schema.names
                if self.options.header is False:
                    names = [f"c{i}" for i in range(len(names))]
                return pa.schema(list(zip(names, reader.schema.types, strict=True)))
        except (pa.ArrowException, UnicodeError):
            return self.find_columns_closely()
        except DAMAGED as error:
            raise self.damaged(error) from None

    def find_columns_closely(self) -> Any:
        """The same where Arrow refuses the first block: from the rows of the right width."""
        import pyarrow as pa

        with self.scan() as rows:
            first = list(itertools.islice(rows, LOOKED_AT + 1))
        if not first:
            return pa.schema([])
        match self.options.header:
            case True:
                names = list(first.pop(0).fields)
            case False:
                names = [f"c{i}" for i in range(len(first[0].fields))]
            case given:
                names = list(given)
        good = [row for row in first if len(row.fields) == len(names) and is_text(row.text)]
        if good:
            try:
                with self.stream({}, text_of(good), names) as reader:
                    return reader.schema
            except pa.ArrowException as error:
                raise self.failed(error) from None
        return pa.schema([(name, pa.null()) for name in names])

    def stream(
        self,
        types: dict[str, Any],
        text: bytes | None = None,
        names: list[str] | None = None,
        anchor: Anchor | None = None,
    ) -> Any:
        """The file from `anchor` on (None: its first rows only), or rows of its kind with these
        columns. Arrow reads its first block here."""
        import pyarrow as pa
        import pyarrow.csv as pc

        options = self.options
        skip_rows = options.skip_rows
        if text is not None:
            given, skip_rows = pa.BufferReader(text), 0
        else:
            at = anchor or START
            given = open_utf8(self.path, options, at.byte)
            skip_rows = 0 if at.byte else skip_rows
            if options.comment is not None:
                given, skip_rows = Uncommented(given, skip_rows, options.comment), 0
            elif anchor is None:
                given = Head(given, 2 * text_files.BLOCK_BYTES)
            elif self.has_bytes and options.escape is None:
                given = self.blocks = TrackedBlocks(given, anchor, options.quote)
            if not isinstance(given, pa.NativeFile):
                given = pa.PythonFile(given, "r")
            if at.byte:
                names = self.names
            elif options.header is not True:
                names = self.names or (list(options.header) if options.header else None)
        return pc.open_csv(
            given,
            # One thread: the order of rows and blocks is then that of the file.
            pc.ReadOptions(
                use_threads=False,
                block_size=text_files.BLOCK_BYTES,
                skip_rows=skip_rows,
                column_names=names,
                autogenerate_column_names=names is None and options.header is False,
            ),
            pc.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                escape_char=options.escape or False,
                newlines_in_values=True,
                ignore_empty_lines=not self.one_column,
            ),
            pc.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                include_missing_columns=bool(types),
                null_values=list(options.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def batches(self, start_row: int, anchor: Anchor = START) -> Iterator[PolledRows]:
        import pyarrow as pa

        if not self.names:
            return
        self.anchor = None
        at: Anchor | None = anchor
        while at is not None:
            row = at.row
            try:
                with self.stream(self.read_types, anchor=at) as reader:
                    for batch in reader:
                        if self.blocks is not None:
                            self.blocks.take_batch(batch.num_rows)
                            self.batch = batch
                        skipped = min(max(start_row - row, 0), batch.num_rows)
                        if skipped < batch.num_rows:
                            yield PolledRows(self.fit_batch(batch.slice(skipped)))
                        row += batch.num_rows
                return
            except (pa.ArrowException, UnicodeError, SourceError):
                near = self.find_anchor() or at
                self.blocks = self.batch = None
            except DAMAGED as error:
                raise self.damaged(error) from None
            at = None
            for rows, after in self.read_closely(max(row, start_row), near):
                yield rows
                if not rows.bad and after is not None:
                    at = after
                    break

    def find_anchor(self) -> Anchor | None:
        """Of the batch that was given last, if reading its bytes gives the batch again."""
        import pyarrow as pa

        if self.blocks is None or self.batch is None:
            return self.anchor
        batch, self.batch = self.batch, None
        if self.blocks.lost or self.blocks.anchor.byte == 0:
            return self.anchor
        try:
            with self.stream(self.read_types, self.blocks.text, self.names) as reader:
                table = reader.read_all().combine_chunks()
        except (pa.ArrowException, UnicodeError):
            return self.anchor
        again = table.to_batches()
        if len(again) == 1 and same_rows(again[0], batch):
            self.anchor = self.blocks.anchor
        return self.anchor

    def fit_batch(self, batch: Any) -> Any:
        """The batch in plait's types, or a SourceError."""
        import pyarrow as pa

        types = self.schema.to_arrow()
        for field in self.by_python:
            if field.type is Type.OBJECT:
                continue  # `canonical` makes what was declared of the texts
            values = batch.column(field.name).to_pylist()
            try:
                made = [None if value is None else from_json(value, field) for value in values]
            except ValueError as error:
                raise SourceError(str(error)) from None
            at = batch.schema.get_field_index(field.name)
            array = pa.array(made, types.field(field.name).type)
            batch = batch.set_column(at, field.name, array)
        return canonical(batch, self.schema)

    def read_closely(
        self, start_row: int, anchor: Anchor = START
    ) -> Iterator[tuple[PolledRows, Anchor | None]]:
        """Rows, and where those after them begin; None: there are none, or it is not known."""
        try:
            with self.scan(anchor) as scanned:
                header = self.options.header is True and anchor == START
                rows = itertools.islice(scanned, start_row - anchor.row + header, None)
                first = next(rows, None)
                while first is not None:
                    some = [first, *itertools.islice(rows, CLOSELY - 1)]
                    self.anchor = self.anchor_of(first, start_row)
                    start_row += len(some)
                    first = next(rows, None)
                    yield self.sort_out(some), first and self.anchor_of(first, start_row)
        except csv.Error as error:
            raise self.failed(error) from None
        except DAMAGED as error:
            raise self.damaged(error) from None

    def anchor_of(self, row: CsvRow, number: int) -> Anchor | None:
        return Anchor(row.byte, number, row.line - 1) if self.has_bytes else None

    def scan(self, anchor: Anchor = START) -> RowScan:
        return RowScan(self.path, self.options, blank_lines=self.one_column, anchor=anchor)

    def sort_out(self, rows: list[CsvRow]) -> PolledRows:
        """The rows that can be read and those that cannot, with what is wrong with them."""
        reasons: dict[int, str] = {}
        width = len(self.names)
        for i, row in enumerate(rows):
            if len(row.fields) != width and not (self.one_column and not row.fields):
                reasons[i] = f"expected {width} columns, got {len(row.fields)}"
            elif not is_text(row.text):
                reasons[i] = self.options.not_text()
        batch = self.parse(self.others(rows, reasons))
        if batch is None:
            good = [i for i in range(len(rows)) if i not in reasons]
            found = self.find_misfits([rows[i] for i in good])
            reasons |= {good[n]: reason for n, reason in found.items()}
            batch = self.parse(self.others(rows, reasons))
        if batch is None:  # Arrow takes some of them for other rows: each by itself
            for i, row in enumerate(rows):
                if i not in reasons and self.parse([row]) is None:
                    reasons[i] = "is not a row of CSV"
            batch = self.parse(self.others(rows, reasons))
        bad = [
            BadRow(row=i, reason=reasons[i], record=self.bad_line(rows[i])) for i in sorted(reasons)
        ]
        return PolledRows(batch, tuple(bad))

    def others(self, rows: list[CsvRow], reasons: dict[int, str]) -> list[CsvRow]:
        return [row for i, row in enumerate(rows) if i not in reasons]

    def bad_line(self, row: CsvRow) -> BadLine:
        return BadLine(file=self.path, line=row.line, text=shown(row.text))

    def parse(self, rows: list[CsvRow]) -> Any:
        """The rows as a RecordBatch, or None if Arrow does not take all of them."""
        import pyarrow as pa

        if not rows:
            return pa.RecordBatch.from_pylist([], schema=self.schema.to_arrow())
        try:
            return self.fit_batch(self.read_text(rows, self.read_types))
        except (pa.ArrowException, SourceError):
            return None

    def read_text(self, rows: list[CsvRow], types: dict[str, Any]) -> Any:
        with self.stream(types, text_of(rows), self.names) as reader:
            table = reader.read_all()
        if table.num_rows != len(rows):
            raise SourceError("not these rows")
        return table.combine_chunks().to_batches()[0]

    def find_misfits(self, rows: list[CsvRow]) -> dict[int, str]:
        """The rows with a cell that does not fit its column, and why."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            cells = self.read_text(rows, dict.fromkeys(self.read_types, pa.binary()))
        except (pa.ArrowException, SourceError):
            return {}
        reasons: dict[int, str] = {}
        hint = "; give schema= if the first rows are not like the rest" if self.only_known else ""
        for field in self.schema:
            column = cells.column(field.name)
            if column.null_count and not field.nullable:
                for row in pc.indices_nonzero(column.is_null()).to_pylist():
                    reasons.setdefault(
                        row, f'column "{field.name}" is empty, but is declared as {field}'
                    )
            if field.type is Type.STRING:
                continue
            values = column.unique().drop_null()
            wrong = pa.array(self.misfits(values.to_pylist(), field), pa.binary())
            for row in pc.indices_nonzero(pc.is_in(column, wrong, skip_nulls=True)).to_pylist():
                value = column[row].as_py().decode()
                reasons.setdefault(row, f"{why_not(value, field)}{hint}")
        return reasons

    def misfits(self, values: list[bytes], field: Field) -> list[bytes]:
        """The values that are none of the column's type."""
        if all(self.fits(some, field) for some in ([values] if values else [])):
            return []
        if len(values) == 1:
            return values
        middle = len(values) // 2
        return self.misfits(values[:middle], field) + self.misfits(values[middle:], field)

    def fits(self, values: list[bytes], field: Field) -> bool:
        import pyarrow as pa
        import pyarrow.csv as pc

        if field in self.by_python:
            try:
                for value in values:
                    from_json(value.decode(), field)
            except ValueError:
                return False
            return True
        quoted = b"".join(b'"%s"\n' % value.replace(b'"', b'""') for value in values)
        try:
            pc.read_csv(
                pa.BufferReader(quoted),
                pc.ReadOptions(
                    use_threads=False, column_names=["v"], block_size=max(len(quoted), 1 << 16)
                ),
                pc.ParseOptions(newlines_in_values=True),
                pc.ConvertOptions(
                    column_types={"v": self.read_types[field.name]},
                    null_values=[],
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowException:
            return False
        return True


def why_not(text: str, field: Field) -> str:
    """What is wrong with a cell that does not fit its column."""
    if field.declared is not None:
        try:
            from_json(text, field)
        except ValueError as error:
            return str(error)
    return f'column "{field.name}": expected {field.type.value}, got {text!r}'
