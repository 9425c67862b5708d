"""Rows to columns: Python records and foreign Arrow data become batches of plait's Arrow types.

`to_batch` takes dicts, dataclasses, tuples and scalars, `canonical` takes Arrow tables, and `infer`
finds the schema of records. Nothing is guessed on the way in: a value either fits its column or is
a SourceError that says which record, which column and what came. Nothing read from outside is ever
unpickled; object columns are pickled here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from plait.errors import SchemaError, SourceError
from plait.model.records import describe, pack_object, raw_values, value_of
from plait.model.schema import FROM_PYTHON, Field, Schema, Type

Rounding = Literal["error", "down"]
"""What becomes of times that are finer than a microsecond."""
LARGEST_CHUNK_BYTES = 1 << 30
"""Of the texts of a column; Arrow's own type of a text column holds twice as much in a chunk."""
MISSING = object()
"""Stands for a key that a dict record does not have."""

# Types whose values Arrow takes as they are; anything else goes through `fit`, value by value.
PLAIN: dict[Type, frozenset[type]] = {
    Type.INT64: frozenset((int,)),
    Type.FLOAT64: frozenset((float,)),
    Type.BOOL: frozenset((bool,)),
    Type.STRING: frozenset((str,)),
    Type.BYTES: frozenset((bytes,)),
}


