"""Joins of two streams: `join` and `join_as_of`.

    auctions.join(persons, on=("seller", "id"))
    persons.join(auctions, on=("id", "seller"), window=plait.Tumbling("10s"), how="semi")
    orders.join(payments, on="order", between=("0s", "1h"), how="left")
    trades.join_as_of(quotes, on="symbol", tolerance="1m")
    auctions.join(bids, on=("id", "auction"), between=(col("ts"), col("expires"))).max("price")

A pair has the columns of the left record, then those of the right one without its key, which is
equal. A column of the right with the name of one of the left gets a suffix (`_right`). The two
streams become one input (`plait.sides`), which a `TimedNode` with a `JoinSpec` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from plait import timed
from plait.aggregating import Aggregating, settled
from plait.checks import checked_policy
from plait.durations import microseconds
from plait.errors import JobError
from plait.event_time import Lost, needed, of_union, still_time
from plait.expr import Expr, col
from plait.expr_text import text
from plait.graph import Aggregate, FilterNode, TimedNode
from plait.join_rules import (
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
from plait.model import Field, Schema
from plait.place import Place
from plait.process import Process, checked_process, out_schema
from plait.sides import LEFT, RIGHT, Keys, Part, checked_on, united_columns
from plait.typing_rules import bind
from plait.windows import Site, free, projected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.event_time import Time
    from plait.graph import OnError
    from plait.job import KeyedStream, Stream
    from plait.timed import How


class Joining:
    """The verbs that join, on streams."""

    def _left(self) -> Stream:
        raise TypeError(f"{type(self).__name__} has no records")

    def join(
        self,
        right: Stream,
        *,
        on: Any,
        how: How = "inner",
        window: Any = None,
        between: Any = None,
        ttl: Any = None,
        wait: Any = None,
        suffix: str = "_right",
        on_error: OnError = "fail",
    ) -> Any:
        """Pairs of a record of this stream and one of another whose `on` columns are equal.

        `on` is a column of both, a pair (column of this, column of the other), or a list of these.
        A null equals nothing. Without more, a record meets all that came before it, for ever, or
        for `ttl` of event time. `window=plait.Tumbling("10s")`: those in the same window.
        `between=("-5s", "10s")`: right time less left time is in between. `between=(col("ts"),
        col("expires"))`: spans of time of the left records, to be aggregated over: `Spans`; right
        records that come before the left one are kept for `wait` of event time.

        `how`: "inner" gives the pairs; "left" also the left records without one, with nulls, when
        none can come any more; "semi" each left record that has a pair, once; "anti" those that
        have none. The event time of a pair is the later of the two.
        """
        with Place("join") as place:
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
                return Spans((left, other), keys, span, how == "left", wait_of(wait), policy)
            if wait is not None:
                raise JobError("wait= is of spans: between=(col(...), col(...))")
            within = within_of(window, between)
            if within is not None:
                refuse(ttl=ttl)
            spec = Wanted(within=within, how=checked_how(how), ttl_us=ttl_of(ttl), suffix=suffix)
            return joined(place, left, other, keys, spec, checked_policy(on_error))

    def join_as_of(
        self,
        right: Stream,
        *,
        on: Any,
        tolerance: Any = None,
        how: How = "left",
        suffix: str = "_right",
        on_error: OnError = "fail",
    ) -> Stream:
        """Each record with the last one of another stream at or before its time.

        A record waits until the watermark has reached its time. `tolerance`: so old the other may
        be (None: however old). `how="left"` gives records without another, with nulls; "inner"
        leaves them out.
        """
        with Place("join_as_of") as place:
            left, other = self._left(), checked_right(right)
            keys = checked_on(on, left.schema, other.schema)
            if checked_how(how) not in ("left", "inner"):
                raise JobError(f'how is "{how}"; for join_as_of it is "left" or "inner"')
            within = timed.AsOf(tolerance_us=0 if tolerance is None else microseconds(tolerance))
            spec = Wanted(within=within, how=how, ttl_us=0, suffix=suffix)
            return joined(place, left, other, keys, spec, checked_policy(on_error))


def joined(
    place: Place, left: Stream, right: Stream, keys: Keys, spec: Wanted, on_error: OnError
) -> Stream:
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
    node_spec = timed.JoinSpec(
        left=timed.Side(columns=with_time(out_left, times[0]), time=times[0]),
        right=timed.Side(columns=with_time(named, times[1]), time=times[1]),
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


class TwoSided:
    """A node that reads two streams as one: what it does, the united columns that come out of it,
    and what these are called. Columns without a name were for the operator alone."""

    def __init__(
        self,
        *,
        spec: timed.TimedSpec,
        columns: Sequence[str],
        fields: Mapping[str, Field],
        on_error: OnError,
        results: Sequence[Field] = (),
    ) -> None:
        self.spec = spec
        self.columns = columns
        self.fields = fields
        self.on_error = on_error
        self.results = results


def two_sided(
    place: Place,
    streams: tuple[Stream, Stream],
    parts: tuple[Part, Part],
    made: TwoSided,
    time: Time,
    record_class: type | None = None,
) -> Stream:
    """The stream of a node that reads both streams."""
    sides = [
        projected(stream, place, columns, made.on_error, part.which)
        for stream, columns, part in zip(streams, united_columns(*parts), parts, strict=True)
    ]
    both = sides[0]._united(place, sides[1:], f"{place.name}.sides")
    shown = [field.name for field in (*made.fields.values(), *made.results)]
    fields = []
    for column in made.columns:
        given = both.schema[column]
        hidden = Field(free(column, shown), given.type, given.nullable)
        fields.append(made.fields.get(column, hidden))
    fields += made.results
    whole = len(fields) == len(shown)
    node = TimedNode(
        name=place.name,
        at=place.at,
        inputs=(both._number,),
        schema=Schema(tuple(fields), record_class if whole else None),
        on_error=made.on_error,
        keys=tuple(f"k_{i}" for i in range(len(parts[0].keys))),
        time="",
        spec=made.spec,
    )
    stream = both._made(node, time)
    if whole:
        return stream
    return projected(stream, place, [(name, col(name)) for name in shown], "fail", "columns")


def checked_right(right: Any) -> Stream:
    from plait.job import KeyedStream, Stream

    if isinstance(right, Stream):
        return right
    if isinstance(right, KeyedStream):
        raise JobError("the other stream is keyed; give it without key_by, and the columns as on=")
    raise JobError(f"{right!r} is not a stream; for a table use enrich(table, on=...)")


class Spans(Aggregating["Stream"]):
    """The right records in a span of time of each left record, made by `join(between=(a, b))`.

    Its methods give a stream again: for each left record, when the watermark has passed the end of
    its span, its columns and the results over the right records of its key in between, both ends
    included. Left records without any give no row, unless how="left".
    """

    def __init__(
        self,
        streams: tuple[Stream, Stream],
        keys: Keys,
        span: tuple[Expr, Expr],
        empty: bool,
        wait_us: int,
        on_error: OnError,
    ) -> None:
        self._streams = streams
        self._keys = keys
        self._span = span
        self._empty = empty
        self._wait_us = wait_us
        self._on_error = on_error

    def __repr__(self) -> str:
        return f"Spans({text(self._span[0])} to {text(self._span[1])})"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a join over spans of time has no {name}; say what of the right records is wanted:"
            f" count, sum, min, max, mean, first, last or aggregate, and then {name}"
        )

    def _aggregate(
        self, place: Place, results: dict[str, Aggregate], on_error: OnError | None
    ) -> Stream:
        left, right = self._streams
        policy = checked_policy(on_error or self._on_error)
        done, fields = settled_right(results, right.schema, self._empty)
        for field in fields:
            if field.name in left.schema:
                raise JobError(f'the result "{field.name}" has the name of a column of the left')
        left = without_null_spans(place, left, self._span, policy)
        parts = (
            Part(left.schema, self._keys.left, LEFT),
            Part(right.schema, self._keys.right, RIGHT),
        )
        out = {parts[0].column(field.name): field for field in left.schema.fields}
        start, end = (parts[0].value(one) for one in self._span)
        time = parts[1].value(needed(right._time, f"{place.name} (the right stream)"))
        over = [(name, a, "" if a.over is None else parts[1].value(a.over)) for name, a in done]
        columns = tuple(dict.fromkeys((*out, start, end)))
        spec = timed.SpanSpec(
            left=timed.Side(columns=columns),
            right=timed.Side(
                columns=tuple(dict.fromkeys((*(name for *_, name in over if name), time))),
                time=time,
            ),
            start=start,
            end=end,
            aggregates=tuple(
                (name, Aggregate(kind=a.kind, over=col(column) if column else None))
                for name, a, column in over
            ),
            empty=self._empty,
            wait_us=self._wait_us,
        )
        made = TwoSided(spec=spec, columns=columns, fields=out, on_error=policy, results=fields)
        return two_sided(place, (left, right), parts, made, self._span[1])


def settled_right(
    results: Mapping[str, Aggregate], schema: Schema, empty: bool
) -> tuple[tuple[tuple[str, Aggregate], ...], tuple[Field, ...]]:
    """The aggregates over the right records; null where there is none, except a count."""
    try:
        done, fields = settled(results, schema, distinct=False)
    except JobError as error:
        raise JobError(f"of the right stream: {error}") from None
    kinds = [aggregate.kind for _, aggregate in done]
    return done, tuple(
        Field(field.name, field.type, field.nullable or (empty and kind != "count"))
        for field, kind in zip(fields, kinds, strict=True)
    )


def without_null_spans(
    place: Place, left: Stream, span: tuple[Expr, Expr], policy: OnError
) -> Stream:
    """Left records whose span has no beginning or end are filtered: no record lies in it."""
    holes = [one for one in span if bind(one, left.schema).nullable]
    for one in holes:
        node = FilterNode(
            name=f"{place.name}.spans",
            at=place.at,
            inputs=(left._number,),
            schema=left.schema,
            on_error=policy,
            predicate=bind(one.is_not_null(), left.schema).expr,
        )
        left = left._made(node)
    return left


class Connected:
    """Two keyed streams that one process reads; made by `connect`."""

    def __init__(self, left: Site, right: Site) -> None:
        self._sites = (left, right)

    def __repr__(self) -> str:
        return f"Connected({self._sites[0].stream!r}, {self._sites[1].stream!r})"

    def process(self, process: Process, *, on_error: OnError = "fail") -> Stream:
        """A process with `on_left` and `on_right`: see `plait.Process`."""
        with Place("process") as place:
            left, right = self._sites
            keys = Keys(left=left.keys, right=right.keys)
            shapes = (left.stream.schema, right.stream.schema)
            times = (left.stream._time, right.stream._time)
            timed_too = not any(isinstance(time, Lost) for time in times)
            bound = checked_process(process, shapes, timed=timed_too)
            parts = Part(shapes[0], keys.left, LEFT), Part(shapes[1], keys.right, RIGHT)
            sides: list[timed.Side] = []
            for part, time in zip(parts, times, strict=True):
                columns = tuple(part.column(name) for name in part.schema.names)
                sides.append(timed.Side(columns=columns, time=time_column(part, time)))
            made = TwoSided(
                spec=timed.ProcessSpec(process=bound, sides=tuple(sides)),
                columns=(),
                fields={},
                on_error=checked_policy(on_error),
                results=out_schema(bound).fields,
            )
            time = process_time(of_union(times), out_schema(bound))
            record_class = out_schema(bound).record_class
            return two_sided(place, (left.stream, right.stream), parts, made, time, record_class)


def connect(left: KeyedStream, right: KeyedStream) -> Connected:
    """Two keyed streams for one process: `connect(a.key_by("id"), b.key_by("order")).process(p)`.

    The keys must be as many, with the same types; records of equal keys share a state.
    """
    with Place("connect"):
        from plait.job import KeyedStream

        for one in (left, right):
            if not isinstance(one, KeyedStream):
                raise JobError(f"{one!r} is not keyed; write connect(a.key_by(...), b.key_by(...))")
        if len(left.keys) != len(right.keys):
            raise JobError(
                f"the keys are {', '.join(left.keys)} and {', '.join(right.keys)};"
                " give both streams as many"
            )
        pairs = list(zip(left.keys, right.keys, strict=True))
        checked_on(pairs, left.schema, right.schema)
        return Connected(left._site(), right._site())


def processed(place: Place, site: Site, process: Process, on_error: OnError | None) -> Stream:
    """The stream of a process of one stream."""
    stream = site.stream
    timeless = isinstance(stream._time, Lost)
    bound = checked_process(process, (stream.schema,), timed=not timeless)
    schema = out_schema(bound)
    policy = checked_policy(on_error or site.on_error)
    time = stream._time.value if isinstance(stream._time, Expr) and stream._time.op == "col" else ""
    node = TimedNode(
        name=place.name,
        at=place.at,
        inputs=(stream._number,),
        schema=schema,
        on_error=policy,
        keys=site.keys,
        time=time,
        spec=timed.ProcessSpec(process=bound),
    )
    return stream._made(node, process_time(stream._time, schema))


def time_column(part: Part, time: Time) -> str:
    """The united name of the time, if it is a column; a process has no use for a computed one."""
    return part.column(time.value) if isinstance(time, Expr) and time.op == "col" else ""


def process_time(time: Time, schema: Schema) -> Time:
    """As with a Python function: kept if the columns are there."""
    if isinstance(time, Lost) or still_time(time, schema):
        return time
    return Lost("the process yields other columns")
