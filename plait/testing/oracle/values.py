"""How the oracle holds values: plain Python, one form for each column type, null is None.

A timestamp is its microseconds since 1970 as an int, since arithmetic on it may leave the years
that a `datetime` has; an object is its pickle, so that a function that changes a value changes
nobody else's copy. Users' functions get records with real datetimes and objects, made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.errors import SourceError
from plait.model.records import (
    datetime_of,
    make_record,
    microseconds_of,
    pack_object,
    unpack_object,
    values_of,
)
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

Values = tuple[Any, ...]


class Fault(Exception):
    """One record failed: the text says why. Policies decide what becomes of the record."""


def to_python(value: Any, kind: Type) -> Any:
    """A held value as a user's function sees it."""
    if value is None:
        return None
    if kind is Type.TIMESTAMP:
        try:
            return datetime_of(value)
        except OverflowError:
            raise Fault(f"timestamp {value} us is outside the years of a datetime") from None
    return unpack_object(value) if kind is Type.OBJECT else value


def to_held(value: Any, kind: Type) -> Any:
    """A checked Python value as the oracle holds it."""
    if value is None:
        return None
    if kind is Type.TIMESTAMP:
        return microseconds_of(value)
    return pack_object(value) if kind is Type.OBJECT else value


def python_values(values: Values, schema: Schema) -> list[Any]:
    return [to_python(v, f.type) for v, f in zip(values, schema.fields, strict=True)]


def record_of(values: Values, schema: Schema) -> Any:
    """The record that a user's function gets."""
    return make_record(python_values(values, schema), schema)


def held_of(record: Any, schema: Schema) -> Values:
    """What a user's function gave back, checked; ValueError when it does not fit."""
    checked = values_of(record, schema)
    return tuple(to_held(v, f.type) for v, f in zip(checked, schema.fields, strict=True))


def shown(values: Values, schema: Schema) -> Values:
    """A row for the outside: datetimes and objects, and ints for times that no datetime has."""

    def show(value: Any, kind: Type) -> Any:
        try:
            return to_python(value, kind)
        except Fault:
            return value

    return tuple(show(v, f.type) for v, f in zip(values, schema.fields, strict=True))


def held_from_arrow(given: Any, schema: Schema) -> list[Values]:
    """The rows of a pyarrow Table or RecordBatch that has the columns of `schema`."""
    import pyarrow as pa

    table = given if isinstance(given, pa.Table) else pa.Table.from_batches([given])
    wanted = schema.to_arrow()
    if set(table.column_names) != set(wanted.names):
        raise ValueError(
            f"expected the columns {', '.join(wanted.names)}, got {table.column_names}"
        )
    columns = []
    for field, arrow in zip(schema.fields, wanted, strict=True):
        column = table.column(field.name)
        if column.type != arrow.type:
            column = column.cast(arrow.type)
        if column.null_count and not field.nullable:
            raise ValueError(f'column "{field.name}": expected {field.type.value}, got None')
        if field.type is Type.TIMESTAMP:
            column = column.cast(pa.int64())
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def held_to_arrow(rows: Sequence[Values], schema: Schema) -> Any:
    """The rows as a pyarrow Table of `schema`."""
    import pyarrow as pa

    wanted = schema.to_arrow()
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = []
    for values, field, arrow in zip(columns, schema.fields, wanted, strict=True):
        if field.type is Type.TIMESTAMP:
            arrays.append(pa.array(values, pa.int64()).cast(arrow.type))
        else:
            arrays.append(pa.array(values, arrow.type))
    return pa.Table.from_arrays(arrays, schema=wanted)


def held_from_poll(polled: Any, schema: Schema, label: str) -> list[Values]:
    """The rows of one poll of a reader: Arrow, or a list of records."""
    try:
        if hasattr(polled, "__arrow_c_stream__") or hasattr(polled, "__arrow_c_array__"):
            return held_from_arrow(polled, schema)
        return [held_of(record, schema) for record in polled]
    except ValueError as error:
        raise SourceError(f"source {label}: {error}") from error
