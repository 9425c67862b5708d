"""`enrich`: a stream with the columns of a table, looked up by `plait.enrichment`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.checks import checked_policy
from plait.durations import microseconds
from plait.enrichment import FOUND, Enrich, enriched_schema
from plait.errors import JobError
from plait.expr import col
from plait.files import Files
from plait.graph import CallNode, FilterNode
from plait.join_rules import Wanted, right_fields
from plait.model import Schema
from plait.sides import checked_on
from plait.streaming import S, projected

if TYPE_CHECKING:
    from plait.graph import OnError
    from plait.place import Place


def with_table(
    place: Place,
    stream: S,
    table: Any,
    on: Any,
    how: Any,
    refresh: Any,
    suffix: str,
    on_error: OnError,
) -> S:
    """The stream with the columns of a table: Arrow in plait's types, or `Files`."""
    in_files = isinstance(table, Files)
    if refresh is not None and not in_files:
        raise JobError("refresh= reads a path again; a table in memory stays as it is")
    theirs = Schema.of(table.schema)
    keys = checked_on(on, stream.schema, theirs)
    if how not in ("left", "inner"):
        raise JobError(f'how is {how!r}; it must be "left" or "inner"')
    spec = Wanted(within=None, how=how, ttl_us=0, suffix=suffix)
    fields = right_fields(stream.schema, theirs, keys, spec)
    function = Enrich(
        table,
        tuple(zip(keys.left, keys.right, strict=True)),
        tuple((name, field.name) for name, field in fields.items()),
        marked=how == "inner",
        refresh_us=0 if refresh is None else microseconds(refresh),
    )
    if not in_files:
        function.current()  # a key that is there twice is told now
    inner, fresh = how == "inner", refresh is not None
    schema = enriched_schema(stream.schema, tuple(fields.values()), inner=inner, refresh=fresh)
    node = CallNode(
        name=place.name,
        at=place.at,
        inputs=(stream._number,),
        schema=schema,
        on_error=checked_policy(on_error),
        mode="batches",
        function=function,
    )
    made = stream._made(node)
    if not inner:
        return made
    found = FilterNode(
        name=f"{place.name}.found",
        at=place.at,
        inputs=(made._number,),
        schema=schema,
        on_error="fail",
        predicate=col(FOUND),
    )
    columns = [(name, col(name)) for name in schema.names if name != FOUND]
    return projected(made._made(found), place, columns, "fail", "columns")
