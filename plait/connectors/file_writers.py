"""The writer of one file: rows go to a hidden file, which gets its name at the end.

The end may be a good one or not (`close` or `abort`): every row that was delivered is kept under
the final name, and a file of that name never ends in half a row. Rows for Parquet are gathered
before they are encoded, so that many small batches make few row groups.
"""

from __future__ import annotations

import lzma
import os
import secrets
from typing import TYPE_CHECKING, Any, Protocol

from plait.connectors.base import Writer
from plait.connectors.json_lines import batch_to_lines, bytes_to_text_columns
from plait.connectors.text_files import FileOptions
from plait.errors import SinkError
from plait.model.declared_arrow import arrow_of, arrow_value, why_not_arrow
from plait.model.declared_json import why_not_json
from plait.model.records import unpack_object
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from pathlib import Path

    from plait.model.schema import Field


class Encoder(Protocol):
    """Writes tables of a schema into an open file."""

    def write(self, table: Any) -> None: ...

    def close(self) -> None: ...


class FileWriter(Writer):
    """Writes one file. `close` and `abort` return its path."""

    def __init__(
        self,
        path: Path,
        format: str,
        schema: Schema,
        *,
        compression: str = "",
        options: FileOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        options = options or FileOptions()
        check_format(path, format, schema, options)
        self.path = path
        self.schema = schema
        self.gather_rows = options.batch_rows if format == "parquet" else 1
        self.overwrite = overwrite
        self.gathered: list[Any] = []
        self.gathered_rows = 0
        self.open = True
        self.refuse_existing()
        self.hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.encoder = encoder_of(format, self.hidden, schema, compression, options)
        except OSError as error:
            raise SinkError(f"{path}: cannot be written: {error.strerror or error}") from None

    def refuse_existing(self) -> None:
        if self.path.is_dir():
            raise SinkError(f"{self.path} is a folder")
        if not self.overwrite and self.path.exists():
            raise SinkError(f"{self.path} exists already; remove it or give overwrite=True")

    def write(self, batch: Any) -> None:
        self.gathered.append(batch)
        self.gathered_rows += batch.num_rows
        if self.gathered_rows >= self.gather_rows:
            self.encode()

    def encode(self) -> None:
        import pyarrow as pa

        if not self.gathered:
            return
        # Forgotten first: rows that could not be encoded are not tried again at the close.
        table = pa.Table.from_batches(self.gathered, self.schema.to_arrow())
        self.gathered, self.gathered_rows = [], 0
        try:
            self.encoder.write(table)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"{self.path}: {error}") from None
        except SinkError as error:
            raise SinkError(f"{self.path}: {error}") from None

    def close(self) -> str:
        if self.open:
            self.open = False
            try:
                self.encode()
            finally:
                self.finish()
        return str(self.path)

    def finish(self) -> None:
        """Ends the hidden file and gives it its name."""
        import pyarrow as pa

        try:
            self.encoder.close()
            self.refuse_existing()
            os.replace(self.hidden, self.path)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"{self.path}: {error}; the rows are in {self.hidden}") from None
        except SinkError as error:
            raise SinkError(f"{error} (it came during the run; rows: {self.hidden})") from None


def check_format(path: object, format: str, schema: Schema, options: FileOptions) -> None:
    """Raises SinkError if a file of the format cannot hold the columns, or is not written so."""
    refuse_options(path, format, options)
    for field in schema:
        if field.type is not Type.OBJECT:
            continue
        reason: str | None = None
        if format == "jsonl":
            reason = None if field.declared is None else why_not_json(field.declared)
        elif format == "parquet" and field.declared is not None:
            reason = why_not_arrow(field.declared)
        else:
            declare = "declare what it holds, " if format == "parquet" else ""
            raise SinkError(
                f'{path}: column "{field.name}" is object, which {format} cannot hold; '
                f"{declare}map it to a plain type, drop it, or write jsonl"
            )
        if reason is not None:
            raise SinkError(
                f'{path}: column "{field.name}" cannot be written as {format}: {reason}; '
                "map it to a plain type, or drop it"
            )
    if format == "text" and [field.type for field in schema] != [Type.STRING]:
        raise SinkError(f"{path}: a text file holds one column of texts, not: {schema}")


