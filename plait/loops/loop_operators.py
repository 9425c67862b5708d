"""Operators with their own loop: a coroutine that waits for records at its ports and emits others.

    @plait.operator(inputs=("left", "right"), outputs=("out",))
    async def barrier(ctx):
        while await ctx.wait_all(left=1, right=1):
            ctx.emit(out=(ctx.pop("left"), ctx.pop("right")))

    zipped = barrier(left=clicks, right=bids).out

Calling an operator with streams adds it to their job; the attributes of what it returns are the
streams at its output ports. `operator` says what it takes, and `plait.graph.temporal.OperatorSpec`
when the coroutine runs. Nothing here runs one.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

from plait.errors import JobError
from plait.expr.tree import col, lit
from plait.expr.type_checker import bind
from plait.graph.operators import FilterOp, ProjectOp, TimedOp
from plait.graph.temporal import OperatorSpec
from plait.loops.ports import (
    PORT,
    common_port_columns,
    input_ports,
    operator_schema,
    output_ports,
    port_names,
)
from plait.model.call_site import CallSite
from plait.streams.event_time import Lost, Time, is_event_time, union_time
from plait.streams.stream_protocol import S, add_projection
from plait.streams.window_verbs import WindowVerbs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from plait.graph.temporal import OutputPort

BOUND = 1 << 20
"""How many records may wait at a port, unless `bound=` is given."""

RESERVED = ("bound", "on_error")


class Context(Protocol):
    """The ports of an operator, given to its coroutine as the first argument.

    >>> @plait.operator(inputs=("left", "right"))
    ... async def barrier(ctx: plait.Context) -> None:
    ...     while await ctx.wait_all(left=1, right=1):
    ...         ctx.emit(out=(ctx.pop("left"), ctx.pop("right")))
    >>> barrier
    barrier(left, right) -> out
    """

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the input ports."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the output ports."""

    async def wait_all(self, **counts: int) -> bool:
        """Waits until each port holds at least that many records: `wait_all(left=1, right=2)`.

        False if that can never happen because a port has ended.
        """

    async def wait_any(self, **counts: int) -> bool:
        """Waits until one of these ports holds at least that many records.

        False if that can never happen because all of them have ended.
        """

    def pop(self, port: str, n: int | None = None) -> Any:
        """Takes the first record of a port; with `n` a list of the first `n`."""

    def peek(self, port: str, i: int = 0) -> Any:
        """Record number `i` of those that wait at a port, without taking it."""

    def size(self, port: str) -> int:
        """How many records wait at a port."""

    def over(self, port: str) -> bool:
        """Whether no more records will come to a port; some may still wait there."""

    def emit(self, *record: Any, **records: Any) -> Awaitable[None]:
        """Emits a record at each named port: `emit(out=record)`. With one output port,
        `emit(record)`. It need not be awaited."""


