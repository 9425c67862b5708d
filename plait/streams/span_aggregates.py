"""Aggregates over the right records in a span of time of each left record.

auctions.join(bids, on=("id", "auction"), between=(col("ts"), col("expires"))).max("price")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from plait.errors import JobError
from plait.expr.aggregates import Aggregate
from plait.expr.text import text
from plait.expr.tree import Expr, col
from plait.expr.type_checker import bind
from plait.graph import temporal
from plait.graph.operators import FilterOp
from plait.model.schema import Field, Schema
from plait.streams.aggregate_verbs import Aggregating, settled
from plait.streams.arguments import checked_policy
from plait.streams.event_time import needed
from plait.streams.stream_protocol import S
from plait.streams.two_inputs import LEFT, RIGHT, Keys, Part, TwoSided, two_sided

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import OnError
    from plait.model.call_site import CallSite


class Spans(Aggregating[S]):
    """The right records in a span of time of each left record, made by `join(between=(a, b))`.

    Its methods give a stream again: for each left record, when the watermark has passed the end of
    its span, its columns and the results over the right records of its key in between, both ends
    included. Left records without any give no row, unless how="left".
    """

    def __init__(
        self,
        place: CallSite,
        streams: tuple[S, S],
        keys: Keys,
        span: tuple[Expr, Expr],
        empty: bool,
        wait_us: int,
        on_error: OnError,
    ) -> None:
        self._joined_at = place
        self._streams = streams
        self._keys = keys
        self._span = span
        self._empty = empty
        self._wait_us = wait_us
        self._on_error = on_error

    def __repr__(self) -> str:
        return f"Spans({text(self._span[0])} to {text(self._span[1])})"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a join over spans of time has no {name}; say what of the right records is wanted:"
            f" count, sum, min, max, mean, first, last or aggregate, and then {name}"
        )

    def _aggregate(
        self, place: CallSite, results: dict[str, Aggregate], on_error: OnError | None
    ) -> S:
        left, right = self._streams
        policy = checked_policy(on_error or self._on_error)
        done, fields = settled_right(results, right.schema, self._empty)
        for field in fields:
            if field.name in left.schema:
                raise JobError(f'the result "{field.name}" has the name of a column of the left')
        left = without_null_spans(self._joined_at, left, self._span, policy)
        parts = (
            Part(left.schema, self._keys.left, LEFT),
            Part(right.schema, self._keys.right, RIGHT),
        )
        out = {parts[0].column(field.name): field for field in left.schema.fields}
        start, end = (parts[0].value(one) for one in self._span)
        time = parts[1].value(needed(right._time, f"{place.name} (the right stream)"))
        over = [(name, a, "" if a.over is None else parts[1].value(a.over)) for name, a in done]
        columns = tuple(dict.fromkeys((*out, start, end)))
        spec = temporal.SpanSpec(
            left=temporal.Side(columns=columns),
            right=temporal.Side(
                columns=tuple(dict.fromkeys((*(name for *_, name in over if name), time))),
                time=time,
            ),
            start=start,
            end=end,
            aggregates=tuple(
                (name, Aggregate(kind=a.kind, over=col(column) if column else None))
                for name, a, column in over
            ),
            empty=self._empty,
            wait_us=self._wait_us,
        )
        made = TwoSided(spec=spec, columns=columns, fields=out, on_error=policy, results=fields)
        at = self._joined_at
        return two_sided(place, (left, right), parts, made, self._span[1], joined_at=at)


def settled_right(
    results: Mapping[str, Aggregate], schema: Schema, empty: bool
) -> tuple[tuple[tuple[str, Aggregate], ...], tuple[Field, ...]]:
    """The aggregates over the right records; null where there is none, except a count."""
    try:
        done, fields = settled(results, schema, distinct=False)
    except JobError as error:
        raise JobError(f"of the right stream: {error}") from None
    kinds = [aggregate.kind for _, aggregate in done]
    return done, tuple(
        Field(field.name, field.type, field.nullable or (empty and kind != "count"))
        for field, kind in zip(fields, kinds, strict=True)
    )


def without_null_spans(place: CallSite, left: S, span: tuple[Expr, Expr], policy: OnError) -> S:
    """Left records whose span has no beginning or end are filtered: no record lies in it."""
    holes = [one for one in span if bind(one, left.schema).nullable]
    for one in holes:
        op = FilterOp(
            name=f"{place.name}.spans",
            at=place.at,
            inputs=(left._number,),
            schema=left.schema,
            on_error=policy,
            predicate=bind(one.is_not_null(), left.schema).expr,
        )
        left = left._made(op)
    return left
