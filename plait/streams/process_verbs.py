"""Processes on streams: `KeyedStream.process`, and `connect` for two keyed streams.

orders.key_by("id").process(Reminder())
plait.connect(orders.key_by("id"), payments.key_by("order")).process(Match())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from plait.errors import JobError
from plait.expr.tree import Expr
from plait.functions.process_checks import check_process, out_schema
from plait.graph import temporal
from plait.graph.operators import TimedOp
from plait.model.call_site import CallSite
from plait.streams.arguments import checked_policy, checked_route
from plait.streams.event_time import Lost, is_event_time, require_time, union_time
from plait.streams.stream_protocol import S, timed_input
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
    from plait.functions.process import Process
    from plait.graph.operators import OnError, Route
    from plait.model.schema import Schema
    from plait.streams.event_time import Time
    from plait.streams.stream_protocol import Site


class Connected(Generic[S]):
    """Two keyed streams that one process reads, made by `connect`. Call `process` on it."""

    def __init__(self, left: Site[S], right: Site[S]) -> None:
        self._sites = (left, right)

    def __repr__(self) -> str:
        return f"Connected({self._sites[0].stream!r}, {self._sites[1].stream!r})"

    def process(self, process: Process, *, on_error: OnError = "fail", route: Route = "auto") -> S:
        """Runs a `plait.Process` with `on_left` and `on_right` over both streams.

            plait.connect(orders.key_by("id"), payments.key_by("order")).process(Match())

        Args:
            process: an object whose handlers get the records of the two streams, in their order;
                those of equal keys share a state.
            on_error: "fail" (default), "skip" or "dead_letter", when a handler raises.
            route: as in `Stream.map`.
        """
        with CallSite("process") as call:
            left, right = self._sites
            keys = JoinKeys(left=left.keys, right=right.keys)
            shapes = (left.stream.schema, right.stream.schema)
            times = (left.stream._time, right.stream._time)
            has_time = not any(isinstance(time, Lost) for time in times)
            bound = check_process(process, shapes, timed=has_time)
            checked_route(route, (bound,))
            parts = Part(shapes[0], keys.left, LEFT), Part(shapes[1], keys.right, RIGHT)
            sides: list[temporal.Side] = []
            ttl_us = common_ttl(left, right)
            for part, time in zip(parts, times, strict=True):
                columns = tuple(part.column(name) for name in part.schema.names)
                named = (
                    part.value(require_time(time, "ttl=")) if ttl_us else time_column(part, time)
                )
                sides.append(temporal.Side(columns=columns, time=named))
            operator = TwoSided(
                spec=temporal.ProcessSpec(process=bound, sides=tuple(sides), ttl_us=ttl_us),
                columns=(),
                fields={},
                on_error=checked_policy(on_error),
                results=out_schema(bound).fields,
                route=route,
            )
            time = process_time(union_time(times), out_schema(bound))
            record_class = out_schema(bound).record_class
            streams = (left.stream, right.stream)
            return add_two_sided(call, streams, parts, operator, time, record_class)


def connect(left: WindowVerbs[S], right: WindowVerbs[S]) -> Connected[S]:
    """Puts two keyed streams together for one `plait.Process` with `on_left` and `on_right`.

    >>> class Match(plait.Process):
    ...     state = {"due": int}
    ...     out = {"order": int, "open": int}
    ...     def on_left(self, key, order, state, timers):
    ...         state.due += order.amount
    ...     def on_right(self, key, payment, state, timers):
    ...         yield key, state.due - payment.amount
    >>> orders = plait.stream([{"id": 7, "amount": 30}])
    >>> payments = plait.stream([{"order": 7, "amount": 20}])
    >>> both = plait.connect(orders.key_by("id"), payments.key_by("order"))
    >>> both.process(Match()).collect()
    [Record(order=7, open=10)]

    Both streams need the same number of key columns, with the same types. Records with equal keys
    share a state.
    """
    with CallSite("connect"):
        for one in (left, right):
            if not isinstance(one, WindowVerbs) or not one._site().keys:
                raise JobError(f"{one!r} is not keyed; write connect(a.key_by(...), b.key_by(...))")
        ours, theirs = left._site(), right._site()
        if len(ours.keys) != len(theirs.keys):
            raise JobError(
                f"the keys are {', '.join(ours.keys)} and {', '.join(theirs.keys)};"
                " both streams need the same number of key columns"
            )
        pairs = list(zip(ours.keys, theirs.keys, strict=True))
        checked_on(pairs, ours.stream.schema, theirs.stream.schema)
        return Connected(ours, theirs)


def add_process(
    call: CallSite, site: Site[S], process: Process, on_error: OnError | None, route: Route
) -> S:
    """Adds a process that reads one stream."""
    stream = site.stream
    timeless = isinstance(stream._time, Lost)
    bound = check_process(process, (stream.schema,), timed=not timeless)
    checked_route(route, (bound,))
    schema = out_schema(bound)
    op = process_op(call, site.with_policy(on_error), bound, schema, route)
    return stream._append(op, process_time(stream._time, schema))


def process_op(
    call: CallSite, site: Site[S], process: Process, schema: Schema, route: Route
) -> TimedOp:
    """The operator of a process of one stream; with a ttl its event time is a column."""
    stream, time = site.stream, site.stream._time
    column = time.value if isinstance(time, Expr) and time.op == "col" else ""
    if site.ttl_us:
        before = timed_input(call, site)
        stream, column = before.stream, before.time
    return TimedOp(
        name=call.name,
        at=call.at,
        inputs=(stream._number,),
        schema=schema,
        on_error=site.on_error,
        keys=site.keys,
        time=column,
        spec=temporal.ProcessSpec(process=process, ttl_us=site.ttl_us),
        route=route,
    )


def common_ttl(left: Site[S], right: Site[S]) -> int:
    if left.ttl_us != right.ttl_us:
        raise JobError(
            "records with equal keys share a state and its ttl; give both key_by the same ttl="
        )
    return left.ttl_us


def time_column(part: Part, time: Time) -> str:
    """The common name of the time, if it is a column; a process does not need a computed one."""
    return part.column(time.value) if isinstance(time, Expr) and time.op == "col" else ""


def process_time(time: Time, schema: Schema) -> Time:
    """The event time of what a process yields: kept if its columns are there."""
    if isinstance(time, Lost) or is_event_time(time, schema):
        return time
    return Lost("the process yields other columns")
