"""Composition by connections, where a graph reads better than a chain: `source >> operator.port`.

    flow = plait.Flow("sample")
    names = flow.source(plait.Files("names.csv"), name="names")
    values = flow.source(plait.Files("values.csv"), name="values")
    combiner = flow.operator(barrier, name="combiner")

    names >> (lambda stream: stream.filter(col("name") != "")) >> combiner.left
    values >> combiner.right
    combiner.out >> plait.Collect()
    flow.run()

A flow is another way to write a job: `flow.job()` is the job that the same calls of `plait.Job`
and of operators would make. `Flow` says what can be connected. The operators are built when the job
is asked for, so that connections can be made in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.connectors.base import Sink, checked_sink
from plait.errors import JobError
from plait.loops.loop_operators import BOUND, LoopOperator, Outputs
from plait.model.call_site import CallSite
from plait.streams.job import Job
from plait.streams.stream import Stream, add_union, same_job
from plait.streams.stream_protocol import unused_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.results.result import Result


class FlowOutput:
    """Something in a flow that gives records. Connect it with `>>`."""

    def __init__(self, flow: Flow, name: str) -> None:
        self._flow = flow
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __rshift__(self, target: Any) -> Any:
        with CallSite(f"{self._name} >>"):
            return self._flow._connect(self, target)

    def _stream(self) -> Stream:
        """The stream of the records; built on the first call."""
        raise NotImplementedError


class StreamOutput(FlowOutput):
    """A source of the flow, or a stream."""

    def __init__(self, flow: Flow, name: str, stream: Stream) -> None:
        super().__init__(flow, name)
        self._records = stream

    def _stream(self) -> Stream:
        return self._records


class FunctionOutput(FlowOutput):
    """What a function returns for a stream; it is called once."""

    def __init__(self, flow: Flow, before: FlowOutput, function: Callable[[Stream], Any]) -> None:
        super().__init__(flow, f"{before._name} >> {getattr(function, '__name__', 'function')}")
        self._before = before
        self._function = function
        self._result: Stream | None = None

    def _stream(self) -> Stream:
        if self._result is None:
            result = self._function(self._before._stream())
            if not isinstance(result, Stream):
                raise JobError(f"{self._name} returned {result!r}, not a stream")
            self._result = result
        return self._result


class PortOutput(FlowOutput):
    """An output port of an operator in a flow."""

    def __init__(self, operator: FlowOperator, port: str) -> None:
        super().__init__(operator._flow, f"{operator._name}.{port}")
        self._operator = operator
        self._port = port

    def _stream(self) -> Stream:
        return self._operator._outputs()[self._port]


class PortInput:
    """An input port of an operator in a flow. Connect to it with `>>`."""

    def __init__(self, operator: FlowOperator, port: str) -> None:
        self._operator = operator
        self._name = f"{operator._name}.{port}"
        self._connected: list[FlowOutput] = []

    def __repr__(self) -> str:
        return self._name

    def __rrshift__(self, output: Any) -> Any:
        with CallSite(f">> {self._name}"):
            return self._operator._flow._connect(output, self)


class FlowOperator:
    """An operator in a flow, made by `Flow.operator`. Its ports are its attributes:

    values >> combiner.right
    combiner.out >> plait.Collect()
    """

    def __init__(
        self,
        flow: Flow,
        operator: LoopOperator,
        name: str,
        bound: int | None,
        parameters: dict[str, Any],
    ) -> None:
        self._flow = flow
        self._operator = operator
        self._name = name
        self._bound = bound
        self._parameters = parameters
        self._call = CallSite(name)
        self._inputs = {port: PortInput(self, port) for port in operator.inputs}
        self._result: Outputs[Stream] | None = None
        self._building = False

    def __repr__(self) -> str:
        return f"{self._name}: {self._operator!r}"

    def __getattr__(self, port: str) -> Any:
        if port.startswith("_"):
            raise AttributeError(port)
        if port in self._inputs:
            return self._inputs[port]
        if port in self._operator.outputs:
            return PortOutput(self, port)
        known = ", ".join((*self._inputs, *self._operator.outputs))
        raise AttributeError(f'{self._name} has no port "{port}"; it has {known}')

    def __rshift__(self, target: Any) -> Any:
        with CallSite(f"{self._name} >>"):
            return self._flow._connect(self, target)

    def __rrshift__(self, output: Any) -> Any:
        with CallSite(f">> {self._name}"):
            return self._flow._connect(output, self)

    def _only_input(self) -> PortInput:
        if len(self._inputs) > 1:
            raise JobError(
                f"{self._name} has the inputs {', '.join(self._inputs)}; name one of them"
            )
        return next(iter(self._inputs.values()))

    def _only_output(self) -> PortOutput:
        outputs = self._operator.outputs
        if len(outputs) > 1:
            raise JobError(f"{self._name} has the outputs {', '.join(outputs)}; name one")
        return PortOutput(self, next(iter(outputs)))

    def _outputs(self) -> Outputs[Stream]:
        """Applies the operator to what is connected to it, once."""
        if self._result is None:
            with self._call as call:
                if self._building:
                    raise JobError("it would read its own output; a flow must not have cycles")
                self._building = True
                streams = [self._stream_at(call, port) for port in self._inputs.values()]
                self._result = self._operator.apply(call, streams, self._bound, self._parameters)
        return self._result

    def _stream_at(self, call: CallSite, port: PortInput) -> Stream:
        if not port._connected:
            raise JobError(f"nothing is connected to {port}; write a stream >> {port}")
        return add_union(call, [output._stream() for output in port._connected])


class Flow:
    """A job written as connections, where a graph reads better than a chain of calls.

    >>> @plait.operator(inputs=("left", "right"))
    ... async def barrier(ctx) -> None:
    ...     while await ctx.wait_all(left=1, right=1):
    ...         ctx.emit(out=(ctx.pop("left"), ctx.pop("right")))
    >>> flow = plait.Flow("sample")
    >>> combiner = flow.operator(barrier, name="combiner")
    >>> names = flow.source(["Ann", "", "Bo"], name="names")
    >>> _ = names >> (lambda stream: stream.filter(plait.col("value") != "")) >> combiner.left
    >>> _ = flow.source([31, 52], name="ages") >> combiner.right
    >>> flow.sink(combiner.out, plait.Collect(), name="pairs")
    >>> flow.run().outputs["pairs"].to_pylist()[1]
    {'left_value': 'Bo', 'right_value': 52}

    The left side of `>>` gives records: a source of the flow, an output port, an operator with one
    output, or a stream. The right side takes them: an input port, an operator with one input, a
    sink, or a function that takes a stream and returns one.

    Connections can be made in any order. Several to one input port are a union, in that order;
    several from one output are copies.
    """

    def __init__(self, name: str, *, dead_letters: Sink | None = None) -> None:
        """A flow without connections; arguments as in `plait.Job`."""
        self.name = name
        self._job = Job(name, dead_letters=dead_letters)
        self._operators: dict[str, FlowOperator] = {}
        self._ends: list[tuple[FlowOutput, Sink, str | None, CallSite]] = []
        self._built = False

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"

    def source(self, source: Any, name: str | None = None, **arguments: Any) -> FlowOutput:
        """Adds a source, to connect with `>>`. Arguments as in `Job.source`.

        >>> flow = plait.Flow("sample")
        >>> flow.source([1, 2, 3], name="numbers") >> plait.Discard()
        >>> flow.run().account.delivered
        3
        """
        stream = self._job.source(source, name, **arguments)
        return StreamOutput(self, str(getattr(stream._op, "label", name or "source")), stream)

    def operator(
        self,
        operator: LoopOperator,
        name: str | None = None,
        *,
        bound: int | None = BOUND,
        **parameters: Any,
    ) -> FlowOperator:
        """Adds an operator, whose ports are attributes to connect with `>>`.

        >>> @plait.operator
        ... async def pairs(ctx):
        ...     while await ctx.wait_all(records=2):
        ...         ctx.emit(max(ctx.pop("records", 2), key=lambda record: record.value))
        >>> flow = plait.Flow("sample")
        >>> best = flow.operator(pairs, name="best")
        >>> _ = flow.source([1, 5, 3, 2]) >> best
        >>> flow.sink(best, plait.Collect(), name="best")
        >>> flow.run().outputs["best"].to_pylist()
        [{'value': 5}, {'value': 3}]

        Args:
            operator: made by `plait.operator`.
            name: of the operator in errors, counts and plans (default: that of its function).
            bound: how many records may wait at a port; None: any number.
            parameters: of the operator's function, after its context.
        """
        with CallSite("operator"):
            if not isinstance(operator, LoopOperator):
                raise JobError(f"{operator!r} is not an operator; make one with plait.operator")
            label = operator.name if name is None else name
            if label in self._operators:
                raise JobError(f'the flow has an operator "{label}"; give this one another name=')
            self._operators[label] = FlowOperator(self, operator, label, bound, parameters)
            return self._operators[label]

    def sink(self, output: Any, sink: Sink, name: str | None = None) -> None:
        """The same as `output >> sink`, with a name for the sink in `Result.outputs`.

        >>> flow = plait.Flow("sample")
        >>> flow.sink(flow.source([1, 2]), plait.Collect(), name="all")
        >>> flow.run().outputs["all"].to_pydict()
        {'value': [1, 2]}
        """
        with CallSite("sink") as call:
            self._ends.append((self._output_of(output), checked_sink(sink), name, call))

    def job(self) -> Job:
        """The `plait.Job` of the connections. After this nothing more can be connected.

        >>> flow = plait.Flow("sample")
        >>> flow.source([1, 2]) >> plait.Discard()
        >>> flow.job()
        Job("sample", 2 operators)
        """
        if not self._built:
            self._built = True
            for operator in self._operators.values():
                operator._outputs()
            for output, sink, name, call in self._ends:
                with call:
                    output._stream().sink(sink, name)
        return self._job

    def run(self, **settings: Any) -> Result:
        """Runs the job in this process. Arguments as in `Job.run`.

        >>> flow = plait.Flow("sample")
        >>> flow.source([1, 2]) >> plait.Discard()
        >>> flow.run(workers=2).account.delivered
        2
        """
        return self.job().run(**settings)

    def _connect(self, output: Any, target: Any) -> Any:
        """Connects, and returns what the next `>>` of a chain starts from."""
        records = self._output_of(output)
        if self._built:
            raise JobError(f"the job of {self!r} is built already; connect everything before that")
        if isinstance(target, LoopOperator):
            target = self.operator(target, unused_name(target.name, tuple(self._operators)))
        if isinstance(target, FlowOperator):
            target = target._only_input()
        if isinstance(target, PortInput):
            if target._operator._flow is not self:
                raise JobError(f"{target!r} does not belong to the flow {self.name}")
            target._connected.append(records)
            return target._operator
        if isinstance(target, Sink):
            self._ends.append((records, target, None, CallSite("sink")))
            return None
        if callable(target) and not isinstance(target, type):
            return FunctionOutput(self, records, target)
        raise JobError(
            f"{target!r} takes no records; connect to a port, an operator, a sink or a function"
        )

    def _output_of(self, output: Any) -> FlowOutput:
        if isinstance(output, FlowOperator):
            return output._only_output()
        if isinstance(output, FlowOutput):
            if output._flow is not self:
                raise JobError(
                    f"{output!r} belongs to the flow {output._flow.name}, not to {self.name}"
                )
            return output
        if isinstance(output, Stream):
            same_job([self._job, output.job])
            return StreamOutput(self, output._op.name, output)
        raise JobError(f"{output!r} gives no records")
