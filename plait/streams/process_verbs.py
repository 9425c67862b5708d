"""Processes on streams: `KeyedStream.process`, and `connect` for two keyed streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from plait.errors import JobError
from plait.expr.tree import Expr
from plait.functions.process import Process, check_process, out_schema
from plait.graph import temporal
from plait.graph.operators import TimedOp
from plait.model.call_site import CallSite
from plait.streams.arguments import checked_policy, checked_route
from plait.streams.event_time import Lost, needed, of_union, still_time
from plait.streams.two_inputs import LEFT, RIGHT, Keys, Part, TwoSided, checked_on, two_sided

if TYPE_CHECKING:
    from plait.graph.operators import OnError, Route
    from plait.model.schema import Schema
    from plait.streams.event_time import Time
    from plait.streams.stream_protocol import Site
from plait.streams.stream_protocol import S
from plait.streams.window_verbs import Windowing, replaced_policy, timed_input


class Connected(Generic[S]):
    """Two keyed streams that one process reads; made by `connect`."""

    def __init__(self, left: Site[S], right: Site[S]) -> None:
        self._sites = (left, right)

    def __repr__(self) -> str:
        return f"Connected({self._sites[0].stream!r}, {self._sites[1].stream!r})"

    def process(self, process: Process, *, on_error: OnError = "fail", route: Route = "auto") -> S:
        """A process with `on_left` and `on_right`: see `plait.Process`."""
        with CallSite("process") as place:
            left, right = self._sites
            keys = Keys(left=left.keys, right=right.keys)
            shapes = (left.stream.schema, right.stream.schema)
            times = (left.stream._time, right.stream._time)
            timed_too = not any(isinstance(time, Lost) for time in times)
            bound = check_process(process, shapes, timed=timed_too)
            checked_route(route, (bound,))
            parts = Part(shapes[0], keys.left, LEFT), Part(shapes[1], keys.right, RIGHT)
            sides: list[temporal.Side] = []
            ttl_us = common_ttl(left, right)
            for part, time in zip(parts, times, strict=True):
                columns = tuple(part.column(name) for name in part.schema.names)
                named = part.value(needed(time, "ttl=")) if ttl_us else time_column(part, time)
                sides.append(temporal.Side(columns=columns, time=named))
            made = TwoSided(
                spec=temporal.ProcessSpec(process=bound, sides=tuple(sides), ttl_us=ttl_us),
                columns=(),
                fields={},
                on_error=checked_policy(on_error),
                results=out_schema(bound).fields,
                route=route,
            )
            time = process_time(of_union(times), out_schema(bound))
            record_class = out_schema(bound).record_class
            return two_sided(place, (left.stream, right.stream), parts, made, time, record_class)


def connect(left: Windowing[S], right: Windowing[S]) -> Connected[S]:
    """Two keyed streams for one process: `connect(a.key_by("id"), b.key_by("order")).process(p)`.

    The keys must be as many, with the same types; records of equal keys share a state.
    """
    with CallSite("connect"):
        for one in (left, right):
            if not isinstance(one, Windowing) or not one._site().keys:
                raise JobError(f"{one!r} is not keyed; write connect(a.key_by(...), b.key_by(...))")
        ours, theirs = left._site(), right._site()
        if len(ours.keys) != len(theirs.keys):
            raise JobError(
                f"the keys are {', '.join(ours.keys)} and {', '.join(theirs.keys)};"
                " give both streams as many"
            )
        pairs = list(zip(ours.keys, theirs.keys, strict=True))
        checked_on(pairs, ours.stream.schema, theirs.stream.schema)
        return Connected(ours, theirs)


def processed(
    place: CallSite, site: Site[S], process: Process, on_error: OnError | None, route: Route
) -> S:
    """The stream of a process of one stream."""
    stream = site.stream
    timeless = isinstance(stream._time, Lost)
    bound = check_process(process, (stream.schema,), timed=not timeless)
    checked_route(route, (bound,))
    schema = out_schema(bound)
    made = process_node(place, replaced_policy(site, on_error), bound, schema, route)
    return stream._made(made, process_time(stream._time, schema))


def process_node(
    place: CallSite, site: Site[S], process: Process, schema: Schema, route: Route
) -> TimedOp:
    """The operator of a process of one stream; its event time is a column if state is forgotten."""
    stream, time = site.stream, site.stream._time
    column = time.value if isinstance(time, Expr) and time.op == "col" else ""
    if site.ttl_us:
        before = timed_input(place, site)
        stream, column = before.stream, before.time
    return TimedOp(
        name=place.name,
        at=place.at,
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
            "records of equal keys share a state, and its ttl; give both key_by the same ttl="
        )
    return left.ttl_us


def time_column(part: Part, time: Time) -> str:
    """The united name of the time, if it is a column; a process has no use for a computed one."""
    return part.column(time.value) if isinstance(time, Expr) and time.op == "col" else ""


def process_time(time: Time, schema: Schema) -> Time:
    """As with a Python function: kept if the columns are there."""
    if isinstance(time, Lost) or still_time(time, schema):
        return time
    return Lost("the process yields other columns")
