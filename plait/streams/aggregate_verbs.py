"""The verbs that aggregate, each one line over `_aggregate`: running, in windows, over spans.

What differs between these is what the records of a result are, and `_aggregate` of each class
says that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from plait.errors import JobError
from plait.expr import aggregates
from plait.expr.aggregates import Aggregate
from plait.expr.text import text
from plait.expr.tree import Expr
from plait.model.call_site import CallSite
from plait.model.schema import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import OnError

Made = TypeVar("Made")


class Aggregating(Generic[Made]):
    """Aggregates over some records. Each takes the name of a column or an expression."""

    def _aggregate(
        self, place: CallSite, results: dict[str, Aggregate], on_error: OnError | None
    ) -> Made:
        """The stream of the results."""
        raise TypeError(f"{type(self).__name__} cannot {place.name}")

    def aggregate(self, *, on_error: OnError | None = None, **results: Aggregate) -> Made:
        """Several results at once: `aggregate(total=plait.sum("price"), n=plait.count())`."""
        with CallSite("aggregate") as place:
            return self._aggregate(place, results, on_error)

    def count(self, over: str | Expr | None = None, *, on_error: OnError | None = None) -> Made:
        """How many records, as column "count"; of a column: how many that are not null."""
        with CallSite("count") as place:
            return self._aggregate(place, {"count": aggregates.count(over)}, on_error)

    def sum(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The sum, as column "sum"."""
        with CallSite("sum") as place:
            return self._aggregate(place, {"sum": aggregates.sum(over)}, on_error)

    def min(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The smallest value, as column "min"."""
        with CallSite("min") as place:
            return self._aggregate(place, {"min": aggregates.min(over)}, on_error)

    def max(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The largest value, as column "max"."""
        with CallSite("max") as place:
            return self._aggregate(place, {"max": aggregates.max(over)}, on_error)

    def mean(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The mean, as column "mean"."""
        with CallSite("mean") as place:
            return self._aggregate(place, {"mean": aggregates.mean(over)}, on_error)

    def first(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The first value, as column "first"."""
        with CallSite("first") as place:
            return self._aggregate(place, {"first": aggregates.first(over)}, on_error)

    def last(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The last value, as column "last"."""
        with CallSite("last") as place:
            return self._aggregate(place, {"last": aggregates.last(over)}, on_error)


def settled(
    results: Mapping[str, Aggregate], schema: Schema, *, distinct: bool
) -> tuple[tuple[tuple[str, Aggregate], ...], tuple[Field, ...]]:
    """The aggregates bound to the schema of the records, and the columns of their results.

    `distinct`: whether different values can be counted here."""
    if not results:
        raise JobError("name at least one result: aggregate(total=plait.sum(...))")
    done: list[tuple[str, Aggregate]] = []
    fields: list[Field] = []
    for name, result in results.items():
        if not isinstance(result, Aggregate):
            given = text(result) if isinstance(result, Expr) else repr(result)
            raise JobError(f"{name}={given} is no aggregate; say how: plait.sum(...)")
        if result.kind == "distinct" and not distinct:
            raise JobError(
                f"{name}: different values are counted in windows only;"
                ' put a window before it, such as .tumbling("10s")'
            )
        aggregate, kind, nullable = aggregates.bind_aggregate(result, schema)
        done.append((name, aggregate))
        fields.append(Field(name, kind, nullable))
    return tuple(done), tuple(fields)