def refuse_options(path: object, format: str, options: FileOptions) -> None:
    """Raises for options that only readers have."""
    plain = FileOptions()
    given = [*(["file_and_line"] if options.file_and_line else []), *options.for_csv()]
    written = ("delimiter", "header") if format == "csv" and options.header in (True, False) else ()
    refused = [name for name in given if name not in written]
    if options.encoding != plain.encoding:
        refused.append("encoding")
    if refused:
        raise SinkError(f"{path}: {refused[0]}= is for reading; {format} is written without it")


def encoder_of(
    format: str, path: Path, schema: Schema, compression: str, options: FileOptions
) -> Encoder:
    match format:
        case "parquet":
            import pyarrow.parquet as pq

            return ParquetEncoder(pq.ParquetWriter, path, schema)
        case "csv":
            return CsvEncoder(out_stream(path, compression), schema, options)
        case "text":
            return TextEncoder(out_stream(path, compression))
        case _:
            return JsonlEncoder(out_stream(path, compression), schema)


def out_stream(path: Path, compression: str) -> Any:
    """A file to write bytes to, compressed by what the target's suffix says."""
    import pyarrow as pa

    if compression == ".xz":
        return lzma.open(path, "wb")
    codec = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}[compression]
    return pa.output_stream(str(path), compression=codec)


class ParquetEncoder:
    """One row group a table; object columns of declared types are lists and structs."""

    def __init__(self, writer: Any, path: Path, schema: Schema) -> None:
        import pyarrow as pa

        self.schema = schema
        self.arrow = schema.to_arrow()
        for i, field in enumerate(schema):
            if field.type is Type.OBJECT:
                nested = arrow_of(field.declared)
                self.arrow = self.arrow.set(i, pa.field(field.name, nested, field.nullable))
        self.writer = writer(str(path), self.arrow)

    def write(self, table: Any) -> None:
        for i, field in enumerate(self.schema):
            if field.type is Type.OBJECT:
                nested = nested_column(table.column(i), field, self.arrow.field(i).type)
                table = table.set_column(i, self.arrow.field(i), nested)
        self.writer.write_table(table)

    def close(self) -> None:
        self.writer.close()


def nested_column(column: Any, field: Field, wanted: Any) -> Any:
    """The objects of a column as Arrow values."""
    import pyarrow as pa

    values = [None if data is None else unpack_object(data) for data in column.to_pylist()]
    try:
        return pa.array([arrow_value(value, field.declared) for value in values], wanted)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise SinkError(f'column "{field.name}": {error}') from None


class CsvEncoder:
    """A header line, then rows; texts are quoted, null is empty, bytes are base64."""

    def __init__(self, stream: Any, schema: Schema, options: FileOptions) -> None:
        import pyarrow as pa
        import pyarrow.csv as pc

        arrow = schema.to_arrow()
        for i, field in enumerate(schema):
            if field.type is Type.BYTES:
                arrow = arrow.set(i, pa.field(field.name, pa.string(), field.nullable))
        self.arrow = arrow
        self.stream = stream
        self.schema = schema
        written = pc.WriteOptions(
            include_header=options.header is True, delimiter=options.delimiter
        )
        self.writer = pc.CSVWriter(stream, arrow, write_options=written)

    def write(self, table: Any) -> None:
        self.writer.write_table(bytes_to_text_columns(table, self.schema).cast(self.arrow))

    def close(self) -> None:
        self.writer.close()
        self.stream.close()


class TextEncoder:
    """One text a line; null is an empty line."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, table: Any) -> None:
        lines = table.column(0).to_pylist()
        self.stream.write("".join(f"{line or ''}\n" for line in lines).encode())

    def close(self) -> None:
        self.stream.close()


class JsonlEncoder:
    """One JSON object a line."""

    def __init__(self, stream: Any, schema: Schema) -> None:
        self.stream = stream
        self.schema = schema

    def write(self, table: Any) -> None:
        self.stream.write(batch_to_lines(table, self.schema).encode())

    def close(self) -> None:
        self.stream.close()
