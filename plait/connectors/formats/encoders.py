"""Rows as bytes of each format: what a sink's file is made of.

An encoder writes tables into an open stream, or for Parquet into a file of its own.
"""

from __future__ import annotations

import lzma
from typing import TYPE_CHECKING, Any, Protocol

from plait.connectors.formats.json_lines import bytes_to_text_columns, line_encoder
from plait.connectors.formats.text_files import FileOptions
from plait.errors import SinkError
from plait.model.declared_arrow import arrow_of, arrow_value, why_not_arrow
from plait.model.declared_json import why_not_json
from plait.model.records import unpack_object
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from pathlib import Path

    from plait.model.schema import Field


CODECS = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class Encoder(Protocol):
    """Writes tables of a schema into an open file."""

    def write(self, table: Any) -> None: ...

    def close(self) -> None: ...


def check_format(path: object, format: str, schema: Schema, options: FileOptions) -> None:
    """Raises SinkError if a file of the format cannot hold the columns, or is not written so."""
    refuse_reading_options(path, format, options)
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


def refuse_reading_options(path: object, format: str, options: FileOptions) -> None:
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
    return pa.output_stream(str(path), compression=CODECS[compression])


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

    def __init__(
        self, stream: Any, schema: Schema, options: FileOptions, *, header: bool = True
    ) -> None:
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
            include_header=header and options.header is True, delimiter=options.delimiter
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
        self.encode = line_encoder(schema)

    def write(self, table: Any) -> None:
        self.stream.write(self.encode(table))

    def close(self) -> None:
        self.stream.close()
