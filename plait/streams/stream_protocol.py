"""What the verbs need to know of a stream, and the operators that several of them add.

The verbs make operators and know nothing of jobs: a stream says what it is, and takes an operator
that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from plait.expr.tree import Expr, col
from plait.expr.type_checker import check_column
from plait.graph.operators import AnyOp, EventTimeOp, OnError, ProjectOp, TimedOp
from plait.streams.arguments import checked_policy
from plait.streams.event_time import named_time, require_time, time_limits
from plait.streams.projections import merge_columns, projection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.graph import temporal
    from plait.model.call_site import CallSite
    from plait.model.durations import Duration
    from plait.model.schema import Schema
    from plait.streams.event_time import Time


class StreamLike(Protocol):
    """A stream, as far as the verbs use it."""

    @property
    def schema(self) -> Schema:
        """The columns."""

    @property
    def _number(self) -> int:
        """The operator whose output this is."""

    @property
    def _time(self) -> Time:
        """Its event time, over its columns."""

    def _append(self, op: AnyOp, time: Time | None = None) -> Self:
        """Adds an operator that reads this stream and returns its output. `time`: the event time
        of the output, if it does not follow from the operator."""

    def _first_records(self, call: CallSite, limit: int) -> list[Any]:
        """What the first `limit` records of each source become in this stream; raises where one
        cannot be read now and again later."""

    def _union(self, call: CallSite, others: Sequence[Self], name: str) -> Self:
        """The union of this stream and others."""


S = TypeVar("S", bound=StreamLike)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(Generic[S]):
    """The records an operator works on: a stream, its keys, and what happens to those that fail."""

    stream: S
    keys: tuple[str, ...] = ()
    on_error: OnError = "fail"
    ttl_us: int = 0
    """How long after its last record the state of a key is kept; 0: for ever."""

    def with_policy(self, on_error: OnError | None) -> Site[S]:
        """The same records under another error policy; None: the policy they have."""
        return replace(self, on_error=checked_policy(on_error or self.on_error))


class Verbs(Generic[S]):
    """Base of the mix-ins that give a stream its methods."""

    def _site(self) -> Site[S]:
        """The records that the methods work on."""
        raise TypeError(f"{type(self).__name__} has no records")


def add_projection(
    stream: S,
    call: CallSite,
    columns: Sequence[tuple[str, Expr]],
    on_error: OnError,
    part: str,
) -> S:
    """A projection that belongs to an operator of the user's; `part` tells it apart by name."""
    output = projection(columns, stream.schema)
    op = ProjectOp(
        name=f"{call.name}.{part}",
        at=call.at,
        inputs=(stream._number,),
        schema=output.schema,
        on_error=on_error,
        columns=output.columns,
    )
    return stream._append(op)


def add_event_time(
    call: CallSite,
    stream: S,
    time: str | Expr,
    out_of_order: Duration | None,
    max_jump: Duration | None,
    idle: Duration | None,
    on_error: OnError,
) -> S:
    """Names the event time of a stream."""
    named = named_time(time, stream.schema)
    limits = time_limits(out_of_order, max_jump, idle)
    op = EventTimeOp(
        name=call.name,
        at=call.at,
        inputs=(stream._number,),
        schema=named.schema,
        on_error=checked_policy(on_error),
        time=named.op_time,
        out_of_order_us=limits.out_of_order_us,
        max_jump_us=limits.max_jump_us,
        idle_us=limits.idle_us,
    )
    return stream._append(op, named.time)


def unused_name(name: str, taken: Sequence[str]) -> str:
    """The name, with underscores after it if a column has it already."""
    while name in taken:
        name += "_"
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedInput(Generic[S]):
    """The stream that an event-time operator reads. `hidden`: columns that were added for the
    operator alone, its event time `time` possibly among them."""

    stream: S
    time: str
    hidden: tuple[str, ...] = ()

    def add(
        self,
        call: CallSite,
        site: Site[S],
        spec: temporal.TimedSpec,
        schema: Schema,
        time: Time | None,
    ) -> S:
        """Adds the operator and returns its output."""
        op = TimedOp(
            name=call.name,
            at=call.at,
            inputs=(self.stream._number,),
            schema=schema,
            on_error=site.on_error,
            keys=site.keys,
            time=self.time,
            spec=spec,
        )
        return self.stream._append(op, time)

    def finish(
        self, call: CallSite, site: Site[S], spec: temporal.TimedSpec, schema: Schema, time: Time
    ) -> S:
        """Adds the operator and returns its output without the hidden columns."""
        output = self.add(call, site, spec, schema, time)
        if not self.hidden:
            return output
        names = [name for name in schema.names if name not in self.hidden]
        return add_projection(
            output, call, [(name, col(name)) for name in names], "fail", "columns"
        )


def timed_input(
    call: CallSite,
    site: Site[S],
    *,
    use_time: bool = True,
    extra: Mapping[str, Expr] | None = None,
) -> TimedInput[S]:
    """The stream with its event time as a column, and with the `extra` columns that the operator
    needs."""
    stream, new = site.stream, dict(extra or {})
    name = ""
    if use_time:
        time = require_time(stream._time, call.name)
        if time.op == "col":
            name = check_column(time.value, stream.schema)
        else:
            name = unused_name("event_time", (*stream.schema.names, *new))
            new[name] = time
    if not new:
        return TimedInput(stream=stream, time=name)
    columns = merge_columns(stream.schema.names, new)
    projected = add_projection(stream, call, columns, site.on_error, "input")
    return TimedInput(stream=projected, time=name, hidden=tuple(new))
