"""The verbs that take one record at a time: filter, map, with_columns, select, ...

An expression becomes a filter or a projection, which run as native code; a Python function becomes
a `CallOp`. All arguments are checked against the schema of the stream while the job is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    named_columns,
    old_to_new,
    own_label,
    split_named,
)
from plait.streams.output_schemas import (
    INFER,
    awaited_results,
    flat_map_results,
    infer_schema,
    map_results,
)
from plait.streams.stream_protocol import S, Verbs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plait.model.durations import Duration


class RowVerbs(Verbs[S]):
    """The methods that take one record at a time, on streams."""

    def filter(
        self,
        predicate: Expr | Callable[[Any], Any],
        *,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Duration = "50ms",
        route: Route = "auto",
    ) -> S:
        """Keeps the records for which an expression, or a function of the record, is true.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.filter(plait.col("price") > 40).collect()
        [Record(auction=1, price=50)]

        A null is not true. The other arguments are for functions, as in `map`.
        """
        with CallSite("filter") as call:
            manner = manner_of(on_error, retries, backoff, route)
            return add_filter(call, self._site().stream, predicate, manner)

    def branch(self, predicate: Expr | Callable[[Any], Any]) -> tuple[S, S]:
        """Splits the stream: records for which the predicate is true, and all others.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> cheap, expensive = bids.branch(plait.col("price") < 40)
        >>> cheap.collect(), expensive.collect()
        ([Record(auction=1, price=30)], [Record(auction=1, price=50)])
        """
        with CallSite("branch") as call:
            stream = self._site().stream
            matched = add_filter(call, stream, predicate, Manner())
            others: Any
            if isinstance(predicate, Expr):
                others = ~predicate.fill_null(False)
            else:
                others = signatures.Negated(predicate)
            return matched, add_filter(call, stream, others, Manner())

    def map(
        self,
        function: Callable[[Any], Any],
        *,
        schema: Any = None,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Duration = "50ms",
        route: Route = "auto",
    ) -> S:
        """Replaces each record by what a function returns.

        >>> def parse(line) -> int:
        ...     return int(line.value)
        >>> plait.stream(["12", "x", "30"]).map(parse, on_error="skip").collect()
        [Record(value=12), Record(value=30)]

        Args:
            function: takes a record.
            schema: of the output; otherwise the return annotation (a dataclass, or a type such as
                `int` for the one column "value"), or the schema of the input. "infer": the types
                that the function gives for the first 1,000 records of each source, which are read
                for that while the job is built.
            on_error: when the function raises: "fail" ends the job, "skip" drops the record,
                "dead_letter" sets it aside, "retry" is short for `retries=3, on_error="fail"`.
            retries: how often a record is tried again before `on_error` applies.
            backoff: pause before the first retry; it doubles from try to try. Later records wait.
            route: "pool" (worker processes, all cores), "inline" (this process, one core) or
                "auto": the pool, if it pays and copies of the function cannot behave differently.
                `explain` says which, and why.
        """
        with CallSite("map") as call:
            stream = self._site().stream
            signatures.check_call(function, ("record",))
            if schema == INFER:
                schema = infer_schema(call, stream, map_results(function))
            out = signatures.map_schema(function, stream.schema, schema)
            manner = manner_of(on_error, retries, backoff, route)
            return add_call(call, stream, "map", function, out, manner)

    def flat_map(
        self,
        function: Callable[[Any], Any],
        *,
        schema: Any = None,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Duration = "50ms",
        route: Route = "auto",
    ) -> S:
        """Replaces each record by all records that a function returns or yields, or by none.

        >>> def words(line) -> list[str]:
        ...     return line.value.split()
        >>> plait.stream(["to be", "or"]).flat_map(words).collect()
        [Record(value='to'), Record(value='be'), Record(value='or')]

        The other arguments are those of `map`.
        """
        with CallSite("flat_map") as call:
            stream = self._site().stream
            signatures.check_call(function, ("record",))
            if schema == INFER:
                schema = infer_schema(call, stream, flat_map_results(function))
            out = signatures.flat_map_schema(function, stream.schema, schema)
            manner = manner_of(on_error, retries, backoff, route)
            return add_call(call, stream, "flat_map", function, out, manner)

    def map_async(
        self,
        function: Callable[[Any], Awaitable[Any]],
        *,
        concurrency: int = 100,
        timeout: Duration | None = "30s",
        retries: int | None = None,
        backoff: Duration = "50ms",
        schema: Any = None,
        on_error: CallPolicy = "fail",
        name: str | None = None,
        repeatable: bool = False,
    ) -> S:
        """Replaces each record by what an async function returns, in the order of the records.

        >>> async def doubled(record) -> int:
        ...     return record.value * 2
        >>> plait.stream([1, 2]).map_async(doubled, concurrency=500, timeout="2s").collect()
        [Record(value=2), Record(value=4)]

        Args:
            function: takes a record.
            concurrency: how many records are awaited at a time.
            timeout: how long one try may take (None: for ever).
            retries: how often a record is tried again, before `on_error` applies.
            backoff: pause before the first retry; it doubles from try to try.
            schema: of the output, found as in `map`.
            on_error: as in `map`.
            name: of the operator in errors and counts.
            repeatable: it gives the same for the same record whenever it is called; asked for by
                sinks that commit between checkpoints.
        """
        with CallSite("map_async") as call:
            stream = self._site().stream
            signatures.check_awaited(function)
            if schema == INFER:
                schema = infer_schema(call, stream, awaited_results(function))
            out = signatures.map_schema(function, stream.schema, schema)
            policy, tries = checked_tries(on_error, retries, backoff)
            awaiting = awaiting_of(concurrency, timeout, tries)
            call.name = own_label(name, None, ()) or call.name
            return add_awaited_call(
                call, stream, function, out, policy, awaiting, repeatable=repeatable
            )

    def map_batches(
        self,
        function: Callable[[Any], Any],
        *,
        schema: Any = None,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Duration = "50ms",
        route: Route = "auto",
        repeatable: bool = False,
    ) -> S:
        """Calls a function with a `pyarrow.Table` of many records; it returns a table.

        >>> numbers = plait.stream([3, 1, 2])
        >>> numbers.map_batches(lambda table: table.slice(0, 2)).collect()
        [Record(value=3), Record(value=1)]

        `schema` is that of the output (default: of the input). The other arguments are those of
        `map`, for a whole batch at a time. `repeatable=True` says that it gives the same rows
        whatever batches they come in; asked for on nodes by sinks that commit between checkpoints.
        """
        with CallSite("map_batches") as call:
            stream = self._site().stream
            signatures.check_call(function, ("table",))
            out = stream.schema if schema is None else Schema.of(schema)
            manner = manner_of(on_error, retries, backoff, route)
            return add_call(call, stream, "batches", function, out, manner, repeatable=repeatable)

    def with_columns(
        self,
        columns: Mapping[str, Any] | None = None,
        /,
        *,
        schema: Any = None,
        on_error: CallPolicy = "fail",
        retries: int | None = None,
        backoff: Duration = "50ms",
        route: Route = "auto",
        **named: Any,
    ) -> S:
        """Adds or replaces columns by expressions, or by functions whose parameters are columns.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.with_columns(half=plait.col("price") / 2).schema
        auction: int64, price: int64, half: float64

        Names that are not Python identifiers, or are those of arguments, go into a dict.
        All of them see the record as it came in. The type of a function's column is its return
        annotation, or that in `schema={"name": type}`, or that of the column it replaces, or else
        `object`. The other arguments are for functions, as in `map`.
        """
        with CallSite("with_columns") as call:
            stream = self._site().stream
            types = None if schema is None else Schema.of(schema)
            wanted = named_columns(columns, named)
            new = projections.with_columns(stream.schema, wanted, types)
            manner = manner_of(on_error, retries, backoff, route)
            return add_columns(call, stream, new, manner)

    def with_columns_async(
        self,
        columns: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
        /,
        *,
        concurrency: int = 100,
        timeout: Duration | None = "30s",
        retries: int | None = None,
        backoff: Duration = "50ms",
        schema: Any = None,
        on_error: CallPolicy = "fail",
        name: str | None = None,
        repeatable: bool = False,
        **named: Callable[..., Awaitable[Any]],
    ) -> S:
        """Adds or replaces columns by async functions whose parameters are columns.

        >>> async def country(ip: str) -> str:
        ...     return "nz" if ip.startswith("10.") else "?"
        >>> clicks = plait.stream([{"ip": "10.0.0.1"}])
        >>> clicks.with_columns_async(country=country, concurrency=500).collect()
        [Record(ip='10.0.0.1', country='nz')]

        The functions of a record are awaited together, in one try. The limits are those of
        `map_async`; the types of the columns are found as in `with_columns`.
        """
        with CallSite("with_columns_async") as call:
            stream = self._site().stream
            types = None if schema is None else Schema.of(schema)
            wanted = named_columns(columns, named)
            calls = projections.awaited_columns(stream.schema, wanted, types)
            policy, tries = checked_tries(on_error, retries, backoff)
            awaiting = awaiting_of(concurrency, timeout, tries)
            call.name = own_label(name, None, ()) or call.name
            first, functions = calls.functions[0][1], calls.functions
            return add_awaited_call(
                call, stream, first, calls.schema, policy, awaiting, functions, repeatable
            )

    def select(
        self, *columns: str | Expr | Mapping[str, Any], on_error: OnError = "fail", **named: Any
    ) -> S:
        """Keeps only these columns, by name or as expressions.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.select("auction", double=plait.col("price") * 2).collect()
        [Record(auction=1, double=60), Record(auction=1, double=100)]

        A string is always the name of a column: `select(auction="id")` renames. Names that are not
        Python identifiers, or are those of arguments, go into a dict.
        """
        with CallSite("select") as call:
            stream = self._site().stream
            plain, others = split_named(columns, named)
            return add_select(
                call, stream, projections.select(stream.schema, plain, others), on_error
            )

    def drop(self, *names: str) -> S:
        """Removes columns.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.drop("auction").schema
        price: int64
        """
        with CallSite("drop") as call:
            stream = self._site().stream
            return add_select(call, stream, projections.drop(stream.schema, names), "fail")

    def rename(self, *columns: Mapping[str, str], **new: str) -> S:
        """Gives columns new names: `rename(new="old")`, or a dict of old names to new ones.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.rename(offer="price").schema
        auction: int64, offer: int64
        >>> bids.rename({"price": "unit-price"}).schema
        auction: int64, unit-price: int64
        """
        with CallSite("rename") as call:
            stream = self._site().stream
            names: dict[str, str] = {}
            for given in (*columns, {old: name for name, old in new.items()}):
                if not isinstance(given, Mapping):
                    raise JobError(f'{given!r} has no new name; write rename(new="old")')
                names |= old_to_new(given)
            if len(names) < sum(map(len, columns)) + len(new):
                raise JobError("a column is renamed twice; to copy a column use with_columns")
            for name, old in new.items():
                if old not in stream.schema and name in stream.schema:
                    raise JobError(f'the new name comes first: rename({old}="{name}")')
            return add_select(call, stream, projections.rename(stream.schema, names), "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a Python function is called: what happens when it raises, and where it runs."""

    on_error: OnError = "fail"
    retrying: Retrying | None = None
    route: Route = "auto"

    def check_expressions(self) -> None:
        """Raises if something is set that only functions can use."""
        checked_route(self.route, ())
        if self.retrying is not None:
            raise JobError(
                "retries= is for Python functions; an expression gives the same at every try"
            )