def to_batch(records: Sequence[Any], schema: Schema, before: int = 0) -> Any:
    """A pyarrow RecordBatch of the records; `before`: how many came before the first of them.

    A dict may leave out nullable columns; a key that is no column is refused. Errors number the
    records from 1.
    """
    import pyarrow as pa

    first = before + 1
    columns = columns_of(records, schema, first)
    arrow = schema.to_arrow()
    arrays = [
        to_array(values, field, arrow.field(i).type, first)
        for i, (values, field) in enumerate(zip(columns, schema, strict=True))
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def columns_of(records: Sequence[Any], schema: Schema, first: int) -> list[Sequence[Any]]:
    """The values of each column; records of one shape, the usual case, go column by column."""
    names = schema.names
    kinds = set(map(type, records))
    known = set(names)
    if kinds == {dict} and all(known >= record.keys() for record in records):
        return [[record.get(name, MISSING) for record in records] for name in names]
    if kinds == {tuple} and {len(record) for record in records} == {len(names)}:
        return list(zip(*records, strict=True))
    rows = [row_of(record, schema, first + i) for i, record in enumerate(records)]
    return list(zip(*rows, strict=True)) if rows else [()] * len(names)


def row_of(record: Any, schema: Schema, number: int) -> Sequence[Any]:
    """The values of one record in the order of the schema."""
    try:
        return raw_values(record, schema)
    except ValueError as error:
        raise SourceError(f"record {number:,}: {error}") from None


def to_array(values: Sequence[Any], field: Field, arrow_type: Any, first: int) -> Any:
    """One column as an Arrow array."""
    import pyarrow as pa

    kinds = set(map(type, values))
    if field.nullable:
        kinds.discard(type(None))
    if not kinds <= PLAIN.get(field.type, frozenset()):
        values = [fit(value, field, first + i) for i, value in enumerate(values)]
    try:
        return pa.array(values, arrow_type)
    except (OverflowError, ValueError, pa.ArrowException):
        # Some value of the right type does not fit; find which one, to name it.
        for i, value in enumerate(values):
            fit(value, field, first + i)
        raise


def fit(value: Any, field: Field, number: int) -> Any:
    """The value as its Arrow column carries it, or a SourceError."""
    if value is MISSING:
        if field.nullable:
            return None
        raise SourceError(
            f'record {number:,}, column "{field.name}": missing, and it is not nullable'
        )
    try:
        checked = value_of(value, field)
        return (
            pack_object(checked) if field.type is Type.OBJECT and checked is not None else checked
        )
    except ValueError as error:
        raise SourceError(f"record {number:,}, {error}") from None


def infer(records: Sequence[Any]) -> Schema:
    """The schema of records.

    Int with float is float, None or a missing key makes a column nullable, and any other mixture
    is object.
    """
    if not records:
        raise SourceError("there is no record to take the schema from; give schema=")
    kinds = set(map(type, records))
    if len(kinds) == 1:
        kind = kinds.pop()
        if dataclasses.is_dataclass(kind):
            return Schema.of(kind)
    columns: dict[str, list[Any]] = {}
    for row, record in enumerate(records):
        for name, value in named_values(record, row + 1):
            columns.setdefault(name, [None] * row).append(value)
        for values in columns.values():
            if len(values) <= row:
                values.append(None)
    if not columns:
        raise SourceError(f"the records have no columns: {describe(records[0])}")
    return Schema(tuple(infer_field(name, values) for name, values in columns.items()))


def named_values(record: Any, number: int) -> Iterable[tuple[str, Any]]:
    """The columns of a record without a schema; those of a plain tuple are c0, c1 and so on."""
    if isinstance(record, Mapping):
        for name in record:
            if not isinstance(name, str):
                raise SchemaError(
                    f"record {number:,} has the key {name!r}; keys must be column names"
                )
        return record.items()
    if isinstance(record, tuple):
        names = getattr(record, "_fields", None) or [f"c{i}" for i in range(len(record))]
        return zip(names, record, strict=True)
    if dataclasses.is_dataclass(record):
        return [(f.name, getattr(record, f.name)) for f in dataclasses.fields(record)]
    return [("value", record)]


def infer_field(name: str, values: Iterable[Any]) -> Field:
    kinds = {kind_of(value) for value in values}
    nullable = None in kinds
    found = {kind for kind in kinds if kind is not None}
    if found == {Type.INT64, Type.FLOAT64}:
        return Field(name, Type.FLOAT64, nullable)
    return Field(name, found.pop() if len(found) == 1 else Type.OBJECT, nullable)


def kind_of(value: Any) -> Type | None:
    """The type of the column that a value by itself would ask for; None for None."""
    if value is None:
        return None
    exact = FROM_PYTHON.get(type(value))
    if exact is not None:
        return exact
    for kind in (Type.BOOL, Type.INT64, Type.FLOAT64, Type.STRING, Type.BYTES, Type.TIMESTAMP):
        if isinstance(value, kind.python):
            return kind
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():  # a numpy scalar
        return kind_of(value.item())
    return Type.OBJECT


def check_rounding(who: str, rounding: Any) -> Rounding:
    if rounding not in ("error", "down"):
        raise SourceError(f'{who}: rounding is {rounding!r}; write "error" or "down"')
    return "down" if rounding == "down" else "error"


def canonical(table: Any, schema: Schema, rounding: Rounding = "error") -> Any:
    """An Arrow table or batch with the columns of the schema in plait's own Arrow types.

    Columns that have them already are not copied. Times without a zone are UTC; those that are
    finer than a microsecond are an error, or cut if `rounding` is "down". What plait has no type
    for (lists, structs, decimals) becomes object.
    """
    import pyarrow as pa

    target = schema.to_arrow()
    plain = all(field.nullable and field.type is not Type.OBJECT for field in schema)
    if plain and table.schema.equals(target):
        return table
    arrays = []
    for field, wanted in zip(schema, target, strict=True):
        if table.schema.get_field_index(field.name) < 0:
            have = ", ".join(table.schema.names)
            raise SourceError(
                f'there is no column "{field.name}" (or it is there twice); found: {have}'
            )
        column = canonical_column(table.column(field.name), field, wanted.type, rounding)
        if column.null_count and not field.nullable:
            raise SourceError(
                f'column "{field.name}" has {column.null_count:,} nulls, but is declared as {field}'
            )
        arrays.append(column)
    make: Any = pa.Table if isinstance(table, pa.Table) else pa.RecordBatch
    return make.from_arrays(arrays, schema=target)


def interleave(batches: Sequence[Any], numbers: Sequence[int]) -> Any:
    """The rows of batches of one schema as one, by the numbers of all of them."""
    import pyarrow as pa

    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    table = pa.Table.from_batches(batches).take(pa.array(order, pa.int64()))
    return next(iter(table.combine_chunks().to_batches()), batches[0].slice(0, 0))


def canonical_column(column: Any, field: Field, wanted: Any, rounding: Rounding = "error") -> Any:
    import pyarrow as pa
    import pyarrow.types as at

    have = column.type
    if field.type is Type.OBJECT:
        values = column.to_pylist()
        if field.declared is not None:
            values = [declared_value(value, field) for value in values]
        pickles = [None if v is None else pack_object(v) for v in values]
        array = pa.array(pickles, wanted)
        return pa.chunked_array([array], wanted) if isinstance(column, pa.ChunkedArray) else array
    if have == wanted:
        return column
    try:
        if at.is_dictionary(have):
            return decoded(column, field, wanted, rounding)
        if at.is_timestamp(have) and have.unit == "ns":
            return microseconds_of_ns(column, field, wanted, rounding)
        if not convertible(have, field.type):
            raise SourceError(
                f'column "{field.name}" is {have} in the data, not {field.type.value}'
            )
        if isinstance(column, pa.ChunkedArray) and field.type in (Type.STRING, Type.BYTES):
            column = cut_chunks(column, LARGEST_CHUNK_BYTES)
        return column.cast(wanted)
    except pa.ArrowException as error:
        raise SourceError(f'column "{field.name}": {have} to {field.type.value}: {error}') from None


def declared_value(value: Any, field: Field) -> Any:
    """A value of foreign data in the type that was declared for its column."""
    try:
        return None if value is None else value_of(value, field)
    except ValueError as error:
        raise SourceError(str(error)) from None


def microseconds_of_ns(column: Any, field: Field, wanted: Any, rounding: Rounding) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if rounding == "down":
        column = pc.floor_temporal(column, unit="microsecond")
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:
        exact = pc.equal(pc.floor_temporal(column, unit="microsecond"), column)
        finer = column.filter(pc.invert(exact)).cast(pa.int64())
        raise SourceError(
            f'column "{field.name}": {len(finer):,} times are finer than a microsecond, the first'
            f" is {finer[0].as_py()} ns since 1970; cut them:"
            ' plait.Table(..., rounding="down") or plait.Files(..., rounding="down")'
        ) from None


def cut_chunks(column: Any, most_bytes: int) -> Any:
    """The column in chunks that have no more bytes than that, unless one value does."""
    import pyarrow as pa

    chunks = []
    todo = list(reversed(column.chunks))
    while todo:
        chunk = todo.pop()
        if len(chunk) > 1 and chunk.nbytes > most_bytes:
            half = len(chunk) // 2
            todo += [chunk.slice(half), chunk.slice(0, half)]
        else:
            chunks.append(chunk)
    return pa.chunked_array(chunks, column.type)


def decoded(column: Any, field: Field, wanted: Any, rounding: Rounding) -> Any:
    """A dictionary column as plain values. Arrow's own cast does not know every value type."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        chunks = [decoded(c, field, wanted, rounding) for c in column.chunks]
        return pa.chunked_array(chunks, wanted)
    return canonical_column(column.dictionary, field, wanted, rounding).take(column.indices)


def convertible(have: Any, kind: Type) -> bool:
    """Whether Arrow's cast keeps the meaning; it would also parse text as numbers."""
    import pyarrow.types as at

    if at.is_null(have):
        return True
    number = at.is_integer(have) or at.is_floating(have)
    tests: dict[Type, bool] = {
        Type.INT64: at.is_integer(have),
        Type.FLOAT64: number or at.is_decimal(have),
        Type.BOOL: at.is_boolean(have),
        Type.STRING: at.is_string(have) or at.is_large_string(have) or at.is_string_view(have),
        Type.BYTES: at.is_binary(have)
        or at.is_large_binary(have)
        or at.is_fixed_size_binary(have)
        or at.is_binary_view(have),
        Type.TIMESTAMP: at.is_timestamp(have) or at.is_date(have),
    }
    return tests[kind]
