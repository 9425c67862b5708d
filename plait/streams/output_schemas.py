"""Schemas that follow from more than one operator: of a union, and of a function by trying it.

All streams of a union have the same columns with the same types, in the same order; a column is
nullable if it is in any of them.

`schema="infer"`: a function is called while the job is built, on what the first records of each
source become on their way to it, so every source must be one that can be read again. The types are
those that `plait.stream` finds in a list of the results. Nothing is guessed later: a record of the
run that does not fit fails, as with any other schema.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plait.connectors.columns import infer
from plait.connectors.memory_sources import LOOKED_AT
from plait.errors import JobError, PlaitError, SchemaError, SourceError
from plait.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.graph.operators import AnyOp, SourceOp
    from plait.model.call_site import CallSite
    from plait.streams.stream_protocol import StreamLike

INFER = "infer"


def infer_schema(
    call: CallSite, stream: StreamLike, results_of: Callable[[Any], Sequence[Any]]
) -> Schema:
    """The schema of what a function returns; `results_of` gives all that it makes of a record."""
    try:
        records = stream._first_records(call, LOOKED_AT)
    except PlaitError as error:
        raise JobError(f'schema="infer": the records cannot be read: {error}') from error
    results: list[Any] = []
    raised: Exception | None = None
    for record in records:
        try:
            results += results_of(record)
        except Exception as error:  # the run meets it again, where on_error applies
            raised = raised or error
    if not results:
        why = "none of them gave a result" if records else "no record reached the function"
        told = f"; the first raised {type(raised).__name__}: {raised}" if raised else ""
        raise JobError(
            f'schema="infer": the first {LOOKED_AT:,} records of each source were tried, and'
            f" {why}{told}; give the schema: schema={{...}}"
        ) from raised
    try:
        return infer(results)
    except (SchemaError, SourceError) as error:
        raise JobError(f'schema="infer": {error}; give the schema: schema={{...}}') from None


def check_repeatable(sources: Sequence[SourceOp]) -> None:
    """Raises unless all sources can be read once more."""
    for op in sources:
        if not op.source.repeatable:
            name = type(op.source).__name__
            raise JobError(
                f"source {op.label} ({name}) cannot be read while the job is built and again when"
                " it runs; give the schema: schema={...}, or annotate the return type"
            )


def map_results(function: Callable[[Any], Any]) -> Callable[[Any], Sequence[Any]]:
    """What `map` makes of a record."""
    return lambda record: [function(record)]


def flat_map_results(function: Callable[[Any], Any]) -> Callable[[Any], Sequence[Any]]:
    """What `flat_map` makes of a record."""
    return lambda record: list(function(record))


def awaited_results(function: Callable[[Any], Any]) -> Callable[[Any], Sequence[Any]]:
    """What `map_async` makes of a record."""

    async def wait_for(record: Any) -> Any:
        return await function(record)

    return lambda record: [asyncio.run(wait_for(record))]


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
        replace(field, nullable=any(schema[field.name].nullable for _, schema in streams))
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