class LoopOperator:
    """A coroutine function with named ports, made by `plait.operator`. Call it with streams:

    zipped = barrier(left=clicks, right=bids).out
    """

    def __init__(self, function: Any, inputs: Any, outputs: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.inputs = port_names(inputs, "inputs")
        schemas = outputs if isinstance(outputs, dict) else {}
        self.outputs = {name: schemas.get(name) for name in port_names(outputs, "outputs")}
        check_function(self)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(self.function.__name__)

    def __call__(
        self, /, *streams: Any, bound: int | None = BOUND, on_error: str = "fail", **named: Any
    ) -> Outputs[Any]:
        """Applies the operator to streams.

        Args:
            streams: at the input ports, in their order.
            bound: how many records may wait at a port; None: any number.
            on_error: "fail" is the only policy: a coroutine that raised cannot go on.
            named: streams by the name of their port, and parameters of the function.

        Returns:
            The streams at the output ports, as attributes.
        """
        with CallSite(self.name) as call:
            if on_error != "fail":
                raise JobError(
                    f"on_error={on_error!r}: an operator with its own loop ends when it raises, so"
                    " it cannot skip a record; catch the exception inside it instead"
                )
            return self.apply(call, streams, bound, named)

    def apply(
        self, call: CallSite, streams: Sequence[Any], bound: int | None, named: Mapping[str, Any]
    ) -> Outputs[Any]:
        """Adds the operator to the job of the streams."""
        inputs_at, parameters = self.split_arguments(streams, named)
        if bound is not None and (type(bound) is not int or bound < 1):
            raise JobError(f"bound={bound!r}: it must be a whole number above 0, or None")
        inputs = input_ports(self.inputs, [stream.schema for stream in inputs_at])
        outputs = output_ports(self.outputs, inputs)
        spec = OperatorSpec(
            function=self.function,
            parameters=tuple(parameters.items()),
            inputs=inputs,
            outputs=outputs,
            bound=bound,
        )
        both = inputs_at[0]
        if len(inputs_at) > 1:
            columns_at = common_port_columns(inputs)
            sides = [
                add_projection(stream, call, columns, "fail", port.name)
                for stream, columns, port in zip(inputs_at, columns_at, inputs, strict=True)
            ]
            both = sides[0]._union(call, sides[1:], f"{call.name}.ports")
        op = TimedOp(
            name=call.name,
            at=call.at,
            inputs=(both._number,),
            schema=operator_schema(outputs),
            keys=(),
            time="",
            spec=spec,
        )
        time = union_time([stream._time for stream in inputs_at], f"the inputs of {op}")
        times = [emitted_time(op, time, port) for port in outputs]
        first = times[0] if len(outputs) == 1 else Lost(f"{op} has several outputs")
        return Outputs(both._append(op, first), call, outputs, times)

    def split_arguments(
        self, streams: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The streams in the order of the ports, and the parameters of the function."""
        if len(streams) > len(self.inputs):
            raise JobError(f"{len(streams)} streams for the inputs {', '.join(self.inputs)}")
        at: dict[str, Any] = dict(zip(self.inputs, streams, strict=False))
        parameters: dict[str, Any] = {}
        for name, value in named.items():
            if name in at:
                raise JobError(f'the input "{name}" is given twice')
            if name in self.inputs:
                at[name] = value
            else:
                parameters[name] = value
        missing = [name for name in self.inputs if name not in at]
        if missing:
            raise JobError(f"no stream for {', '.join(missing)}; write {missing[0]}=stream")
        signature = inspect.signature(self.function)
        try:
            signature.bind(None, **parameters)
        except TypeError as error:
            raise JobError(
                f"{error}; its inputs are {', '.join(self.inputs)}, and its parameters those of"
                f" {self.name}{signature} after the first"
            ) from None
        return [checked_stream(name, at[name]) for name in self.inputs], parameters


def emitted_time(op: TimedOp, time: Time, port: OutputPort) -> Time:
    """The event time of what an operator emits at a port: that of its inputs, if they have the same
    one and the columns of it are there."""
    if isinstance(time, Lost) or is_event_time(time, port.schema):
        return time
    return Lost(f"{op} emits other columns; name their time with with_event_time(...)")


class Outputs(Generic[S]):
    """The streams at the output ports of an operator: by attribute, by name, or in order.

    parts = split(bids)
    cheap, expensive = parts.cheap, parts["expensive"]
    cheap, expensive = parts
    """

    def __init__(
        self, stream: S, call: CallSite, ports: Sequence[OutputPort], times: Sequence[Time]
    ) -> None:
        self._all = stream
        self._call = call
        self._ports = {port.name: port for port in ports}
        self._times = {port.name: time for port, time in zip(ports, times, strict=True)}
        self._streams: dict[str, S] = {}

    def __repr__(self) -> str:
        return f"{self._call.name}: {', '.join(self._ports)}"

    def __dir__(self) -> list[str]:
        return [*self._ports]

    def __getitem__(self, name: str) -> S:
        if name not in self._ports:
            raise KeyError(f"{self._call.name} has no output {name!r}; it has {self._known()}")
        if name not in self._streams:
            self._streams[name] = self._stream(name)
        return self._streams[name]

    def __getattr__(self, name: str) -> S:
        if name.startswith("_") or name not in self._ports:
            raise AttributeError(
                f'{self._call.name} has no output "{name}"; it has {self._known()}'
            )
        return self[name]

    def __iter__(self) -> Iterator[S]:
        return iter([self[name] for name in self._ports])

    def _known(self) -> str:
        return ", ".join(self._ports)

    def _stream(self, name: str) -> S:
        """With several ports: the rows and columns of this one."""
        stream, call, port = self._all, self._call, self._ports[name]
        if len(self._ports) == 1:
            return stream
        number = list(self._ports).index(name)
        rows = stream._append(
            FilterOp(
                name=f"{call.name}.{name}",
                at=call.at,
                inputs=(stream._number,),
                schema=stream.schema,
                predicate=bind(col(PORT) == lit(number), stream.schema).expr,
            )
        )
        columns = zip(port.schema.names, port.columns, strict=True)
        op = ProjectOp(
            name=f"{call.name}.{name}",
            at=call.at,
            inputs=(rows._number,),
            schema=port.schema,
            columns=tuple((own, col(column)) for own, column in columns),
        )
        return rows._append(op, self._times[name])


@overload
def operator(function: Callable[..., Any], /) -> LoopOperator: ...


@overload
def operator(
    *, inputs: Any = ..., outputs: Any = ...
) -> Callable[[Callable[..., Any]], LoopOperator]: ...


def operator(
    function: Callable[..., Any] | None = None,
    /,
    *,
    inputs: Any = ("records",),
    outputs: Any = ("out",),
) -> Any:
    """Makes an operator of a coroutine function that waits for records at its ports.

    >>> @plait.operator(inputs=("left", "right"), outputs=("out",))
    ... async def barrier(ctx, size=1):
    ...     while await ctx.wait_all(left=size, right=size):
    ...         for pair in zip(ctx.pop("left", size), ctx.pop("right", size)):
    ...             ctx.emit(out=pair)
    >>> names, ages = plait.stream(["Ann", "Bo"]), plait.stream([31, 52])
    >>> barrier(left=names, right=ages, size=2).out.collect()[0]
    Record(left_value='Ann', right_value=31)

    Args:
        function: its first parameter is a `plait.Context`; the others are given at the call, by
            name.
        inputs: the names of the input ports, in order.
        outputs: the names of the output ports, or a dict of name to schema: a dataclass, a dict of
            types, a type for the one column "value", or the name of an input, for its columns. The
            default schema is that of the input or, with several inputs, of a tuple with a record of
            each: columns `left_user`, `right_price`.

    Returns:
        An operator to call with streams, or to add with `Flow.operator`.
    """
    with CallSite("operator"):
        if function is not None:
            return LoopOperator(function, inputs, outputs)
        port_names(inputs, "inputs")
        port_names(outputs, "outputs")

    def decorate(function: Callable[..., Any]) -> LoopOperator:
        with CallSite("operator"):
            return LoopOperator(function, inputs, outputs)

    return decorate


def check_function(operator: LoopOperator) -> None:
    """Raises unless the function can be the loop of an operator."""
    function = operator.function
    if not inspect.iscoroutinefunction(function):
        raise JobError(f"{function!r} is not a coroutine function; write async def")
    names = list(inspect.signature(function).parameters)
    if not names:
        raise JobError(f'"{operator.name}" has no parameter; the first one must be its context')
    for name in names[1:]:
        if name in operator.inputs:
            raise JobError(f'"{name}" is an input and a parameter of "{operator.name}"; rename one')
    for name in (*names[1:], *operator.inputs):
        if name in RESERVED:
            raise JobError(f'"{name}" is an argument of every call; choose another name')


def checked_stream(name: str, given: Any) -> Any:
    if not isinstance(given, WindowVerbs):
        raise JobError(f"{name}={given!r} is not a stream")
    site: Any = given._site()
    if site.keys:
        raise JobError(
            f"{name}=: the stream is keyed, and an operator has no keys; leave out key_by"
        )
    return site.stream
