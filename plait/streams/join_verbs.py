"""Joins of two streams: `join` and `join_as_of`.

    auctions.join(persons, on=("seller", "id"))
    persons.join(auctions, on=("id", "seller"), window=plait.Tumbling("10s"), how="semi")
    orders.join(payments, on="order", between=("0s", "1h"), how="left")
    trades.join_as_of(quotes, on="symbol", tolerance="1m")
    auctions.join(bids, on=("id", "auction"), between=(col("ts"), col("expires"))).max("price")

A pair has the columns of the left record, then those of the right one without its key, which is
equal. A column of the right with the name of one of the left gets a suffix (`_right`). The two
streams become one input (`plait.streams.two_inputs`), which a `TimedOp` with a `JoinSpec` reads.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from plait.connectors.files import Files
from plait.errors import JobError
from plait.graph import temporal
from plait.model.call_site import CallSite
from plait.model.durations import microseconds
from plait.streams.arguments import checked_policy
from plait.streams.enrich import with_table
from plait.streams.event_time import needed
from plait.streams.join_arguments import (
    Wanted,
    checked_how,
    checked_span,
    is_span,
    pair_time,
    refuse,
    right_fields,
    ttl_of,
    wait_of,
    within_of,
)
from plait.streams.span_aggregates import Spans
from plait.streams.two_inputs import LEFT, RIGHT, Keys, Part, TwoSided, checked_on, two_sided

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.expr.tree import Expr
    from plait.graph.operators import OnError
    from plait.graph.temporal import How
    from plait.model.schema import Field
    from plait.streams.windows import Window
from plait.streams.stream_protocol import S
from plait.streams.window_verbs import Windowing

Duration = str | datetime.timedelta


class Joining(Generic[S]):
    """The verbs that join, on streams."""

    def _left(self) -> S:
        raise TypeError(f"{type(self).__name__} has no records")

    @overload
    def join(
        self,
        right: S,
        *,
        on: Any,
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
        on: Any,
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
        on: Any,
        how: How = "inner",
        window: Any = None,
        between: Any = None,
        ttl: Any = None,
        wait: Any = None,
        suffix: str = "_right",
        on_error: OnError = "fail",
    ) -> S | Spans[S]:
        """Pairs of a record of this stream and one of another whose `on` columns are equal.

        `on` is a column of both, a pair (column of this, column of the other), or a list of these.
        A null equals nothing. Without more, a record meets all that came before it, for ever, or
        for `ttl` of event time. `window=plait.Tumbling("10s")`: those in the same window.
        `between=("-5s", "10s")`: right time less left time is in between. `between=(col("ts"),
        col("expires"))`: spans of time of the left records, to be aggregated over: `Spans`; right
        records that come before the left one are kept for `wait` of event time.

        `how`: "inner" gives the pairs; "left" also the left records without one, with nulls, when
        none can come any more; "semi" each left record that has a pair, once; "anti" those that
        have none; "late" those that come when none can come any more, which the others leave out
        and count. The event time of a pair is the later of the two.
        """
        with CallSite("join") as place:
            left, other = self._left(), checked_right(right)
            keys = checked_on(on, left.schema, other.schema)
            if is_span(between):
                refuse(window=window, ttl=ttl)
                needed(left._time, f"{place.name} (the left stream)")
                needed(other._time, f"{place.name} (the right stream)")
                if checked_how(how) not in ("inner", "left"):
                    raise JobError(f'how is "{how}"; with spans of time it is "inner" or "left"')
                span = checked_span(between, left.schema)
                policy = checked_policy(on_error)
                waits = wait_of(wait)
                return Spans(place, (left, other), keys, span, how == "left", waits, policy)
            if wait is not None:
                raise JobError("wait= is of spans: between=(col(...), col(...))")
            within = within_of(window, between)
            if within is not None:
                refuse(ttl=ttl)
            spec = Wanted(within=within, how=checked_how(how), ttl_us=ttl_of(ttl), suffix=suffix)
            return joined(place, left, other, keys, spec, checked_policy(on_error))

    def join_as_of(
        self,
        right: S,
        *,
        on: Any,
        tolerance: Any = None,
        how: How = "left",
        suffix: str = "_right",
        on_error: OnError = "fail",
    ) -> S:
        """Each record with the last one of another stream at or before its time.

        A record waits until the watermark has reached its time. `tolerance`: so old the other may
        be (None: however old). `how="left"` gives records without another, with nulls; "inner"
        leaves them out; "late" gives the records that come when the watermark has passed them.
        """
        with CallSite("join_as_of") as place:
            left, other = self._left(), checked_right(right)
            keys = checked_on(on, left.schema, other.schema)
            if checked_how(how) not in ("left", "inner", "late"):
                raise JobError(f'how is "{how}"; for join_as_of it is "left", "inner" or "late"')
            within = temporal.AsOf(tolerance_us=0 if tolerance is None else microseconds(tolerance))
            spec = Wanted(within=within, how=how, ttl_us=0, suffix=suffix)
            return joined(place, left, other, keys, spec, checked_policy(on_error))

    def enrich(
        self,
        table: Any,
        *,
        on: Any,
        how: Literal["left", "inner"] = "left",
        refresh: Any = None,
        suffix: str = "_right",
        on_error: OnError = "fail",
    ) -> S:
        """Each record with the columns of the row of a table that has its key; nulls if none has.

        `table` is an Arrow, pandas or polars table, or the path of Parquet, CSV or JSONL files;
        its `on` columns must be different in each row. `how="inner"` leaves out records without a
        row. The table is read once; with `refresh="5m"` a path is read again that often. Which
        records meet the new version is then not the same in every run, and the column `read_at`
        says when the version of each row was read.
        """
        with CallSite("enrich") as place:
            left = self._left()
            return with_table(place, left, table_of(table), on, how, refresh, suffix, on_error)


def joined(place: CallSite, left: S, right: S, keys: Keys, spec: Wanted, on_error: OnError) -> S:
    parts = Part(left.schema, keys.left, LEFT), Part(right.schema, keys.right, RIGHT)
    out_left = {parts[0].column(field.name): field for field in left.schema.fields}
    out_right = {} if spec.one_sided else right_fields(left.schema, right.schema, keys, spec)
    named = {parts[1].column(name): field for name, field in out_right.items()}
    times = ("", "")
    if spec.within is not None or spec.ttl_us:
        times = (
            parts[0].value(needed(left._time, f"{place.name} (the left stream)")),
            parts[1].value(needed(right._time, f"{place.name} (the right stream)")),
        )
    node_spec = temporal.JoinSpec(
        left=temporal.Side(columns=with_time(out_left, times[0]), time=times[0]),
        right=temporal.Side(columns=with_time(named, times[1]), time=times[1]),
        how=spec.how,
        within=spec.within,
        ttl_us=spec.ttl_us,
    )
    columns = node_spec.left.columns
    columns += () if spec.one_sided else node_spec.right.columns
    names = {name: field.name for name, field in out_right.items()}
    equal = dict(zip(keys.right, keys.left, strict=True))
    time = pair_time(left._time, right._time, equal | names, spec)
    record_class = left.schema.record_class if spec.one_sided else None
    return two_sided(
        place,
        (left, right),
        parts,
        TwoSided(spec=node_spec, columns=columns, fields=out_left | named, on_error=on_error),
        time,
        record_class,
    )


def with_time(fields: Mapping[str, Field], time: str) -> tuple[str, ...]:
    """The columns of a side, its time among them."""
    return tuple(dict.fromkeys((*fields, *([time] if time else ()))))


def checked_right(right: S) -> S:
    """The other stream of a join."""
    if isinstance(right, Joining):
        return right
    if isinstance(right, Windowing):
        raise JobError("the other stream is keyed; give it without key_by, and the columns as on=")
    raise JobError(f"{right!r} is not a stream; for a table use enrich(table, on=...)")


def table_of(given: Any) -> Any:
    """The table that a user gave: Arrow in plait's types, or the files that it is in."""
    from plait.connectors.convert import to_source
    from plait.connectors.memory_sources import Table

    source = to_source(given)
    if isinstance(source, Files):
        return source
    if not isinstance(source, Table):
        raise JobError(f"{given!r} is no table; give an Arrow, pandas or polars table, or a path")
    return source.arrow()
