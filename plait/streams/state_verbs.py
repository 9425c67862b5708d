"""Running aggregates and functions with state: by key on a keyed stream, else over all records.

Each input gives one output, at its place in the order (`stateful` may give none). With
`key_by(..., ttl=...)` the operators are those of `plait.streams.state_ttl`, which drop old state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.functions import signatures
from plait.graph.operators import AggregateOp, FoldOp, OnError, Route, StatefulOp
from plait.model.call_site import CallSite
from plait.streams.aggregate_verbs import AggregateVerbs, BoundResults, bind_results
from plait.streams.arguments import checked_route, checked_version, keyed_schema
from plait.streams.state_ttl import (
    FoldProcess,
    StatefulProcess,
    add_running_aggregates,
    add_state_process,
)
from plait.streams.stream_protocol import S, Verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plait.expr.aggregates import Aggregate
    from plait.model.schema import Schema


class StateVerbs(Verbs[S], AggregateVerbs[S]):
    """Running aggregates, `fold` and `stateful`, on streams and keyed streams."""

    def fold(
        self,
        init: Any,
        step: Callable[[Any, Any], Any],
        *,
        type: Any = None,
        on_error: OnError | None = None,
        route: Route = "auto",
        version: int = 1,
        migrate: Callable[[Any, int], Any] | None = None,
    ) -> S:
        """Keeps a state and gives it after every record, as column "value".

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").fold(0, lambda total, bid: total + bid.price).collect()
        [Record(auction=1, value=30), Record(auction=1, value=80)]

        Args:
            init: the first state, copied for each key, or a function that makes one.
            step: takes the state and a record, and returns the next state.
            type: of the column; otherwise the return annotation of `step`, or the type of `init`.
            on_error: "fail" (default), "skip" or "dead_letter", when `step` raises.
            route: as in `Stream.map`; in a pool each worker process has the state of some keys.
            version: of the state; a checkpoint with an older one goes through `migrate`.
            migrate: takes a state of an older version and that version, and returns the state as
                `step` takes it now.
        """
        with CallSite("fold") as call:
            site = self._site()
            if callable(init) and not callable(step):
                raise JobError(f"the first state comes first: fold({step!r}, function)")
            signatures.check_call(step, ("state", "record"))
            value = signatures.value_field(step, init, type)
            schema = keyed_schema(site.stream.schema, site.keys, (value,))
            process = FoldProcess(init, step, checked_version(version, migrate), migrate)
            return self._add_step(call, FoldOp, process, schema, on_error, route)

    def stateful(
        self,
        init: Any,
        step: Callable[[Any, Any], tuple[Any, Any]],
        *,
        schema: Any = None,
        on_error: OnError | None = None,
        route: Route = "auto",
        version: int = 1,
        migrate: Callable[[Any, int], Any] | None = None,
    ) -> S:
        """A state machine: `step(state, record)` returns the next state and a record, or None.

        >>> def changes(last, bid):
        ...     return bid.price, bid if bid.price != last else None
        >>> prices = plait.stream([{"id": 1, "price": price} for price in (3, 3, 5)])
        >>> prices.key_by("id").stateful(0, changes).collect()
        [Record(id=1, price=3), Record(id=1, price=5)]

        Args:
            init: the first state, copied for each key, or a function that makes one.
            step: returns `(state, record)`, or `(state, None)` for no output.
            schema: of the output; otherwise Out of the annotation `tuple[State, Out | None]`, or
                the schema of the input.
            on_error: "fail" (default), "skip" or "dead_letter", when `step` raises.
            route: as in `fold`.
            version: as in `fold`.
            migrate: as in `fold`.
        """
        with CallSite("stateful") as call:
            signatures.check_call(step, ("state", "record"))
            out = signatures.stateful_schema(step, self._site().stream.schema, schema)
            process = StatefulProcess(init, step, checked_version(version, migrate), migrate)
            return self._add_step(call, StatefulOp, process, out, on_error, route)

    def _add_step(
        self,
        call: CallSite,
        kind: type[FoldOp | StatefulOp],
        process: FoldProcess | StatefulProcess,
        schema: Schema,
        on_error: OnError | None,
        route: Route,
    ) -> S:
        site = self._site().with_policy(on_error)
        if site.ttl_us:
            return add_state_process(call, site, process, schema, route)
        op = kind(
            name=call.name,
            at=call.at,
            inputs=(site.stream._number,),
            schema=schema,
            on_error=site.on_error,
            keys=site.keys,
            init=process.init,
            step=process.step,
            route=route,
            version=process.version,
            migrate=process.migrates,
        )
        checked_route(route, op.functions)
        return site.stream._append(op)

    def _bind(self, results: Mapping[str, Aggregate]) -> BoundResults:
        return bind_results(results, self._site().stream.schema, distinct=False)

    def _aggregate(self, call: CallSite, results: BoundResults, on_error: OnError | None) -> S:
        site = self._site().with_policy(on_error)
        schema = keyed_schema(site.stream.schema, site.keys, results.fields)
        if site.ttl_us:
            return add_running_aggregates(call, site, results.aggregates, schema)
        op = AggregateOp(
            name=call.name,
            at=call.at,
            inputs=(site.stream._number,),
            schema=schema,
            on_error=site.on_error,
            keys=site.keys,
            aggregates=results.aggregates,
        )
        return site.stream._append(op)