def manner_of(on_error: CallPolicy, retries: int | None, backoff: Duration, route: Route) -> Manner:
    policy, tries = checked_tries(on_error, retries, backoff)
    return Manner(on_error=policy, retrying=tries if tries.retries else None, route=route)


def add_filter(call: CallSite, stream: S, predicate: Any, manner: Manner) -> S:
    if isinstance(predicate, Expr):
        manner.check_expressions()
        bound = bind(predicate, stream.schema)
        if bound.type is not Type.BOOL:
            raise JobError(f"{text(predicate)} is {bound}, not a bool; compare it with something")
        op = FilterOp(
            name=call.name,
            at=call.at,
            inputs=(stream._number,),
            schema=stream.schema,
            on_error=manner.on_error,
            predicate=bound.expr,
        )
        return stream._append(op)
    if not callable(predicate):
        hint = '; write an expression such as col("price") > 5'
        if isinstance(predicate, str) and predicate in stream.schema:
            hint = f'; did you mean col("{predicate}")?'
        raise JobError(f"{predicate!r} is neither an expression nor a function{hint}")
    signatures.check_call(predicate, ("record",))
    return add_call(call, stream, "filter", predicate, stream.schema, manner)


def add_call(
    call: CallSite,
    stream: S,
    mode: CallMode,
    function: Callable[..., Any],
    schema: Schema,
    manner: Manner,
    columns: tuple[tuple[str, Callable[..., Any]], ...] = (),
    repeatable: bool = False,
) -> S:
    op = CallOp(
        name=call.name,
        at=call.at,
        inputs=(stream._number,),
        schema=schema,
        on_error=manner.on_error,
        mode=mode,
        function=function,
        columns=columns,
        retrying=manner.retrying,
        route=manner.route,
        repeatable=repeatable,
    )
    checked_route(manner.route, op.functions)
    return stream._append(op)


