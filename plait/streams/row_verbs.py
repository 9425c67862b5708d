"""What is done to each record by itself: filter, map, with_columns, select and their like.

The class knows nothing of jobs: a stream takes the operators that are made here. An expression
becomes a filter or a projection, which run as native code; a Python function becomes a `CallOp`.
All of it is checked against the schema of the stream while the job is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from plait.errors import JobError
from plait.expr.text import text
from plait.expr.tree import Expr
from plait.expr.type_checker import bind
from plait.functions import signatures
from plait.graph.operators import (
    Awaiting,
    CallMode,
    CallOp,
    FilterOp,
    OnError,
    ProjectOp,
    Retrying,
    Route,
)
from plait.model.call_site import CallSite
from plait.model.schema import Schema, Type
from plait.streams import projections
from plait.streams.arguments import (
    CallPolicy,
    awaiting_of,
    checked_policy,
    checked_route,
    checked_tries,
    own_label,
)
from plait.streams.stream_protocol import S

if TYPE_CHECKING:
    from collections.abc import Callable


class Rowwise(Generic[S]):
    """The verbs that take one record at a time, on streams."""

    def _rows(self) -> S:
        """The stream that they read."""
        raise TypeError(f"{type(self).__name__} has no records")

    def filter(
        self,
        predicate: Any,
        *,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Any = "50ms",
        route: Route = "auto",
    ) -> S:
        """The records for which an expression, or a function of the record, is true."""
        with CallSite("filter") as place:
            manner = manner_of(on_error, retries, backoff, route)
            return filtered(place, self._rows(), predicate, manner)

    def branch(self, predicate: Any) -> tuple[S, S]:
        """Two streams: the records for which the predicate is true, and all others."""
        with CallSite("branch") as place:
            matched = filtered(place, self._rows(), predicate, Manner())
            if callable(predicate):
                others: Any = signatures.Negated(predicate)
            else:
                others = ~predicate.fill_null(False)
            return matched, filtered(place, self._rows(), others, Manner())

    def map(
        self,
        function: Any,
        *,
        schema: Any = None,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Any = "50ms",
        route: Route = "auto",
    ) -> S:
        """Each record replaced by what a function returns.

        The output's schema is `schema=`, or the return annotation (a dataclass, or a type such as
        `int` for the one column "value"), or the input's. `route` is "pool" (worker processes, all
        cores), "inline" (this process, one core), or "auto": what pays, if copies of the function
        in other processes cannot differ from the one here; `explain` says which, and why.

        A record whose function raised is tried again up to `retries` times, after a pause of
        `backoff` that doubles from try to try and holds up the records behind it, and then goes by
        `on_error`; "retry" is short for `retries=3, on_error="fail"`.
        """
        with CallSite("map") as place:
            signatures.check_call(function, ("record",))
            out = signatures.map_schema(function, self._rows().schema, schema)
            manner = manner_of(on_error, retries, backoff, route)
            return called(place, self._rows(), "map", function, out, manner)

    def flat_map(
        self,
        function: Any,
        *,
        schema: Any = None,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Any = "50ms",
        route: Route = "auto",
    ) -> S:
        """Each record replaced by all that a function returns or yields; none is fine."""
        with CallSite("flat_map") as place:
            signatures.check_call(function, ("record",))
            out = signatures.flat_map_schema(function, self._rows().schema, schema)
            manner = manner_of(on_error, retries, backoff, route)
            return called(place, self._rows(), "flat_map", function, out, manner)

    def map_async(
        self,
        function: Any,
        *,
        concurrency: int = 100,
        timeout: Any = "30s",
        retries: int | None = None,
        backoff: Any = "50ms",
        schema: Any = None,
        on_error: CallPolicy = "fail",
        name: str | None = None,
    ) -> S:
        """Each record replaced by what an async function returns, in the order of the records.

        Up to `concurrency` records are awaited at a time. A try may take as long as `timeout`
        (None: for ever); a record that failed is tried again up to `retries` times, after a pause
        of `backoff` that doubles from try to try, and then goes by `on_error` ("retry" is short for
        `retries=3, on_error="fail"`). The schema is found as that of `map`; `name` stands for the
        operator in errors and counts.
        """
        with CallSite("map_async") as place:
            signatures.check_awaited(function)
            out = signatures.map_schema(function, self._rows().schema, schema)
            policy, tries = checked_tries(on_error, retries, backoff)
            awaiting = awaiting_of(concurrency, timeout, tries)
            place.name = own_label(name, None, ()) or place.name
            return awaited(place, self._rows(), function, out, policy, awaiting)

    def map_batches(
        self,
        function: Any,
        *,
        schema: Any = None,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Any = "50ms",
        route: Route = "auto",
    ) -> S:
        """Arrow in, Arrow out: a function of a `pyarrow.Table` of many records at once."""
        with CallSite("map_batches") as place:
            signatures.check_call(function, ("table",))
            out = self._rows().schema if schema is None else Schema.of(schema)
            manner = manner_of(on_error, retries, backoff, route)
            return called(place, self._rows(), "batches", function, out, manner)

    def with_columns(
        self,
        *,
        schema: Any = None,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Any = "50ms",
        route: Route = "auto",
        **columns: Any,
    ) -> S:
        """Columns added or replaced by expressions, or by functions whose parameters are columns.

        All of them see the record as it came in. A function's column has the type of its return
        annotation, or of `schema={"name": type}`, or of the column it replaces, or else `object`.
        """
        with CallSite("with_columns") as place:
            types = None if schema is None else Schema.of(schema)
            made = projections.with_columns(self._rows().schema, columns, types)
            manner = manner_of(on_error, retries, backoff, route)
            return computed(place, self._rows(), made, manner)

    def with_columns_async(
        self,
        *,
        concurrency: int = 100,
        timeout: Any = "30s",
        retries: int | None = None,
        backoff: Any = "50ms",
        schema: Any = None,
        on_error: CallPolicy = "fail",
        name: str | None = None,
        **columns: Any,
    ) -> S:
        """Columns added or replaced by async functions whose parameters are columns.

        The functions of a record are awaited at the same time, in one try; the limits are those of
        `map_async`, and the types of the columns are found as those of `with_columns`.
        """
        with CallSite("with_columns_async") as place:
            types = None if schema is None else Schema.of(schema)
            made = projections.awaited_columns(self._rows().schema, columns, types)
            policy, tries = checked_tries(on_error, retries, backoff)
            awaiting = awaiting_of(concurrency, timeout, tries)
            place.name = own_label(name, None, ()) or place.name
            first, given = made.functions[0][1], made.functions
            return awaited(place, self._rows(), first, made.schema, policy, awaiting, given)

    def select(self, *columns: Any, on_error: OnError = "fail", **named: Any) -> S:
        """Only these columns, by name or as expressions: `select("id", total=col("a") * 2)`.

        A string is always the name of a column: `select(auction="id")` renames.
        """
        with CallSite("select") as place:
            return chosen(
                place,
                self._rows(),
                projections.select(self._rows().schema, columns, named),
                on_error,
            )

    def drop(self, *names: str) -> S:
        """All columns but these."""
        with CallSite("drop") as place:
            return chosen(place, self._rows(), projections.drop(self._rows().schema, names), "fail")

    def rename(self, **new: str) -> S:
        """Columns under new names: `rename(new="old")`."""
        with CallSite("rename") as place:
            return chosen(place, self._rows(), projections.rename(self._rows().schema, new), "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a Python function is called: what happens when it raises, and where it runs."""

    on_error: OnError = "fail"
    retrying: Retrying | None = None
    route: Route = "auto"

    def of_expressions(self) -> None:
        """Raises if it says something that only functions can do."""
        checked_route(self.route, ())
        if self.retrying is not None:
            raise JobError(
                "retries are for Python functions; an expression gives the same at every try"
            )


