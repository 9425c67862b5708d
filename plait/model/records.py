"""Records and their values: the forms of a record, and the checks of every value.

This is the meaning of the types in plain Python; the native runtime has a faster form of the same
rules. A value is converted only where nothing is lost (int to float, any zone to UTC, numpy
scalars); anything else is refused with a ValueError that names the column and what came.

    >>> schema = Schema.of({"auction": int, "price": float})
    >>> values_of({"auction": 7, "price": 2}, schema)
    (7, 2.0)
    >>> make_record((7, 2.0), schema)
    Record(auction=7, price=2.0)
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plait.errors import RecordError
from plait.model.declared_types import Refused, as_declared, shown
from plait.model.record_class import Record, record_class, short, values_in
from plait.model.schema import INT64_MAX, INT64_MIN, Field, Schema, Type

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
PICKLE_PROTOCOL = 5
SCALARS = (int, float, str, bytes, bytearray, memoryview, datetime.datetime)


class RefusedValue(ValueError):
    """A value does not fit its column; the text is what follows `expected <type>, got <value>`."""


class TooMuchText(BaseException):
    """The texts of a batch take more than a column can hold. No record is to blame, so it is not an
    `Exception`, which would fail one."""


class Misfit(ValueError):
    """What a user's function was to get or gave back does not fit; the text says all there is."""


def error_text(error: BaseException) -> str:
    """How a failed record's error reads: what the function raised, or what did not fit."""
    return str(error) if isinstance(error, Misfit) else f"{type(error).__name__}: {error}"


def make_record(values: Sequence[Any], schema: Schema) -> Any:
    """A record of the schema's class from values that are already checked."""
    return maker(record_class(schema))(values)


@functools.cache
def maker(cls: type) -> Callable[[Sequence[Any]], Any]:
    """How a dataclass is made from the values of its fields, in order."""
    fields = dataclasses.fields(cls)
    if all(field.init and not field.kw_only for field in fields):
        return lambda values: cls(*values)
    given = [(i, field.name) for i, field in enumerate(fields) if field.init]
    later = [(i, field.name) for i, field in enumerate(fields) if not field.init]

    def make(values: Sequence[Any]) -> Any:
        record = cls(**{name: values[i] for i, name in given})
        for i, name in later:
            object.__setattr__(record, name, values[i])  # the class may be frozen
        return record

    return make


def values_of(record: Any, schema: Schema) -> tuple[Any, ...]:
    """The checked values of a record.

    A record is of the record class, any object with these attributes, a dict, a tuple or list in
    the order of the columns, or a bare value where the one column is "value".
    """
    raw = raw_values(record, schema)
    return tuple(value_of(value, field) for value, field in zip(raw, schema.fields, strict=True))


def raw_values(record: Any, schema: Schema) -> Sequence[Any]:
    """The values of a record in the order of the columns, not yet checked."""
    names = schema.names
    if isinstance(record, Record) and type(record) is record_class(schema):
        return values_in(record)
    if type(record) is schema.record_class:
        return attributes(record, names)
    if isinstance(record, Mapping) and (not is_bare(schema) or set(record) == {"value"}):
        refuse_unknown([name for name in record if name not in names], schema)
        return [field_value(record, field, schema.complete) for field in schema.fields]
    if is_bare(schema) and (schema.fields[0].type is Type.OBJECT or is_scalar(record)):
        return [record]
    if isinstance(record, tuple | list):
        own = getattr(record, "_fields", ())
        if own and set(names) <= set(own):
            refuse_unknown([name for name in own if name not in names], schema)
            return attributes(record, names)
        if len(record) != len(names):
            raise ValueError(
                f"expected {len(names)} values ({', '.join(names)}), "
                f"got {len(record)}: {short.repr(record)}"
            )
        return record
    if not is_scalar(record) and all(hasattr(record, name) for name in names):
        if dataclasses.is_dataclass(record):
            own = tuple(field.name for field in dataclasses.fields(record))
            refuse_unknown([name for name in own if name not in names], schema)
        return attributes(record, names)
    raise ValueError(
        f"expected a record with the columns {', '.join(names)}, got {describe(record)}; "
        "give a dataclass, a dict or a tuple of these, or another schema="
    )


def attributes(record: Any, names: Sequence[str]) -> list[Any]:
    return [getattr(record, name) for name in names]


def refuse_unknown(extra: Sequence[Any], schema: Schema) -> None:
    """Raises if a record has more than its columns: what is in none of them would be lost."""
    if not extra:
        return
    keys = ", ".join(f'"{key}"' if isinstance(key, str) else repr(key) for key in extra)
    what = "is not a column" if len(extra) == 1 else "are not columns"
    raise ValueError(f"{keys} {what}; the columns are {', '.join(schema.names)}{advice(schema)}")


def advice(schema: Schema) -> str:
    """What to do about a record with other keys than the columns."""
    if schema.complete:
        return "; annotate the return type or give schema="
    return "; leave it out, or add it to the schema (the annotated return type, or schema=)"


def is_bare(schema: Schema) -> bool:
    """Whether a record of this schema may be given as just its value."""
    return len(schema.fields) == 1 and schema.fields[0].name == "value"


def is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, SCALARS) or is_numpy_scalar(value)


