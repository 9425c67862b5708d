"""The verbs that aggregate: `count`, `sum`, ... and `aggregate`, for several results at once.

The same verbs are on streams (running results), on windows, on `last_n` and on joins over spans of
time. Each verb names its result; `_bind` of the class checks it against the columns, and
`_aggregate` adds the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from plait.errors import JobError
from plait.expr import aggregates
from plait.expr.aggregates import Aggregate
from plait.expr.text import text
from plait.expr.tree import Expr
from plait.model.call_site import CallSite
from plait.model.schema import Field, Schema
from plait.streams.arguments import split_named
from plait.streams.stream_protocol import S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import OnError


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundResults:
    """Named aggregates whose columns are known to exist, and the columns that they make."""

    aggregates: tuple[tuple[str, Aggregate], ...]
    fields: tuple[Field, ...]


class AggregateVerbs(Generic[S]):
    """Aggregates over records. Each takes the name of a column or an expression, and skips nulls.

    `on_error` says what happens to a record whose value cannot be computed or does not fit a sum:
    "fail" (default), "skip" or "dead_letter".
    """

    def _bind(self, results: Mapping[str, Aggregate]) -> BoundResults:
        """The results, checked against the columns of the records."""
        raise TypeError(f"{type(self).__name__} has no records")

    def _aggregate(self, call: CallSite, results: BoundResults, on_error: OnError | None) -> S:
        """Adds the operator and returns its output."""
        raise TypeError(f"{type(self).__name__} cannot {call.name}")

    def _add_results(
        self, call: CallSite, results: Mapping[str, Aggregate], on_error: OnError | None
    ) -> S:
        return self._aggregate(call, self._bind(results), on_error)

    def aggregate(
        self,
        *results: Mapping[str, Aggregate],
        on_error: OnError | None = None,
        **named: Aggregate,
    ) -> S:
        """Several results at once, each a column with the name you give it.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> totals = bids.key_by("auction").aggregate(total=plait.sum("price"), n=plait.count())
        >>> totals.collect()[-1]
        Record(auction=1, total=80, n=2)

        Names that are not Python identifiers, or are those of arguments, go into a dict:
        `aggregate({"total-price": plait.sum("price")})`.
        """
        with CallSite("aggregate") as call:
            unnamed, wanted = split_named(results, named)
            if unnamed:
                raise JobError(f"{unnamed[0]!r} has no name; write aggregate(total=plait.sum(...))")
            return self._add_results(call, wanted, on_error)

    def count(self, over: str | Expr | None = None, *, on_error: OnError | None = None) -> S:
        """The number of records, as column "count"; with a column: of its values that are not null.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").count().collect()
        [Record(auction=1, count=1), Record(auction=1, count=2)]
        """
        with CallSite("count") as call:
            return self._add_results(call, {"count": aggregates.count(over)}, on_error)

    def sum(self, over: str | Expr, *, wrap: bool = False, on_error: OnError | None = None) -> S:
        """The sum, as column "sum". A record whose value does not fit an int64 sum fails, by
        `on_error`; with `wrap=True` the sum wraps around instead.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").sum(plait.col("price") * 2).collect()
        [Record(auction=1, sum=60), Record(auction=1, sum=160)]
        """
        with CallSite("sum") as call:
            return self._add_results(call, {"sum": aggregates.sum(over, wrap=wrap)}, on_error)

    def min(self, over: str | Expr, *, on_error: OnError | None = None) -> S:
        """The smallest value, as column "min".

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").min("price").collect()
        [Record(auction=1, min=30), Record(auction=1, min=30)]
        """
        with CallSite("min") as call:
            return self._add_results(call, {"min": aggregates.min(over)}, on_error)

    def max(self, over: str | Expr, *, on_error: OnError | None = None) -> S:
        """The largest value, as column "max".

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").max("price").collect()
        [Record(auction=1, max=30), Record(auction=1, max=50)]
        """
        with CallSite("max") as call:
            return self._add_results(call, {"max": aggregates.max(over)}, on_error)

    def mean(self, over: str | Expr, *, on_error: OnError | None = None) -> S:
        """The mean, as column "mean".

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").mean("price").collect()
        [Record(auction=1, mean=30.0), Record(auction=1, mean=40.0)]
        """
        with CallSite("mean") as call:
            return self._add_results(call, {"mean": aggregates.mean(over)}, on_error)

    def first(self, over: str | Expr, *, on_error: OnError | None = None) -> S:
        """The first value that is not null, as column "first".

        >>> visits = plait.stream([{"page": None}, {"page": "home"}, {"page": "cart"}])
        >>> visits.first("page").collect()[-1]
        Record(first='home')
        """
        with CallSite("first") as call:
            return self._add_results(call, {"first": aggregates.first(over)}, on_error)

    def last(self, over: str | Expr, *, on_error: OnError | None = None) -> S:
        """The last value that is not null, as column "last".

        >>> visits = plait.stream([{"page": None}, {"page": "home"}, {"page": "cart"}])
        >>> visits.last("page").collect()[-1]
        Record(last='cart')
        """
        with CallSite("last") as call:
            return self._add_results(call, {"last": aggregates.last(over)}, on_error)


def bind_results(
    results: Mapping[str, Aggregate], schema: Schema, *, distinct: bool
) -> BoundResults:
    """The aggregates bound to the columns of the records; `distinct`: whether it is possible."""
    if not results:
        raise JobError("name at least one result: aggregate(total=plait.sum(...))")
    checked: list[tuple[str, Aggregate]] = []
    fields: list[Field] = []
    for name, result in results.items():
        if not isinstance(result, Aggregate):
            shown = text(result) if isinstance(result, Expr) else repr(result)
            raise JobError(f"{name}={shown} is not an aggregate; write {name}=plait.sum(...)")
        if result.kind == "distinct" and not distinct:
            raise JobError(
                f"{name}: distinct values are counted in windows only;"
                ' put a window before it, such as .tumbling("10s")'
            )
        aggregate, kind, nullable = aggregates.bind_aggregate(result, schema)
        checked.append((name, aggregate))
        fields.append(Field(name, kind, nullable))
    return BoundResults(aggregates=tuple(checked), fields=tuple(fields))