def manner_of(on_error: Any, retries: Any, backoff: Any, route: Route) -> Manner:
    policy, tries = checked_tries(on_error, retries, backoff)
    return Manner(on_error=policy, retrying=tries if tries.retries else None, route=route)


def filtered(place: CallSite, stream: S, predicate: Any, manner: Manner) -> S:
    if isinstance(predicate, Expr):
        manner.of_expressions()
        bound = bind(predicate, stream.schema)
        if bound.type is not Type.BOOL:
            raise JobError(f"{text(predicate)} is {bound}, not a bool; compare it with something")
        op = FilterOp(
            name=place.name,
            at=place.at,
            inputs=(stream._number,),
            schema=stream.schema,
            on_error=manner.on_error,
            predicate=bound.expr,
        )
        return stream._made(op)
    if not callable(predicate):
        hint = f'; did you mean col("{predicate}")?' if isinstance(predicate, str) else ""
        raise JobError(f"{predicate!r} is neither an expression nor a function{hint}")
    signatures.check_call(predicate, ("record",))
    return called(place, stream, "filter", predicate, stream.schema, manner)


def called(
    place: CallSite,
    stream: S,
    mode: CallMode,
    function: Callable[..., Any],
    schema: Schema,
    manner: Manner,
    columns: tuple[tuple[str, Callable[..., Any]], ...] = (),
) -> S:
    op = CallOp(
        name=place.name,
        at=place.at,
        inputs=(stream._number,),
        schema=schema,
        on_error=manner.on_error,
        mode=mode,
        function=function,
        columns=columns,
        retrying=manner.retrying,
        route=manner.route,
    )
    checked_route(manner.route, op.functions)
    return stream._made(op)


def awaited(
    place: CallSite,
    stream: S,
    function: Callable[..., Any],
    schema: Schema,
    on_error: OnError,
    awaiting: Awaiting,
    columns: tuple[tuple[str, Callable[..., Any]], ...] = (),
) -> S:
    op = CallOp(
        name=place.name,
        at=place.at,
        inputs=(stream._number,),
        schema=schema,
        on_error=on_error,
        mode="async",
        function=function,
        columns=columns,
        awaiting=awaiting,
    )
    return stream._made(op)


def chosen(place: CallSite, stream: S, made: projections.Projection, on_error: OnError) -> S:
    op = ProjectOp(
        name=place.name,
        at=place.at,
        inputs=(stream._number,),
        schema=made.schema,
        on_error=checked_policy(on_error),
        columns=made.columns,
    )
    return stream._made(op)


def computed(
    place: CallSite,
    stream: S,
    made: tuple[projections.Calls | None, projections.Projection | None],
    manner: Manner,
) -> S:
    calls, projection = made
    if calls is None:
        manner.of_expressions()
    else:
        first, given = calls.functions[0][1], calls.functions
        stream = called(place, stream, "columns", first, calls.schema, manner, given)
    return stream if projection is None else chosen(place, stream, projection, manner.on_error)
