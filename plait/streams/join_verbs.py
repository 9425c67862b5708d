"""Joins of two streams, `join` and `join_as_of`, and of a stream with a table, `enrich`.

    auctions.join(persons, on=("seller", "id"))
    persons.join(auctions, on=("id", "seller"), window=plait.Tumbling("10s"), how="semi")
    orders.join(payments, on="order", between=("0s", "1h"), how="left")
    trades.join_as_of(quotes, on="symbol", tolerance="1m")
    auctions.join(bids, on=("id", "auction"), between=(col("ts"), col("expires"))).max("price")

A pair has the columns of the left record, then those of the right one without its key. A right
column with the name of a left one gets a suffix (`_right`). The two streams become one input
(`plait.streams.two_inputs`), which a `TimedOp` with a `JoinSpec` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from plait.connectors.files import Files
from plait.errors import JobError
from plait.expr.tree import Expr
from plait.graph import temporal
from plait.model.call_site import CallSite
from plait.model.durations import Duration, microseconds
from plait.streams.arguments import checked_policy
from plait.streams.enrich import add_enrich
from plait.streams.event_time import require_time
from plait.streams.join_arguments import (
    JoinRequest,
    checked_how,
    checked_span,
    checked_within,
    is_span,
    join_ttl_us,
    pair_time,
    refuse,
    right_fields,
    wait_us,
)
from plait.streams.span_aggregates import Spans
from plait.streams.stream_protocol import S, Verbs
from plait.streams.two_inputs import (
    LEFT,
    RIGHT,
    JoinKeys,
    Part,
    TwoSided,
    add_two_sided,
    checked_on,
)
from plait.streams.window_verbs import WindowVerbs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import OnError
    from plait.graph.temporal import How
    from plait.model.schema import Field
    from plait.streams.windows import Window

On = str | Expr | tuple[str | Expr, str | Expr] | list[Any]
"""Key columns of a join: "id", ("seller", "id"), or a list of these."""


class JoinVerbs(Verbs[S]):
    """The methods that join, on streams."""

    @overload
    def join(
        self,
        right: S,
        *,
        on: On,
        between: tuple[Expr, Expr],
        how: Literal["inner", "left"] = "inner",
        wait: Duration | None = None,
        on_error: OnError = "fail",
    ) -> Spans[S]: ...

    @overload
    def join(
        self,
        right: S,
        *,
        on: On,
        how: How = "inner",
        window: Window | None = None,
        between: tuple[Duration, Duration] | None = None,
        ttl: Duration | None = None,
        suffix: str = "_right",
        on_error: OnError = "fail",
    ) -> S: ...

    def join(
        self,
        right: S,
        *,
        on: On,
        how: How = "inner",
        window: Window | None = None,
        between: tuple[Duration, Duration] | tuple[Expr, Expr] | None = None,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        suffix: str = "_right",
        on_error: OnError = "fail",
    ) -> S | Spans[S]:
        """Pairs each record of this stream with the records of another that have the same key.

        >>> persons = plait.stream([{"id": 1, "name": "Ann"}])
        >>> auctions = plait.stream([{"seller": 1, "item": "tea"}])
        >>> auctions.join(persons, on=("seller", "id")).collect()
        [Record(seller=1, item='tea', name='Ann')]

        By default a record matches every earlier record of the other stream.

        Args:
            right: the other stream.
            on: a column of both streams, a pair (left column, right column), or a list of these.
                A null matches nothing.
            how: "inner" gives the pairs. "left" also gives left records without a match, with
                nulls, once no match can come any more. "semi" gives each left record that has a
                match, once; "anti" those without. "late" gives the left records that come too late
                for a match; the others count these and leave them out.
            window: match records in the same window, such as `plait.Tumbling("10s")`.
            between: match if right time minus left time is between two durations. Or two times of
                the left record, `(col("ts"), col("expires"))`: the right records in between are
                then aggregated, see `Spans`.
            ttl: match only records of the last `ttl` of event time.
            wait: with two times: how long right records are kept for a left record to come.
            suffix: for right columns whose name the left stream has too.
            on_error: what happens to a record whose columns cannot be computed.

        Returns:
            A stream with the columns of both records; its event time is the later of the two.
            With two times: a `Spans`, whose methods give the stream.
        """
        with CallSite("join") as call:
            left, other = self._site().stream, checked_right(right)
            keys = checked_on(on, left.schema, other.schema)
            if is_span(between):
                refuse(window=window, ttl=ttl)
                require_time(left._time, f"{call.name} (the left stream)")
                require_time(other._time, f"{call.name} (the right stream)")
                if checked_how(how) not in ("inner", "left"):
                    raise JobError(
                        f'how is "{how}"; with spans of time it must be "inner" or "left"'
                    )
                span = checked_span(between, left.schema)
                policy = checked_policy(on_error)
                return Spans(call, (left, other), keys, span, how == "left", wait_us(wait), policy)
            if wait is not None:
                raise JobError("wait= is only valid with between=(col(...), col(...))")
            within = checked_within(window, between)
            if within is not None:
                refuse(ttl=ttl)
            request = JoinRequest(
                within=within, how=checked_how(how), ttl_us=join_ttl_us(ttl), suffix=suffix
            )
            return add_join(call, left, other, keys, request, checked_policy(on_error))

    def join_as_of(
        self,
        right: S,
        *,
        on: On,
        tolerance: Duration | None = None,
        how: How = "left",
        suffix: str = "_right",
        on_error: OnError = "fail",
    ) -> S:
        """Adds to each record the last record of another stream at or before its event time.

        >>> from plait.testing import table
        >>> quotes = plait.stream(table('''
        ...     symbol | bid | ts
        ...     A      | 10  | 1s
        ...     A      | 11  | 5s
        ... '''), event_time="ts")
        >>> trades = plait.stream(table('''
        ...     symbol | size | ts
        ...     A      | 7    | 4s
        ... '''), event_time="ts")
        >>> pairs = trades.join_as_of(quotes, on="symbol", tolerance="1m")
        >>> pairs.select("symbol", "size", "bid").collect()
        [Record(symbol='A', size=7, bid=10)]

        A record waits until the watermark is above its time.

        Args:
            right: the other stream.
            on: as in `join`.
            tolerance: how old the other record may be (None: any age).
            how: "left" keeps records without a match, with nulls; "inner" drops them; "late" gives
                the records that come after the watermark has passed their time.
            suffix: for right columns whose name the left stream has too.
            on_error: what happens to a record whose columns cannot be computed.
        """
        with CallSite("join_as_of") as call:
            left, other = self._site().stream, checked_right(right)
            keys = checked_on(on, left.schema, other.schema)
            if checked_how(how) not in ("left", "inner", "late"):
                raise JobError(
                    f'how is "{how}"; for join_as_of it must be "left", "inner" or "late"'
                )
            within = temporal.AsOf(tolerance_us=0 if tolerance is None else microseconds(tolerance))
            request = JoinRequest(within=within, how=how, ttl_us=0, suffix=suffix)
            return add_join(call, left, other, keys, request, checked_policy(on_error))

    def enrich(
        self,
        table: Any,
        *,
        on: On,
        how: Literal["left", "inner"] = "left",
        refresh: Duration | None = None,
        suffix: str = "_right",
        on_error: OnError = "fail",
    ) -> S:
        """Adds to each record the columns of the table row with its key.

        >>> import pyarrow
        >>> auctions = pyarrow.table({"id": [1], "item": ["tea"]})
        >>> bids = plait.stream([{"auction": 1}, {"auction": 2}])
        >>> bids.enrich(auctions, on=("auction", "id")).collect()
        [Record(auction=1, item='tea'), Record(auction=2, item=None)]

        Args:
            table: an Arrow, pandas or polars table, a list of records, or the path of Parquet, CSV
                or JSONL files. A key that is there twice is a `JobError`. Files are read again by
                each run; if they have a doubled key by then, the records that need them fail by
                `on_error`.
            on: a column of both, a pair (column of the stream, column of the table), or a list.
            how: "left" gives nulls where the table has no such key; "inner" drops these records.
            refresh: how often a path is read again, such as "5m" (default: never). Which records
                see a new version then differs from run to run; the column `read_at` says when the
                version was read.
            suffix: for table columns whose name the stream has too.
            on_error: what happens to records when the lookup fails.
        """
        with CallSite("enrich") as call:
            left = self._site().stream
            return add_enrich(call, left, table_of(table), on, how, refresh, suffix, on_error)


def add_join(
    call: CallSite, left: S, right: S, keys: JoinKeys, request: JoinRequest, on_error: OnError
) -> S:
    parts = Part(left.schema, keys.left, LEFT), Part(right.schema, keys.right, RIGHT)
    out_left = {parts[0].column(field.name): field for field in left.schema.fields}
    out_right = {} if request.one_sided else right_fields(left.schema, right.schema, keys, request)
    named = {parts[1].column(name): field for name, field in out_right.items()}
    times = ("", "")
    if request.within is not None or request.ttl_us:
        times = (
            parts[0].value(require_time(left._time, f"{call.name} (the left stream)")),
            parts[1].value(require_time(right._time, f"{call.name} (the right stream)")),
        )
    spec = temporal.JoinSpec(
        left=temporal.Side(columns=with_time(out_left, times[0]), time=times[0]),
        right=temporal.Side(columns=with_time(named, times[1]), time=times[1]),
        how=request.how,
        within=request.within,
        ttl_us=request.ttl_us,
    )
    columns = spec.left.columns
    columns += () if request.one_sided else spec.right.columns
    names = {name: field.name for name, field in out_right.items()}
    equal = dict(zip(keys.right, keys.left, strict=True))
    always = [new for old, new in names.items() if not right.schema[old].nullable]
    time = pair_time(left._time, right._time, equal, names, always, request)
    record_class = left.schema.record_class if request.one_sided else None
    return add_two_sided(
        call,
        (left, right),
        parts,
        TwoSided(spec=spec, columns=columns, fields=out_left | named, on_error=on_error),
        time,
        record_class,
    )


def with_time(fields: Mapping[str, Field], time: str) -> tuple[str, ...]:
    """The columns of a side, its time among them."""
    return tuple(dict.fromkeys((*fields, *([time] if time else ()))))


def checked_right(right: S) -> S:
    """The other stream of a join."""
    if isinstance(right, JoinVerbs):
        return right
    if isinstance(right, WindowVerbs):
        raise JobError("the other stream is keyed; leave out key_by and name the columns in on=")
    raise JobError(f"{right!r} is not a stream; for a table use enrich(table, on=...)")


def table_of(given: Any) -> Any:
    """A table in memory as Arrow with plait's types, or the files it is in."""
    import pyarrow as pa

    from plait.connectors.columns import to_batch
    from plait.connectors.convert import to_source
    from plait.connectors.memory_sources import Items, Table

    source = to_source(given)
    if isinstance(source, Files):
        return source
    if isinstance(source, Items) and isinstance(given, list):
        return pa.Table.from_batches([to_batch(given, source.schema)])
    if not isinstance(source, Table):
        raise JobError(
            f"{given!r} is not a table; give an Arrow, pandas or polars table, a list of records,"
            " or a path"
        )
    return source.arrow()