def is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")  # such a value exists only if numpy is loaded
    return numpy is not None and isinstance(value, numpy.generic)


def field_value(record: Mapping[str, Any], field: Field, complete: bool = False) -> Any:
    """The value of a column in a dict; a column that may be null may be missing, unless every
    column must be there."""
    if field.name in record:
        return record[field.name]
    if field.nullable and not complete:
        return None
    has = ", ".join(str(name) for name in record) or "nothing"
    hint = "; annotate the return type or give schema=" if complete else ""
    raise ValueError(f'column "{field.name}": missing; the record has {has}{hint}')


def value_of(value: Any, field: Field) -> Any:
    """A value as its column holds it, or a ValueError that names the column."""
    if value is None:
        if field.nullable:
            return None
        raise ValueError(f'column "{field.name}": expected {field.type.value}, got None')
    try:
        if field.declared is not None:
            return as_declared(value, field.declared)
        return CONVERT[field.type](value)
    except (RefusedValue, Refused) as refused:
        wanted = field.type.value if field.declared is None else shown(field.declared)
        more = str(refused) if str(refused).startswith(";") else f" {refused}".rstrip()
        message = f'column "{field.name}": expected {wanted}, got {describe(value)}{more}'
    raise ValueError(message)


def describe(value: Any) -> str:
    return "None" if value is None else f"{short.repr(value)} ({type(value).__name__})"


def int_of(value: Any) -> int:
    if type(value) is not int:
        if is_numpy_scalar(value):
            value = value.item()
        if not isinstance(value, int) or isinstance(value, bool):
            raise RefusedValue
        value = int.__int__(value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise RefusedValue("beyond 64 bits")
    return int(value)


def float_of(value: Any) -> float:
    if type(value) is float:
        return value
    if is_numpy_scalar(value):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise RefusedValue
    try:
        return float.__float__(value) if isinstance(value, float) else float(int.__int__(value))
    except OverflowError:
        raise RefusedValue("beyond the range of a float") from None


def bool_of(value: Any) -> bool:
    if is_numpy_scalar(value):
        value = value.item()
    if not isinstance(value, bool):
        raise RefusedValue
    return value


def str_of(value: Any) -> str:
    if not isinstance(value, str):
        raise RefusedValue
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RefusedValue("with half a surrogate pair, which is not Unicode text") from None
    return str.__str__(value)  # a plain str also from an enum


def bytes_of(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise RefusedValue
    return bytes(value)


def timestamp_of(value: Any) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        raise RefusedValue
    if value.utcoffset() is None:
        raise RefusedValue("without a time zone; add one, such as tzinfo=datetime.UTC")
    try:
        if type(value) is datetime.datetime:
            return value.astimezone(UTC).replace(fold=0)
        # A subclass (pandas) may carry more than microseconds: only what a datetime holds is taken.
        plain = datetime.datetime.combine(
            datetime.date(value.year, value.month, value.day), value.timetz()
        )
        return plain.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise RefusedValue("outside the years 1 to 9999 in UTC") from None


def object_of(value: Any) -> Any:
    return value


CONVERT: dict[Type, Callable[[Any], Any]] = {
    Type.INT64: int_of,
    Type.FLOAT64: float_of,
    Type.BOOL: bool_of,
    Type.STRING: str_of,
    Type.BYTES: bytes_of,
    Type.TIMESTAMP: timestamp_of,
    Type.OBJECT: object_of,
}


def microseconds_of(value: datetime.datetime) -> int:
    """Microseconds since 1970 of an aware datetime."""
    return (value - EPOCH) // MICROSECOND


def datetime_of(microseconds: int) -> datetime.datetime:
    """The datetime in UTC of microseconds since 1970."""
    return EPOCH + datetime.timedelta(microseconds=microseconds)


def pack_object(value: Any) -> bytes:
    """How an object column carries a value."""
    try:
        return pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except Exception as error:  # pickling runs code of the value's class, which may raise anything
        raise ValueError(f"{describe(value)} cannot be pickled: {error}") from error


def unpack_object(data: bytes) -> Any:
    return pickle.loads(data)


def column_values(column: Any, kind: Type) -> list[Any]:
    """The Python values of one pyarrow array of plait's own Arrow type for `kind`."""
    if kind is Type.TIMESTAMP:
        import pyarrow as pa

        ticks = column.cast(pa.int64()).to_pylist()
        return [None if tick is None else datetime_of(tick) for tick in ticks]
    values: list[Any] = column.to_pylist()
    if kind is Type.OBJECT:
        return [None if value is None else unpack_object(value) for value in values]
    return values


def python_values(batch: Any, field: Field) -> list[Any]:
    try:
        return column_values(batch.column(field.name), field.type)
    except OverflowError:
        raise RecordError(
            f'column "{field.name}" has times outside the years 1 to 9999 of a datetime; take the'
            " Arrow table, which holds them: job.run().outputs[name of the sink]"
        ) from None


def records_of(batch: Any, schema: Schema) -> list[Any]:
    """The records of a pyarrow RecordBatch or Table with the types of `schema.to_arrow()`."""
    columns = [python_values(batch, f) for f in schema.fields]
    make = maker(record_class(schema))
    return [make(values) for values in zip(*columns, strict=True)]
