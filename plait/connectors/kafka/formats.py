"""Values of records as rows, and rows as values: JSON, MessagePack, bytes, or a function.

A decoder takes the values of a poll and gives the rows that fit the schema, with what is wrong with
the others; an encoder gives the bytes of each row. What JSON looks like is said in `json_lines`:
what is written reads back the same. JSON of plain columns is read by native code; `json_decoder` is
the same in Python, which judges what that leaves open and says what is right.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Literal

from plait.connectors.columns import interleave, to_batch
from plait.connectors.formats.json_lines import (
    from_json,
    has_declared,
    has_objects,
    json_objects,
)
from plait.errors import SinkError, SourceError
from plait.model.records import column_values, describe, field_value
from plait.model.schema import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Format = Literal["json", "msgpack", "bytes", "arrow"]
Values = "Sequence[bytes | None]"
DEEPEST = 64
VALUE = Schema((Field("value", Type.BYTES, nullable=True),))
"""The columns of format="bytes"."""
NO_VALUE = "the record has no value (a tombstone)"


class Decoded:
    """Rows of a poll: the good ones as a RecordBatch, their numbers, and the reasons of the bad."""

    __slots__ = ("batch", "numbers", "reasons")

    def __init__(self, batch: Any, numbers: Sequence[int], reasons: dict[int, str]) -> None:
        self.batch = batch
        self.numbers = numbers
        self.reasons = reasons


def decode_rows(
    values: Sequence[bytes | None], schema: Schema, decode: Callable[[bytes | None], Any]
) -> Decoded:
    """Rows by a function of one value, which raises ValueError for a bad one."""
    rows: list[Any] = []
    numbers: list[int] = []
    reasons: dict[int, str] = {}
    for number, value in enumerate(values):
        try:
            row = decode(value)
            if not all(is_text(part) for part in row):
                raise ValueError("a text has half of a surrogate pair, which no UTF-8 has")
            rows.append(row)
            numbers.append(number)
        except ValueError as error:
            reasons[number] = str(error)
    return Decoded(to_batch(rows, schema), numbers, reasons)


def is_text(part: Any) -> bool:
    """Whether a value, if it is a text, can be written as UTF-8; JSON can name half a pair."""
    if not isinstance(part, str):
        return True
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_values(schema: Schema) -> Callable[[Sequence[bytes | None]], Decoded]:
    """Rows of JSON objects: by native code, without the interpreter's lock; where the types of
    objects are declared, in Python."""
    decode = json_decoder(schema)
    if has_declared(schema):
        return lambda values: decode_rows(values, schema, decode)
    from plait.node_runtime.native._json import JsonReader

    reader = JsonReader(schema)

    def read(values: Sequence[bytes | None]) -> Decoded:
        batch, reasons, unsettled = reader.read(values)
        if not reasons and not unsettled:
            return Decoded(batch, range(len(values)), {})
        bad = {*reasons, *unsettled}
        good = Decoded(batch, [n for n in range(len(values)) if n not in bad], reasons)
        if not unsettled:
            return good
        others = decode_rows([values[number] for number in unsettled], schema, decode)
        return merged(good, others, unsettled)

    return read


def merged(good: Decoded, others: Decoded, places: Sequence[int]) -> Decoded:
    """The rows of both by their numbers; `places`: the numbers of those in `others`."""
    numbers = [*good.numbers, *(places[number] for number in others.numbers)]
    reasons = {places[number]: reason for number, reason in others.reasons.items()}
    batch = interleave([good.batch, others.batch], numbers)
    return Decoded(batch, sorted(numbers), good.reasons | reasons)


def json_decoder(schema: Schema) -> Callable[[bytes | None], tuple[Any, ...]]:
    """A function that gives the row of a JSON object."""

    def decode(value: bytes | None) -> tuple[Any, ...]:
        record = parse_json(value)
        return tuple(from_json(finite(record, field), field) for field in schema)

    return decode


def finite(record: dict[str, Any], field: Field) -> Any:
    """The value of a column, if it is no number that only an infinite float could stand for."""
    value = field_value(record, field)
    if type(value) is float and math.isinf(value):
        raise ValueError(
            f'column "{field.name}": expected {field.type.value}, got a number beyond the range of'
            " a float"
        )
    return value


def parse_json(value: bytes | None) -> dict[str, Any]:
    """The object of a text, strictly; a ValueError says where and what is wrong.

    >>> parse_json(b'{"n": 1, "n": 2}')
    Traceback (most recent call last):
    ValueError: no JSON: the name "n" is there twice
    """
    if value is None:
        raise ValueError(NO_VALUE)
    try:
        record = STRICT.decode(value.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at byte {error.pos + 1}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"no JSON: not UTF-8 at byte {error.start + 1}") from None
    except RecursionError:
        raise ValueError("no JSON: nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {describe(record)}")
    if value.count(b"{") + value.count(b"[") > DEEPEST and depth_of(record) > DEEPEST:
        raise ValueError(f"no JSON: nested deeper than {DEEPEST}")
    return record


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'no JSON: the name "{twice}" is there twice')
    return found


def refuse_constant(word: str) -> Any:
    raise ValueError(f"no JSON: {word} is not a number of JSON")


STRICT = json.JSONDecoder(object_pairs_hook=unique, parse_constant=refuse_constant)


def depth_of(value: Any) -> int:
    """How deeply objects and arrays are nested.

    >>> depth_of({"a": [1]}), depth_of(1)
    (2, 0)
    """
    deepest, todo = 0, [(value, 1)]
    while todo:
        part, depth = todo.pop()
        if isinstance(part, dict | list):
            deepest = max(deepest, depth)
            inside = part.values() if isinstance(part, dict) else part
            todo.extend((one, depth + 1) for one in inside if isinstance(one, dict | list))
    return deepest


def msgpack_decoder(schema: Schema) -> Callable[[bytes | None], tuple[Any, ...]]:
    """A function that gives the row of a MessagePack map."""
    import msgpack

    def decode(value: bytes | None) -> tuple[Any, ...]:
        if value is None:
            raise ValueError(NO_VALUE)
        try:
            record = msgpack.unpackb(value, timestamp=3)
        except Exception as error:
            raise ValueError(f"no MessagePack: {type(error).__name__}: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(f"expected a MessagePack map, got {describe(record)}")
        return tuple(from_json(field_value(record, field), field) for field in schema)

    return decode


def user_decoder(
    function: Callable[[bytes | None], Any], schema: Schema
) -> Callable[[bytes | None], Any]:
    """A function that gives the row of what the user's function returns."""
    from plait.connectors.columns import fit, row_of

    def decode(value: bytes | None) -> Any:
        try:
            record = function(value)
        except Exception as error:
            raise ValueError(f"decode raised {type(error).__name__}: {error}") from None
        try:
            row = row_of(record, schema, 1)
            for field, part in zip(schema, row, strict=True):
                fit(part, field, 1)
        except SourceError as error:
            raise ValueError(str(error).replace("record 1, ", "decode returned: ")) from None
        return tuple(row)

    return decode


