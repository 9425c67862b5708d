"""Aggregates and states over the records of a stream, by key or all together.

The class knows nothing of jobs: a stream tells it what it is over and takes the node it makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from plait import aggregates, functions
from plait.checks import checked_policy, keyed_schema
from plait.errors import JobError
from plait.expr import Expr
from plait.expr_text import text
from plait.graph import Aggregate, AggregateNode, FoldNode, OnError, StatefulNode
from plait.model import Field, Schema
from plait.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The node that is read, its schema, the keys, and what happens to a record that fails."""

    number: int
    schema: Schema
    keys: tuple[str, ...] = ()
    on_error: OnError = "fail"


class Running(Generic[Made]):
    """Aggregates and states: by key on a keyed stream, one for all records on any other.

    All are running: one output for each input, in input order, with the key and the results.
    """

    def _over(self) -> Over:
        """What is aggregated."""
        raise TypeError(f"{type(self).__name__} has no records")

    def _made(self, node: AggregateNode | FoldNode | StatefulNode) -> Made:
        """The stream of a new node."""
        raise TypeError(f"{type(self).__name__} cannot hold {node}")

    def aggregate(self, *, on_error: OnError | None = None, **results: Aggregate) -> Made:
        """Several results at once: `aggregate(total=plait.sum("price"), n=plait.count())`."""
        with Place("aggregate") as place:
            return self._aggregate(place, results, on_error)

    def count(self, over: str | Expr | None = None, *, on_error: OnError | None = None) -> Made:
        """How many records so far, as column "count"; of a column: how many that are not null."""
        with Place("count") as place:
            return self._aggregate(place, {"count": aggregates.count(over)}, on_error)

    def sum(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The sum so far, as column "sum"."""
        with Place("sum") as place:
            return self._aggregate(place, {"sum": aggregates.sum(over)}, on_error)

    def min(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The smallest value so far, as column "min"."""
        with Place("min") as place:
            return self._aggregate(place, {"min": aggregates.min(over)}, on_error)

    def max(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The largest value so far, as column "max"."""
        with Place("max") as place:
            return self._aggregate(place, {"max": aggregates.max(over)}, on_error)

    def mean(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The mean so far, as column "mean"."""
        with Place("mean") as place:
            return self._aggregate(place, {"mean": aggregates.mean(over)}, on_error)

    def first(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The first value, as column "first"."""
        with Place("first") as place:
            return self._aggregate(place, {"first": aggregates.first(over)}, on_error)

    def last(self, over: str | Expr, *, on_error: OnError | None = None) -> Made:
        """The last value so far, as column "last"."""
        with Place("last") as place:
            return self._aggregate(place, {"last": aggregates.last(over)}, on_error)

    def fold(
        self,
        init: Any,
        step: Callable[[Any, Any], Any],
        *,
        type: Any = None,
        on_error: OnError | None = None,
    ) -> Made:
        """A state of your own: `fold(0, lambda total, bid: total + bid.price)` as column "value".

        `init` is a value, copied for each key, or a function that makes one. The type of the column
        is `type=`, or the return annotation of `step`, or the type of `init`.
        """
        with Place("fold") as place:
            over = self._over()
            functions.check_call(step, ("state", "record"))
            value = functions.value_field(step, init, type)
            node = FoldNode(
                name="fold",
                at=place.at,
                inputs=(over.number,),
                schema=keyed_schema(over.schema, over.keys, (value,)),
                on_error=checked_policy(on_error or over.on_error),
                keys=over.keys,
                init=init,
                step=step,
            )
            return self._made(node)

    def stateful(
        self,
        init: Any,
        step: Callable[[Any, Any], tuple[Any, Any]],
        *,
        schema: Any = None,
        on_error: OnError | None = None,
    ) -> Made:
        """A state machine: `step(state, record)` returns the next state and a record, or None.

        The schema of the output is `schema=`, or Out of `tuple[State, Out | None]`, or the
        input's.
        """
        with Place("stateful") as place:
            over = self._over()
            functions.check_call(step, ("state", "record"))
            node = StatefulNode(
                name="stateful",
                at=place.at,
                inputs=(over.number,),
                schema=functions.stateful_schema(step, over.schema, schema),
                on_error=checked_policy(on_error or over.on_error),
                keys=over.keys,
                init=init,
                step=step,
            )
            return self._made(node)

    def _aggregate(
        self, place: Place, results: dict[str, Aggregate], on_error: OnError | None
    ) -> Made:
        over = self._over()
        if not results:
            raise JobError("name at least one result: aggregate(total=plait.sum(...))")
        settled: list[tuple[str, Aggregate]] = []
        fields: list[Field] = []
        for name, result in results.items():
            if not isinstance(result, Aggregate):
                given = text(result) if isinstance(result, Expr) else repr(result)
                raise JobError(f"{name}={given} is no aggregate; say how: plait.sum(...)")
            aggregate, kind, nullable = aggregates.bound(result, over.schema)
            settled.append((name, aggregate))
            fields.append(Field(name, kind, nullable))
        node = AggregateNode(
            name=place.name,
            at=place.at,
            inputs=(over.number,),
            schema=keyed_schema(over.schema, over.keys, fields),
            on_error=checked_policy(on_error or over.on_error),
            keys=over.keys,
            aggregates=tuple(settled),
        )
        return self._made(node)
