"""The schema of a union: all streams have the same columns with the same types, in the same order.

A column is nullable in the union if it is in any of the streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.errors import JobError
from plait.model.schema import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.graph.operators import AnyOp


def union_schema(streams: Sequence[tuple[AnyOp, Schema]]) -> Schema:
    """The schema of the union, or a JobError that shows what differs."""
    first_op, first = streams[0]
    for op, schema in streams[1:]:
        found = differences(first, schema)
        if found:
            lines = "\n  ".join(found)
            raise JobError(
                f"the streams made by {first_op} and {op} have different columns\n  {lines}"
                "\n  make them equal with select(...) and .cast(...)"
            )
    fields = tuple(
        Field(field.name, field.type, any(schema[field.name].nullable for _, schema in streams))
        for field in first.fields
    )
    classes = {schema.record_class for _, schema in streams}
    return Schema(fields, classes.pop() if len(classes) == 1 else None)


def differences(one: Schema, other: Schema) -> list[str]:
    """What differs, in words; nullability does not matter."""
    found: list[str] = []
    for field in one:
        if field.name not in other:
            found.append(f'column "{field.name}": {field.type.value} in one, not in the other')
        elif other[field.name].type is not field.type:
            kinds = f"{field.type.value} in one, {other[field.name].type.value} in the other"
            found.append(f'column "{field.name}": {kinds}')
    found += [
        f'column "{field.name}": not in one, {field.type.value} in the other'
        for field in other
        if field.name not in one
    ]
    if not found and one.names != other.names:
        found.append(f"the order is {', '.join(one.names)} and {', '.join(other.names)}")
    return found
