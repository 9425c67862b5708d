"""Operators with their own loop: a coroutine that waits for records at its ports, and emits.

    @plait.operator(inputs=("left", "right"), outputs=("out",))
    async def barrier(ctx):
        while await ctx.wait_all(left=1, right=1):
            ctx.emit(out=(ctx.pop("left"), ctx.pop("right")))

    zipped = barrier(left=clicks, right=bids).out

Calling an operator with streams makes one node; the attributes of what it returns are the streams
at its output ports. Parameters of the function behind `ctx` are given at the call, by name. What is
emitted has the schema that `outputs` says: a dataclass, a dict of types, a type for the one column
`value`, or the name of an input, for the columns of that one. By default it is that of the one
input or, with several inputs, a tuple with a record of each: columns `left_user`, `right_price`.
`plait.graph.temporal.OperatorSpec` says when the coroutine runs. Nothing here runs one.
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
    input_ports,
    node_schema,
    output_ports,
    port_names,
    united_columns,
)
from plait.model.call_site import CallSite
from plait.streams.event_time import Lost
from plait.streams.stream_protocol import S, projected
from plait.streams.window_verbs import Windowing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from plait.graph.temporal import OutputPort

BOUND = 1 << 20
"""How many records may wait at a port, unless the user says."""

RESERVED = ("bound", "on_error")


class Context(Protocol):
    """What an operator's coroutine is given: its ports."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the input ports."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the output ports."""

    async def wait_all(self, **counts: int) -> bool:
        """Waits until so many records are at each of these ports; False if that cannot be any
        more, because one of them is over."""

    async def wait_any(self, **counts: int) -> bool:
        """Waits until so many records are at one of these ports; False if that cannot be any
        more."""

    def pop(self, port: str, n: int | None = None) -> Any:
        """Takes the first record of a port; with `n` a list of the first n."""

    def peek(self, port: str, i: int = 0) -> Any:
        """A record that waits at a port, which stays there."""

    def size(self, port: str) -> int:
        """How many records wait at a port."""

    def over(self, port: str) -> bool:
        """Whether no more records will come to a port; some may still wait there."""

    def emit(self, *record: Any, **records: Any) -> Awaitable[None]:
        """Emits a record at each of these ports; without a name at the only one. Need not be
        awaited."""