def decoder_of(
    format: Format, schema: Schema, function: Callable[[bytes | None], Any] | None
) -> Callable[[Sequence[bytes | None]], Decoded]:
    """What turns the values of a poll into rows of the schema."""
    if function is not None:
        one = user_decoder(function, schema)
    elif format == "json":
        return json_values(schema)
    elif format == "msgpack":
        one = msgpack_decoder(schema)
    else:
        return decode_bytes
    return lambda values: decode_rows(values, schema, one)


def decode_bytes(values: Sequence[bytes | None]) -> Decoded:
    return Decoded(to_batch([(value,) for value in values], VALUE), range(len(values)), {})


def encoder_of(format: Format, schema: Schema) -> Callable[[Any], list[bytes | None]]:
    """What turns a batch into the value of each row."""
    if format == "bytes":
        return lambda batch: list(batch.column(0).to_pylist())
    if format == "msgpack":
        return lambda batch: encode_msgpack(batch, schema)
    return json_encoder(schema)


def json_encoder(schema: Schema) -> Callable[[Any], list[bytes | None]]:
    """A JSON object for each row: by native code where the columns are plain, else in Python; both
    write the same."""
    if has_objects(schema):
        return lambda batch: encode_json(batch, schema)
    import pyarrow as pa

    from plait.node_runtime.native._json import JsonWriter

    writer, types = JsonWriter(schema), schema.to_arrow().types

    def encode(batch: Any) -> list[bytes | None]:
        values = None
        if isinstance(batch, pa.RecordBatch):
            columns = batch.select(schema.names)
            values = writer.write(columns) if columns.schema.types == types else None
        return encode_json(batch, schema) if values is None else list(values)

    return encode


def encode_json(batch: Any, schema: Schema) -> list[bytes | None]:
    return [text.encode() for text in json_objects(batch, schema)]


def encode_msgpack(batch: Any, schema: Schema) -> list[bytes | None]:
    """A MessagePack map for each row; times are timestamps of it, bytes are bytes."""
    import msgpack

    names = schema.names
    columns = [column_values(batch.column(field.name), field.type) for field in schema]
    try:
        return [
            msgpack.packb(dict(zip(names, row, strict=True)), datetime=True)
            for row in zip(*columns, strict=True)
        ]
    except (TypeError, ValueError, OverflowError) as error:
        raise SinkError(
            f"a value has no MessagePack ({error}); map object columns to plain values first:"
            f" {schema}"
        ) from None
