"""What is done to each record by itself: filter, map, with_columns, select and their like.

The class knows nothing of jobs: a stream takes the nodes that are made here. An expression becomes
a filter or a projection, which run as native code; a Python function becomes a `CallNode`. All of
it is checked against the schema of the stream while the job is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from plait import functions, projections
from plait.checks import awaiting_of, checked_policy, checked_route, own_label
from plait.errors import JobError
from plait.expr import Expr
from plait.expr_text import text
from plait.graph import CallMode, CallNode, FilterNode, OnError, ProjectNode, Route
from plait.model import Schema, Type
from plait.place import Place
from plait.streaming import S
from plait.typing_rules import bind

if TYPE_CHECKING:
    from collections.abc import Callable


class Rowwise(Generic[S]):
    """The verbs that take one record at a time, on streams."""

    def _rows(self) -> S:
        """The stream that they read."""
        raise TypeError(f"{type(self).__name__} has no records")

    def filter(self, predicate: Any, *, on_error: OnError = "fail", route: Route = "auto") -> S:
        """The records for which an expression, or a function of the record, is true."""
        with Place("filter") as place:
            return filtered(place, self._rows(), predicate, on_error, route)

    def branch(self, predicate: Any) -> tuple[S, S]:
        """Two streams: the records for which the predicate is true, and all others."""
        with Place("branch") as place:
            if callable(predicate):
                matched = filtered(place, self._rows(), predicate, "fail")
                return matched, filtered(place, self._rows(), functions.Negated(predicate), "fail")
            matched = filtered(place, self._rows(), predicate, "fail")
            return matched, filtered(place, self._rows(), ~predicate.fill_null(False), "fail")

    def map(
        self,
        function: Any,
        *,
        schema: Any = None,
        on_error: OnError = "fail",
        route: Route = "auto",
    ) -> S:
        """Each record replaced by what a function returns.

        The output's schema is `schema=`, or the return annotation (a dataclass, or a type such as
        `int` for the one column "value"), or the input's. `route` is "pool" (worker processes, all
        cores), "inline" (this process, one core), or "auto": what pays, if copies of the function
        in other processes cannot differ from the one here; `explain` says which, and why.
        """
        with Place("map") as place:
            functions.check_call(function, ("record",))
            out = functions.map_schema(function, self._rows().schema, schema)
            return called(place, self._rows(), "map", function, out, on_error, route=route)

    def flat_map(
        self,
        function: Any,
        *,
        schema: Any = None,
        on_error: OnError = "fail",
        route: Route = "auto",
    ) -> S:
        """Each record replaced by all that a function returns or yields; none is fine."""
        with Place("flat_map") as place:
            functions.check_call(function, ("record",))
            out = functions.flat_map_schema(function, self._rows().schema, schema)
            return called(place, self._rows(), "flat_map", function, out, on_error, route=route)

    def map_async(
        self,
        function: Any,
        *,
        concurrency: int = 100,
        timeout: Any = "30s",
        retries: int = 0,
        backoff: Any = "50ms",
        schema: Any = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> S:
        """Each record replaced by what an async function returns, in the order of the records.

        Up to `concurrency` records are awaited at a time. A try may take as long as `timeout`
        (None: for ever); a record that failed is tried again up to `retries` times, after a pause
        of `backoff` that doubles from try to try, and then goes by `on_error`. The schema is found
        as that of `map`; `name` stands for the operator in errors and counts.
        """
        with Place("map_async") as place:
            functions.check_awaited(function)
            node = CallNode(
                name=own_label(name, None, ()) or place.name,
                at=place.at,
                inputs=(self._rows()._number,),
                schema=functions.map_schema(function, self._rows().schema, schema),
                on_error=checked_policy(on_error),
                mode="async",
                function=function,
                awaiting=awaiting_of(concurrency, timeout, retries, backoff),
            )
            return self._rows()._made(node)

    def map_batches(
        self,
        function: Any,
        *,
        schema: Any = None,
        on_error: OnError = "fail",
        route: Route = "auto",
    ) -> S:
        """Arrow in, Arrow out: a function of a `pyarrow.Table` of many records at once."""
        with Place("map_batches") as place:
            functions.check_call(function, ("table",))
            out = self._rows().schema if schema is None else Schema.of(schema)
            return called(place, self._rows(), "batches", function, out, on_error, route=route)

    def with_columns(
        self,
        *,
        schema: Any = None,
        on_error: OnError = "fail",
        route: Route = "auto",
        **columns: Any,
    ) -> S:
        """Columns added or replaced by expressions, or by functions whose parameters are columns.

        All of them see the record as it came in. A function's column has the type of its return
        annotation, or of `schema={"name": type}`, or of the column it replaces, or else `object`.
        """
        with Place("with_columns") as place:
            types = None if schema is None else Schema.of(schema)
            made = projections.with_columns(self._rows().schema, columns, types)
            return computed(place, self._rows(), made, on_error, route)

    def select(self, *columns: Any, on_error: OnError = "fail", **named: Any) -> S:
        """Only these columns, by name or as expressions: `select("id", total=col("a") * 2)`.

        A string is always the name of a column: `select(auction="id")` renames.
        """
        with Place("select") as place:
            return chosen(
                place,
                self._rows(),
                projections.select(self._rows().schema, columns, named),
                on_error,
            )

    def drop(self, *names: str) -> S:
        """All columns but these."""
        with Place("drop") as place:
            return chosen(place, self._rows(), projections.drop(self._rows().schema, names), "fail")

    def rename(self, **new: str) -> S:
        """Columns under new names: `rename(new="old")`."""
        with Place("rename") as place:
            return chosen(place, self._rows(), projections.rename(self._rows().schema, new), "fail")


def filtered(
    place: Place, stream: S, predicate: Any, on_error: OnError, route: Route = "auto"
) -> S:
    if isinstance(predicate, Expr):
        checked_route(route, ())
        bound = bind(predicate, stream.schema)
        if bound.type is not Type.BOOL:
            raise JobError(f"{text(predicate)} is {bound}, not a bool; compare it with something")
        node = FilterNode(
            name=place.name,
            at=place.at,
            inputs=(stream._number,),
            schema=stream.schema,
            on_error=checked_policy(on_error),
            predicate=bound.expr,
        )
        return stream._made(node)
    if not callable(predicate):
        hint = f'; did you mean col("{predicate}")?' if isinstance(predicate, str) else ""
        raise JobError(f"{predicate!r} is neither an expression nor a function{hint}")
    functions.check_call(predicate, ("record",))
    return called(place, stream, "filter", predicate, stream.schema, on_error, route=route)


def called(
    place: Place,
    stream: S,
    mode: CallMode,
    function: Callable[..., Any],
    schema: Schema,
    on_error: OnError,
    columns: tuple[tuple[str, Callable[..., Any]], ...] = (),
    route: Route = "auto",
) -> S:
    node = CallNode(
        name=place.name,
        at=place.at,
        inputs=(stream._number,),
        schema=schema,
        on_error=checked_policy(on_error),
        mode=mode,
        function=function,
        columns=columns,
        route=route,
    )
    checked_route(route, node.functions)
    return stream._made(node)


def chosen(place: Place, stream: S, made: projections.Projection, on_error: OnError) -> S:
    node = ProjectNode(
        name=place.name,
        at=place.at,
        inputs=(stream._number,),
        schema=made.schema,
        on_error=checked_policy(on_error),
        columns=made.columns,
    )
    return stream._made(node)


def computed(
    place: Place,
    stream: S,
    made: tuple[projections.Calls | None, projections.Projection | None],
    on_error: OnError,
    route: Route = "auto",
) -> S:
    calls, projection = made
    if calls is None:
        checked_route(route, ())
    else:
        first, given = calls.functions[0][1], calls.functions
        stream = called(place, stream, "columns", first, calls.schema, on_error, given, route)
    return stream if projection is None else chosen(place, stream, projection, on_error)