class Operator:
    """A coroutine function with named ports; call it with streams. Made by `operator`."""

    def __init__(self, function: Any, inputs: Any, outputs: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.inputs = port_names(inputs, "inputs")
        said = outputs if isinstance(outputs, dict) else {}
        self.outputs = {name: said.get(name) for name in port_names(outputs, "outputs")}
        checked_function(self)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"

    @property
    def name(self) -> str:
        return str(self.function.__name__)

    def __call__(
        self, /, *streams: Any, bound: int | None = BOUND, on_error: str = "fail", **given: Any
    ) -> Outputs[Any]:
        """The operator on these streams: inputs in their order or by name, parameters by name.

        bound: how many records may wait at a port; None: any number.
        """
        with CallSite(self.name) as place:
            if on_error != "fail":
                raise JobError(
                    f"on_error={on_error!r}: an operator with its own loop ends when it raises, so"
                    " it cannot leave a record out; let it catch what it can go on from"
                )
            return self.applied(place, streams, bound, given)

    def applied(
        self, place: CallSite, streams: Sequence[Any], bound: int | None, given: Mapping[str, Any]
    ) -> Outputs[Any]:
        found, parameters = self.sorted_out(streams, given)
        if bound is not None and (type(bound) is not int or bound < 1):
            raise JobError(f"bound={bound!r}: it must be a whole number above 0, or None")
        inputs = input_ports(self.inputs, [stream.schema for stream in found])
        outputs = output_ports(self.outputs, inputs)
        spec = OperatorSpec(
            function=self.function,
            parameters=tuple(parameters.items()),
            inputs=inputs,
            outputs=outputs,
            bound=bound,
        )
        both = found[0]
        if len(found) > 1:
            sides = [
                projected(stream, place, columns, "fail", port.name)
                for stream, columns, port in zip(found, united_columns(inputs), inputs, strict=True)
            ]
            both = sides[0]._united(place, sides[1:], f"{place.name}.ports")
        op = TimedOp(
            name=place.name,
            at=place.at,
            inputs=(both._number,),
            schema=node_schema(outputs),
            keys=(),
            time="",
            spec=spec,
        )
        lost = Lost(f"{op} makes records of its own; say it with with_event_time(...)")
        return Outputs(both._made(op, lost), place, outputs)

    def sorted_out(
        self, streams: Sequence[Any], given: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The streams in the order of the ports, and the parameters of the function."""
        if len(streams) > len(self.inputs):
            raise JobError(f"{len(streams)} streams for the inputs {', '.join(self.inputs)}")
        at: dict[str, Any] = dict(zip(self.inputs, streams, strict=False))
        parameters: dict[str, Any] = {}
        for name, value in given.items():
            if name in at:
                raise JobError(f'the input "{name}" is given twice')
            if name in self.inputs:
                at[name] = value
            else:
                parameters[name] = value
        missing = [name for name in self.inputs if name not in at]
        if missing:
            raise JobError(f"no stream for {', '.join(missing)}; give {missing[0]}=a stream")
        signature = inspect.signature(self.function)
        try:
            signature.bind(None, **parameters)
        except TypeError as error:
            raise JobError(
                f"{error}; its inputs are {', '.join(self.inputs)}, and its parameters those of"
                f" {self.name}{signature} behind the first"
            ) from None
        return [checked_stream(name, at[name]) for name in self.inputs], parameters


class Outputs(Generic[S]):
    """The streams at the output ports of an operator, as attributes, by name or in their order."""

    def __init__(self, made: S, place: CallSite, ports: Sequence[OutputPort]) -> None:
        self._made = made
        self._place = place
        self._ports = {port.name: port for port in ports}
        self._streams: dict[str, S] = {}

    def __repr__(self) -> str:
        return f"{self._place.name}: {', '.join(self._ports)}"

    def __dir__(self) -> list[str]:
        return [*self._ports]

    def __getitem__(self, name: str) -> S:
        if name not in self._ports:
            raise KeyError(f"{self._place.name} has no output {name!r}; it has {self._known()}")
        if name not in self._streams:
            self._streams[name] = self._stream(name)
        return self._streams[name]

    def __getattr__(self, name: str) -> S:
        if name.startswith("_") or name not in self._ports:
            raise AttributeError(
                f'{self._place.name} has no output "{name}"; it has {self._known()}'
            )
        return self[name]

    def __iter__(self) -> Iterator[S]:
        return iter([self[name] for name in self._ports])

    def _known(self) -> str:
        return ", ".join(self._ports)

    def _stream(self, name: str) -> S:
        """With several ports: the rows of this one, and of them its columns."""
        made, place, port = self._made, self._place, self._ports[name]
        if len(self._ports) == 1:
            return made
        number = list(self._ports).index(name)
        one = made._made(
            FilterOp(
                name=f"{place.name}.{name}",
                at=place.at,
                inputs=(made._number,),
                schema=made.schema,
                predicate=bind(col(PORT) == lit(number), made.schema).expr,
            )
        )
        columns = zip(port.schema.names, port.columns, strict=True)
        op = ProjectOp(
            name=f"{place.name}.{name}",
            at=place.at,
            inputs=(one._number,),
            schema=port.schema,
            columns=tuple((own, col(column)) for own, column in columns),
        )
        return one._made(op, made._time)


@overload
def operator(function: Callable[..., Any], /) -> Operator: ...


@overload
def operator(
    *, inputs: Any = ..., outputs: Any = ...
) -> Callable[[Callable[..., Any]], Operator]: ...


def operator(
    function: Callable[..., Any] | None = None,
    /,
    *,
    inputs: Any = ("records",),
    outputs: Any = ("out",),
) -> Any:
    """Makes an operator of a coroutine function: see the module's first lines.

    Args:
        inputs: the names of the input ports, in order.
        outputs: the names of the output ports, or a dict of name to what is emitted there.
    """
    with CallSite("operator"):
        if function is not None:
            return Operator(function, inputs, outputs)
        port_names(inputs, "inputs")
        port_names(outputs, "outputs")

    def made(given: Callable[..., Any]) -> Operator:
        with CallSite("operator"):
            return Operator(given, inputs, outputs)

    return made


def checked_function(operator: Operator) -> None:
    """Raises unless the function is one that can be such an operator's."""
    function = operator.function
    if not inspect.iscoroutinefunction(function):
        raise JobError(f"{function!r} is no coroutine function; write async def")
    names = list(inspect.signature(function).parameters)
    if not names:
        raise JobError(f'"{operator.name}" has no parameter; the first one is its context')
    for name in names[1:]:
        if name in operator.inputs:
            raise JobError(f'"{name}" is an input and a parameter of "{operator.name}"; rename one')
    for name in (*names[1:], *operator.inputs):
        if name in RESERVED:
            raise JobError(f'"{name}" has a meaning of its own at the call; choose another name')


def checked_stream(name: str, given: Any) -> Any:
    if not isinstance(given, Windowing):
        raise JobError(f"{name}={given!r} is not a stream")
    site: Any = given._site()
    if site.keys:
        raise JobError(
            f"{name}=: the stream is keyed, and an operator has no keys; leave key_by out"
        )
    return site.stream
