"""What becomes of Spark's types: which column of plait each is, or why it is refused; no pyspark.

A plan is made from Spark's schema as JSON (`StructType.jsonValue()`); `convert` does it to the
Arrow batches of a task. What would lose or guess something is refused unless the user says how:
times without a zone, decimals, nested values. docs/spark.md has the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from plait.errors import SchemaError
from plait.model.schema import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Decimals = Literal["", "float", "text", "scaled"]
How = Literal["cast", "ntz", "float", "text", "scaled"]

PLAIN = {
    "byte": Type.INT64,
    "short": Type.INT64,
    "integer": Type.INT64,
    "long": Type.INT64,
    "float": Type.FLOAT64,
    "double": Type.FLOAT64,
    "boolean": Type.BOOL,
    "string": Type.STRING,
    "binary": Type.BYTES,
    "date": Type.TIMESTAMP,
    "timestamp": Type.TIMESTAMP,
}
SPARK = {
    Type.INT64: "bigint",
    Type.FLOAT64: "double",
    Type.BOOL: "boolean",
    Type.STRING: "string",
    Type.BYTES: "binary",
    Type.TIMESTAMP: "timestamp",
}
REFUSED = {
    "variant": "write to_json(v) or variant_get(v, path, type) in Spark",
    "void": "it has no type; cast it in Spark",
    "array": "explode it in Spark, or write to_json(column)",
    "map": "take its values by key in Spark, or write to_json(column)",
    "udt": "select its parts in Spark",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeOptions:
    """What the user says of types that plait does not have."""

    ntz: str = ""
    """The zone that times without one are in."""
    decimals: Decimals = ""
    flatten: bool = False
    """Structs become columns: a_b."""
    required: frozenset[str] = frozenset()
    """Columns that are never null."""

    def check(self, who: str) -> None:
        if self.decimals not in ("", "float", "text", "scaled"):
            raise SchemaError(
                f'{who}: decimals is {self.decimals!r}; write "float", "text" or "scaled"'
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of plait: which of Spark's it is made of, and how."""

    field: Field
    path: tuple[str, ...]
    how: How = "cast"
    zone: str = ""


def plan_columns(spark: Mapping[str, Any], options: TypeOptions, who: str) -> tuple[Column, ...]:
    """The columns of plait for a schema of Spark's as JSON; SchemaError if one has no place."""
    options.check(who)
    columns = tuple(plan_fields(spark["fields"], (), False, options, who))
    names = [column.field.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f'{who}: there are two columns "{twice[0]}"; rename one in Spark')
    unknown = sorted(options.required.difference(names))
    if unknown:
        raise SchemaError(f'{who}: required names no column "{unknown[0]}"')
    return columns


def plan_fields(
    fields: Sequence[Mapping[str, Any]],
    above: tuple[str, ...],
    nullable: bool,
    options: TypeOptions,
    who: str,
) -> Iterator[Column]:
    for field in fields:
        path = (*above, field["name"])
        name = "_".join(path)
        may_be_null = nullable or bool(field["nullable"])
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "struct" and options.flatten:
            yield from plan_fields(kind["fields"], path, may_be_null, options, who)
            continue
        type, how = plan_type(kind, name, options, who)
        may_be_null = may_be_null and name not in options.required
        zone = options.ntz if how == "ntz" else ""
        yield Column(field=Field(name, type, may_be_null), path=path, how=how, zone=zone)


def plan_type(kind: Any, name: str, options: TypeOptions, who: str) -> tuple[Type, How]:
    """The type of a column, and how its values become it."""
    where = f'{who}: column "{name}"'
    if isinstance(kind, dict):
        if kind["type"] == "struct":
            raise SchemaError(f"{where} is a struct; give flatten=True, or select its parts")
        raise SchemaError(f"{where} is {kind['type']}; {REFUSED.get(kind['type'], 'cast it')}")
    word = str(kind)
    if word.startswith(("char(", "varchar(", "string")):
        word = "string"
    if word in PLAIN:
        return PLAIN[word], "cast"
    if word == "timestamp_ntz":
        if not options.ntz:
            raise SchemaError(
                f'{where} is a time without a zone (timestamp_ntz); say which it is in: ntz="UTC",'
                ' ntz="Europe/Berlin"'
            )
        return Type.TIMESTAMP, "ntz"
    if word.startswith("interval") and "year" not in word and "month" not in word:
        return Type.INT64, "cast"
    decimal = re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", word)
    if decimal is not None:
        return plan_decimal(int(decimal[1]), int(decimal[2]), options, where)
    raise SchemaError(f"{where} is {word}; {REFUSED.get(word, 'cast it in Spark')}")


def plan_decimal(precision: int, scale: int, options: TypeOptions, where: str) -> tuple[Type, How]:
    shown = f"decimal({precision},{scale})"
    match options.decimals:
        case "float":
            return Type.FLOAT64, "float"
        case "text":
            return Type.STRING, "text"
        case "scaled" if precision <= 18:
            return Type.INT64, "scaled"
        case "scaled":
            raise SchemaError(
                f"{where} is {shown}, and a whole number has 18 digits; cast it in Spark, or take"
                ' decimals="text"'
            )
    raise SchemaError(
        f'{where} is {shown}; say what it becomes: decimals="float" (rounded), "text", or "scaled"'
        f" (a whole number, times 10^{scale})"
    )


def schema_of_columns(columns: Sequence[Column]) -> Schema:
    return Schema(tuple(column.field for column in columns))


def convert(batch: Any, columns: Sequence[Column]) -> Any:
    """An Arrow batch of Spark's in plait's types; SchemaError if a required value is null."""
    import pyarrow as pa

    schema = schema_of_columns(columns).to_arrow()
    arrays = []
    for column, wanted in zip(columns, schema, strict=True):
        array = convert_array(value_at(batch, column.path), column, wanted.type)
        if array.null_count and not column.field.nullable:
            raise SchemaError(
                f'column "{column.field.name}" has {array.null_count:,} nulls, and is required'
            )
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def value_at(batch: Any, path: Sequence[str]) -> Any:
    import pyarrow.compute as pc

    array = batch.column(path[0])
    for name in path[1:]:
        array = pc.struct_field(array, array.type.get_field_index(name))
    return array


def convert_array(array: Any, column: Column, wanted: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    match column.how:
        case "ntz":
            return pc.assume_timezone(array, column.zone).cast(wanted)
        case "scaled":
            return unscaled(array)
        case "text" | "float":
            return array.cast(wanted)
    if pa.types.is_duration(array.type):
        return array.cast(pa.duration("us")).cast(wanted)
    return array if array.type == wanted else array.cast(wanted)


def unscaled(array: Any) -> Any:
    """The whole numbers in a decimal array of at most 18 digits."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(18, array.type.scale))
    words = np.frombuffer(array.buffers()[1], dtype="<i8")[::2]
    numbers = words[array.offset : array.offset + len(array)]
    mask = np.asarray(array.is_null()) if array.null_count else None
    return pa.array(numbers, pa.int64(), mask=mask)


def spark_schema(schema: Schema, *, place: bool) -> str:
    """The columns of a log in Spark's words; with `place`, the batch and row of each."""
    words = [
        f"`{field.name.replace('`', '``')}` {SPARK[field.type]}"
        f"{'' if field.nullable else ' not null'}"
        for field in schema
    ]
    if place:
        words += ["_batch bigint not null", "_row bigint not null"]
    return ", ".join(words)
