"""What plait's values look like in lines of JSON and in cells of CSV, in both directions.

Numbers, texts, truth values and null are themselves. A timestamp is ISO 8601 in UTC with Z (read:
any offset, and none means UTC). Bytes are base64. JSON has no NaN and no infinities: they are the
texts "NaN", "Infinity" and "-Infinity". An object column is whatever JSON its value is, nested or
not; a value that has no JSON is refused. What is written reads back the same with the same schema.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import re
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import BadRow, PolledRows
from plait.connectors.columns import infer, interleave, to_batch
from plait.errors import SchemaError, SinkError, SourceError
from plait.model.declared_json import has_decimals, json_values_of
from plait.model.records import column_values, describe, field_value, value_of
from plait.model.schema import Field, Schema, Type
from plait.results.result import BadLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
ISO_WITH_ZONE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)", re.ASCII
)
Line = tuple[int, bytes]
"""A line and its number in the file, from 1."""


def has_declared(schema: Schema) -> bool:
    """Whether only Python reads lines of this schema: it checks objects of declared types."""
    return any(field.declared is not None for field in schema)


def block_reader(
    path: str, schema: Schema, *, only_known: bool
) -> Callable[[bytes, int, int], tuple[PolledRows, int, int]]:
    """A function that reads whole lines: of a text, how many rows of it to leave out, and how many
    lines there were before, it makes the rows, how many the text has, and how many lines end in it.
    By native code; what that leaves open, and declared objects, in Python."""

    def read(text: bytes, skipped: int, before: int) -> tuple[PolledRows, int, int]:
        lines = text.split(b"\n")
        rows = [(before + i, line) for i, line in enumerate(lines, 1) if line.strip()]
        found = read_lines(path, rows[skipped:], schema, only_known=only_known)
        return found, len(rows), len(lines) - 1

    if has_declared(schema):
        return read
    from plait.node_runtime.native._json import JsonReader

    reader = JsonReader(schema, only_known)

    def read_natively(text: bytes, skipped: int, before: int) -> tuple[PolledRows, int, int]:
        batch, others, count, ends = reader.read_lines(text, skipped)
        if not others:
            return PolledRows(batch), count, ends
        lines = [(before + number + 1, line) for _, number, line in others]
        asked = read_lines(path, lines, schema, only_known=only_known)
        return with_others(batch, asked, [row for row, _, _ in others]), count, ends

    return read_natively


def with_others(batch: Any, others: PolledRows, places: Sequence[int]) -> PolledRows:
    """Rows, and others whose places among all are given."""
    bad = tuple(replace(one, row=places[one.row]) for one in others.bad)
    left_out, theirs = {one.row for one in bad}, set(places)
    ours = [row for row in range(batch.num_rows + len(places)) if row not in theirs]
    numbers = [*ours, *(place for place in places if place not in left_out)]
    return PolledRows(interleave([batch, others.good], numbers), bad)


def read_lines(path: str, lines: Sequence[Line], schema: Schema, *, only_known: bool) -> PolledRows:
    """The lines as rows: those that fit, and those that do not, with what is wrong with them."""
    known = set(schema.names)
    exact = [field.name for field in schema if has_decimals(field.declared)]
    hint = "; give schema= if the first lines are not like the rest" if only_known else ""
    good: list[tuple[Any, ...]] = []
    bad: list[BadRow] = []
    for row, (number, text) in enumerate(lines):
        try:
            record = parse_line(text)
            if exact:
                decimals = exact_numbers(text)
                record |= {name: decimals[name] for name in exact if name in decimals}
            extra = [name for name in record if name not in known] if only_known else ()
            if extra:
                raise ValueError(
                    f'"{extra[0]}" is not a column; the first lines have: {", ".join(schema.names)}'
                )
            try:
                good.append(tuple(from_json(field_value(record, f), f) for f in schema))
            except ValueError as error:
                raise ValueError(f"{error}{hint}") from None
        except ValueError as error:
            bad.append(BadRow(row=row, reason=str(error), record=bad_line(path, number, text)))
    return PolledRows(to_batch(good, schema), tuple(bad))


def parse_line(text: bytes) -> dict[str, Any]:
    """The object of a line, or a ValueError."""
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at {error.colno}") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, got {describe(record)}")
    return record


def exact_numbers(text: bytes) -> dict[str, Any]:
    """The object of a line that was parsed before, its fractions as decimals."""
    try:
        record: dict[str, Any] = json.loads(text, parse_float=Decimal)
    except ArithmeticError:
        raise ValueError("a number has an exponent that no Decimal has") from None
    return record


def bad_line(path: str, number: int, text: bytes) -> BadLine:
    return BadLine(
        file=path, line=number, text=text.decode(errors="backslashreplace").rstrip("\r\n")
    )


def from_json(value: Any, field: Field) -> Any:
    """A value of JSON as its column holds it, or a ValueError that names the column."""
    if isinstance(value, str):
        try:
            if field.type is Type.TIMESTAMP:
                moment = datetime.datetime.fromisoformat(value)
                value = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
            elif field.type is Type.BYTES:
                value = base64.b64decode(value, validate=True)
            elif field.type is Type.FLOAT64:
                value = NOT_NUMBERS.get(value, value)
        except (ValueError, binascii.Error):
            form = "ISO 8601" if field.type is Type.TIMESTAMP else "base64"
            said = f'column "{field.name}": expected {field.type.value} as {form}'
            raise ValueError(f"{said}, got {describe(value)}") from None
    return value_of(value, field)


def infer_lines(path: str, lines: Sequence[Line]) -> Schema:
    """The schema of the first lines, bad ones left out: they are named when they are read. Later
    lines may lack any column, so each may be null."""
    records: list[dict[str, Any]] = []
    for number, text in lines:
        try:
            records.append(parse_line(text))
        except ValueError as error:
            bad = BadRow(row=0, reason=str(error), record=bad_line(path, number, text))
    if not records:
        raise bad.error()
    try:
        found = infer(records)
    except (SchemaError, SourceError) as error:
        raise SourceError(f"{path}: {error}") from None
    return Schema(
        tuple(
            Field(field.name, refined(field, [r.get(field.name) for r in records]), True)
            for field in found
        )
    )


def refined(field: Field, values: Iterable[Any]) -> Type:
    """The type of a column when what its texts stand for is seen: times, and numbers with NaN."""
    there = [value for value in values if value is not None]
    if field.type is Type.STRING and all(ISO_WITH_ZONE.fullmatch(value) for value in there):
        return Type.TIMESTAMP
    if field.type is Type.OBJECT and there:
        numbers = [v for v in there if not (isinstance(v, str) and v in NOT_NUMBERS)]
        if numbers and {type(value) for value in numbers} <= {int, float}:
            return Type.FLOAT64
    return field.type


def to_json(column: Any, field: Field) -> list[Any]:
    """The values of an Arrow column as `json.dumps` takes them."""
    values = column_values(column, field.type)
    if field.declared is not None:
        return json_values_of(values, field.declared)
    convert = TO_JSON.get(field.type)
    return [None if v is None else convert(v) for v in values] if convert else values


def iso(moment: datetime.datetime) -> str:
    return moment.replace(tzinfo=None).isoformat() + "Z"


def float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def bytes_to_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


TO_JSON: dict[Type, Callable[[Any], Any]] = {
    Type.FLOAT64: float_to_json,
    Type.BYTES: bytes_to_text,
    Type.TIMESTAMP: iso,
}


def json_objects(batch: Any, schema: Schema) -> list[str]:
    """A JSON object for each row, names in the order of the schema."""
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    names = schema.names
    try:
        columns = [to_json(batch.column(field.name), field) for field in schema]
        return [encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    except (TypeError, ValueError, RecursionError) as error:
        raise SinkError(
            f"a value has no JSON ({error}); map object columns to plain values first: {schema}"
        ) from None


def line_encoder(schema: Schema) -> Callable[[Any], bytes]:
    """A function that writes a table as lines: by native code where the columns are plain, in
    Python where they are not, or where a value has no JSON; both write the same."""

    def encode(batch: Any) -> bytes:
        return "".join(f"{text}\n" for text in json_objects(batch, schema)).encode()

    if has_objects(schema):
        return encode

    from plait.node_runtime.native._json import JsonWriter

    writer, types = JsonWriter(schema), schema.to_arrow().types

    def encode_natively(table: Any) -> bytes:
        columns = table.select(schema.names)
        if columns.schema.types != types:
            return encode(table)
        parts = []
        for batch in columns.to_batches():
            lines = writer.write_lines(batch)
            parts.append(encode(batch) if lines is None else lines)
        return b"".join(parts)

    return encode_natively


def has_objects(schema: Schema) -> bool:
    return any(field.type is Type.OBJECT for field in schema)


def bytes_to_text_columns(batch: Any, schema: Schema) -> Any:
    """The batch with its bytes columns as base64 texts, for CSV."""
    import pyarrow as pa

    for i, field in enumerate(schema):
        if field.type is Type.BYTES:
            texts = [None if v is None else bytes_to_text(v) for v in batch.column(i).to_pylist()]
            batch = batch.set_column(i, field.name, pa.array(texts, pa.string()))
    return batch
