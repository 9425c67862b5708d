"""Aggregates and states over the records of a stream, by key or all together.

The class knows nothing of jobs: a stream tells it what it is over and takes the operator it makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plait.functions import signatures
from plait.graph.operators import AggregateOp, FoldOp, OnError, Route, StatefulOp
from plait.model.call_site import CallSite
from plait.streams.aggregate_verbs import Aggregating, Made, settled
from plait.streams.arguments import checked_policy, checked_route, keyed_schema
from plait.streams.state_ttl import Folded, Stepped, aggregated, stepped

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.expr.aggregates import Aggregate
    from plait.model.schema import Schema
    from plait.streams.stream_protocol import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The operator that is read, its schema, the keys, and what happens to a record that fails."""

    number: int
    schema: Schema
    keys: tuple[str, ...] = ()
    on_error: OnError = "fail"


class Running(Aggregating[Made]):
    """Aggregates and states: by key on a keyed stream, one for all records on any other.

    All are running: one output for each input, in input order, with the key and the results.
    """

    def _over(self) -> Over:
        """What is aggregated."""
        raise TypeError(f"{type(self).__name__} has no records")

    def _kept(self) -> Site[Any] | None:
        """The records, if the state of their keys is forgotten."""
        return None

    def _made(self, op: AggregateOp | FoldOp | StatefulOp) -> Made:
        """The stream of a new operator."""
        raise TypeError(f"{type(self).__name__} cannot hold {op}")

    def fold(
        self,
        init: Any,
        step: Callable[[Any, Any], Any],
        *,
        type: Any = None,
        on_error: OnError | None = None,
        route: Route = "auto",
    ) -> Made:
        """A state of your own: `fold(0, lambda total, bid: total + bid.price)` as column "value".

        `init` is a value, copied for each key, or a function that makes one. The type of the column
        is `type=`, or the return annotation of `step`, or the type of `init`. `route`: as of `map`;
        in worker processes each has the state of a part of the keys.
        """
        with CallSite("fold") as place:
            over = self._over()
            signatures.check_call(step, ("state", "record"))
            value = signatures.value_field(step, init, type)
            schema = keyed_schema(over.schema, over.keys, (value,))
            return self._stepped(place, FoldOp, Folded(init, step), schema, on_error, route)

    def stateful(
        self,
        init: Any,
        step: Callable[[Any, Any], tuple[Any, Any]],
        *,
        schema: Any = None,
        on_error: OnError | None = None,
        route: Route = "auto",
    ) -> Made:
        """A state machine: `step(state, record)` returns the next state and a record, or None.

        The schema of the output is `schema=`, or Out of `tuple[State, Out | None]`, or the
        input's. `route`: as of `fold`.
        """
        with CallSite("stateful") as place:
            over = self._over()
            signatures.check_call(step, ("state", "record"))
            out = signatures.stateful_schema(step, over.schema, schema)
            return self._stepped(place, StatefulOp, Stepped(init, step), out, on_error, route)

    def _stepped(
        self,
        place: CallSite,
        kind: type[FoldOp | StatefulOp],
        done: Folded | Stepped,
        schema: Schema,
        on_error: OnError | None,
        route: Route,
    ) -> Made:
        over = self._over()
        policy = checked_policy(on_error or over.on_error)
        if site := self._kept():
            made: Made = stepped(place, with_policy(site, policy), done, schema, route)
            return made
        op = kind(
            name=place.name,
            at=place.at,
            inputs=(over.number,),
            schema=schema,
            on_error=policy,
            keys=over.keys,
            init=done.init,
            step=done.step,
            route=route,
        )
        checked_route(route, op.functions)
        return self._made(op)

    def _aggregate(
        self, place: CallSite, results: dict[str, Aggregate], on_error: OnError | None
    ) -> Made:
        over = self._over()
        site = self._kept()
        done, fields = settled(results, over.schema, distinct=False)
        schema = keyed_schema(over.schema, over.keys, fields)
        policy = checked_policy(on_error or over.on_error)
        if site is not None:
            made: Made = aggregated(place, with_policy(site, policy), done, schema)
            return made
        op = AggregateOp(
            name=place.name,
            at=place.at,
            inputs=(over.number,),
            schema=schema,
            on_error=policy,
            keys=over.keys,
            aggregates=done,
        )
        return self._made(op)


def with_policy(site: Site[Any], policy: OnError) -> Site[Any]:
    return replace(site, on_error=policy)
