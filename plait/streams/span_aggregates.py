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
from plait.model.schema import Field
from plait.streams.aggregate_verbs import AggregateVerbs, BoundResults, bind_results
from plait.streams.arguments import checked_policy
from plait.streams.event_time import require_time
from plait.streams.stream_protocol import S
from plait.streams.two_inputs import LEFT, RIGHT, JoinKeys, Part, TwoSided, add_two_sided

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import OnError
    from plait.model.call_site import CallSite


class Spans(AggregateVerbs[S]):
    """The right records in a span of time of each left record, made by `join(between=(a, b))`.

        auctions.join(bids, on=("id", "auction"), between=(col("ts"), col("expires"))).max("price")

    Its methods give a stream again, with one row for each left record once the watermark has passed
    the end of its span: the columns of the left record, and the results over the right records of
    its key from `a` to `b`, both included. A left record without any gives no row, unless
    how="left".
    """

    def __init__(
        self,
        call: CallSite,
        streams: tuple[S, S],
        keys: JoinKeys,
        span: tuple[Expr, Expr],
        empty: bool,
        wait_us: int,
        on_error: OnError,
    ) -> None:
        self._joined_at = call
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
            f"a join over spans of time has no {name}; first call count, sum, min, max, mean,"
            f" first, last or aggregate, and then {name}"
        )

    def _bind(self, results: Mapping[str, Aggregate]) -> BoundResults:
        try:
            return bind_results(results, self._streams[1].schema, distinct=False)
        except JobError as error:
            raise JobError(f"in the right stream: {error}") from None

    def _aggregate(self, call: CallSite, results: BoundResults, on_error: OnError | None) -> S:
        left, right = self._streams
        policy = checked_policy(on_error or self._on_error)
        fields = result_fields(results, self._empty)
        for field in fields:
            if field.name in left.schema:
                raise JobError(
                    f'the result "{field.name}" has the name of a column of the left stream;'
                    " choose another"
                )
        left = without_null_spans(self._joined_at, left, self._span, policy)
        parts = (
            Part(left.schema, self._keys.left, LEFT),
            Part(right.schema, self._keys.right, RIGHT),
        )
        out = {parts[0].column(field.name): field for field in left.schema.fields}
        start, end = (parts[0].value(one) for one in self._span)
        time = parts[1].value(require_time(right._time, f"{call.name} (the right stream)"))
        over = [
            (name, a, "" if a.over is None else parts[1].value(a.over))
            for name, a in results.aggregates
        ]
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
                (name, Aggregate(kind=a.kind, over=col(column) if column else None, wrap=a.wrap))
                for name, a, column in over
            ),
            empty=self._empty,
            wait_us=self._wait_us,
        )
        operator = TwoSided(spec=spec, columns=columns, fields=out, on_error=policy, results=fields)
        at = self._joined_at
        return add_two_sided(call, (left, right), parts, operator, self._span[1], joined_at=at)


def result_fields(results: BoundResults, empty: bool) -> tuple[Field, ...]:
    """The columns of the results. `empty`: a left record may have no right one; then every result
    but a count is null."""
    kinds = [aggregate.kind for _, aggregate in results.aggregates]
    return tuple(
        Field(field.name, field.type, field.nullable or (empty and kind != "count"))
        for field, kind in zip(results.fields, kinds, strict=True)
    )


def without_null_spans(call: CallSite, left: S, span: tuple[Expr, Expr], policy: OnError) -> S:
    """The left records whose span has a start and an end; no record lies in the others."""
    holes = [one for one in span if bind(one, left.schema).nullable]
    for one in holes:
        op = FilterOp(
            name=f"{call.name}.spans",
            at=call.at,
            inputs=(left._number,),
            schema=left.schema,
            on_error=policy,
            predicate=bind(one.is_not_null(), left.schema).expr,
        )
        left = left._append(op)
    return left
