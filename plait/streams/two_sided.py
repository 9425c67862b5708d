"""A node that reads two streams: their projections to the same columns, the union of these, the
node, and a projection that leaves out what was for the node alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.expr import col
from plait.graph import TimedNode
from plait.model import Field, Schema
from plait.sides import Part, united_columns
from plait.streaming import S, free, projected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait import timed
    from plait.event_time import Time
    from plait.graph import OnError, Route
    from plait.place import Place


class TwoSided:
    """A node that reads two streams as one: what it does, the united columns that come out of it,
    and what these are called. Columns without a name were for the operator alone."""

    def __init__(
        self,
        *,
        spec: timed.TimedSpec,
        columns: Sequence[str],
        fields: Mapping[str, Field],
        on_error: OnError,
        results: Sequence[Field] = (),
        route: Route = "auto",
    ) -> None:
        self.spec = spec
        self.columns = columns
        self.fields = fields
        self.on_error = on_error
        self.results = results
        self.route = route


def two_sided(
    place: Place,
    streams: tuple[S, S],
    parts: tuple[Part, Part],
    made: TwoSided,
    time: Time,
    record_class: type | None = None,
    joined_at: Place | None = None,
) -> S:
    """The stream of a node that reads both streams. `joined_at`: where the user put them together,
    if it is not where the node is."""
    at = joined_at or place
    sides = [
        projected(stream, at, columns, made.on_error, part.which)
        for stream, columns, part in zip(streams, united_columns(*parts), parts, strict=True)
    ]
    both = sides[0]._united(at, sides[1:], f"{at.name}.sides")
    shown = [field.name for field in (*made.fields.values(), *made.results)]
    fields = []
    for column in made.columns:
        given = both.schema[column]
        hidden = Field(free(column, shown), given.type, given.nullable)
        fields.append(made.fields.get(column, hidden))
    fields += made.results
    whole = len(fields) == len(shown)
    node = TimedNode(
        name=place.name,
        at=place.at,
        inputs=(both._number,),
        schema=Schema(tuple(fields), record_class if whole else None),
        on_error=made.on_error,
        keys=tuple(f"k_{i}" for i in range(len(parts[0].keys))),
        time="",
        spec=made.spec,
        route=made.route,
    )
    stream = both._made(node, time)
    if whole:
        return stream
    return projected(stream, place, [(name, col(name)) for name in shown], "fail", "columns")