def add_awaited_call(
    call: CallSite,
    stream: S,
    function: Callable[..., Any],
    schema: Schema,
    on_error: OnError,
    awaiting: Awaiting,
    columns: tuple[tuple[str, Callable[..., Any]], ...] = (),
    repeatable: bool = False,
) -> S:
    op = CallOp(
        name=call.name,
        at=call.at,
        inputs=(stream._number,),
        schema=schema,
        on_error=on_error,
        mode="async",
        function=function,
        columns=columns,
        awaiting=awaiting,
        repeatable=repeatable,
    )
    return stream._append(op)


def add_select(
    call: CallSite, stream: S, projection: projections.Projection, on_error: OnError
) -> S:
    op = ProjectOp(
        name=call.name,
        at=call.at,
        inputs=(stream._number,),
        schema=projection.schema,
        on_error=checked_policy(on_error),
        columns=projection.columns,
    )
    return stream._append(op)


def add_columns(
    call: CallSite,
    stream: S,
    new: tuple[projections.Calls | None, projections.Projection | None],
    manner: Manner,
) -> S:
    """Adds the functions first and then the expressions, as far as there are any."""
    calls, projection = new
    if calls is None:
        manner.check_expressions()
    else:
        first, functions = calls.functions[0][1], calls.functions
        stream = add_call(call, stream, "columns", first, calls.schema, manner, functions)
    return stream if projection is None else add_select(call, stream, projection, manner.on_error)
