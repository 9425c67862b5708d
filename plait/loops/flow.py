"""Composition by connections, where a graph reads better than a chain: `source >> operator.port`.

    flow = plait.Flow("sample")
    names = flow.source(plait.Files("names.csv"), name="names")
    values = flow.source(plait.Files("values.csv"), name="values")
    combiner = flow.operator(barrier, name="combiner")

    names >> (lambda stream: stream.filter(col("name") != "")) >> combiner.left
    values >> combiner.right
    combiner.out >> plait.Collect()
    flow.run()

What stands on the left gives records: a source, an output port, an operator with one output, or a
stream. What stands on the right takes them: an input port, an operator with one input (by itself,
or placed with a name by `flow.operator`), a sink, or a function of a stream that gives a stream.
Connections may be made in any order; several to one input port are a union in that order, several
from one output are copies. `flow.job()` is the same job as the calls of `plait.Job` and of
operators would make: nothing here runs by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.connectors.base import Sink
from plait.errors import JobError
from plait.loops.loop_operators import BOUND, Operator, Outputs
from plait.model.call_site import CallSite
from plait.streams.arguments import checked_sink
from plait.streams.job import Job
from plait.streams.stream import Stream, same_job, united
from plait.streams.stream_protocol import free

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.results.result import Result


class Giver:
    """Something that records come from. Connect it with `>>`."""

    def __init__(self, flow: Flow, name: str) -> None:
        self._flow = flow
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __rshift__(self, taker: Any) -> Any:
        with CallSite(f"{self._name} >>"):
            return self._flow._connect(self, taker)

    def _stream(self) -> Stream:
        raise NotImplementedError


class Given(Giver):
    """A stream that is there."""

    def __init__(self, flow: Flow, name: str, stream: Stream) -> None:
        super().__init__(flow, name)
        self._given = stream

    def _stream(self) -> Stream:
        return self._given


class Changed(Giver):
    """What a function makes of a stream, once."""

    def __init__(self, flow: Flow, before: Giver, function: Callable[[Stream], Any]) -> None:
        super().__init__(flow, f"{before._name} >> {getattr(function, '__name__', 'function')}")
        self._before = before
        self._function = function
        self._made: Stream | None = None

    def _stream(self) -> Stream:
        if self._made is None:
            made = self._function(self._before._stream())
            if not isinstance(made, Stream):
                raise JobError(f"{self._name} gave {made!r}, not a stream")
            self._made = made
        return self._made


class OutputEnd(Giver):
    """An output port of an operator in a flow."""

    def __init__(self, placed: Placed, port: str) -> None:
        super().__init__(placed._flow, f"{placed._name}.{port}")
        self._placed = placed
        self._port = port

    def _stream(self) -> Stream:
        found: Stream = self._placed._outputs()[self._port]
        return found


class InputEnd:
    """An input port of an operator in a flow."""

    def __init__(self, placed: Placed, port: str) -> None:
        self._placed = placed
        self._name = f"{placed._name}.{port}"
        self._givers: list[Giver] = []

    def __repr__(self) -> str:
        return self._name

    def __rrshift__(self, giver: Any) -> Any:
        with CallSite(f">> {self._name}"):
            return self._placed._flow._connect(giver, self)


class Placed:
    """An operator in a flow: its ports are its attributes."""

    def __init__(
        self, flow: Flow, operator: Operator, name: str, bound: int | None, given: dict[str, Any]
    ) -> None:
        self._flow = flow
        self._operator = operator
        self._name = name
        self._bound = bound
        self._given = given
        self._place = CallSite(name)
        self._inputs = {port: InputEnd(self, port) for port in operator.inputs}
        self._made: Outputs[Stream] | None = None
        self._making = False

    def __repr__(self) -> str:
        return f"{self._name}: {self._operator!r}"

    def __getattr__(self, port: str) -> Any:
        if port.startswith("_"):
            raise AttributeError(port)
        if port in self._inputs:
            return self._inputs[port]
        if port in self._operator.outputs:
            return OutputEnd(self, port)
        known = ", ".join((*self._inputs, *self._operator.outputs))
        raise AttributeError(f'{self._name} has no port "{port}"; it has {known}')

    def __rshift__(self, taker: Any) -> Any:
        with CallSite(f"{self._name} >>"):
            return self._flow._connect(self, taker)

    def __rrshift__(self, giver: Any) -> Any:
        with CallSite(f">> {self._name}"):
            return self._flow._connect(giver, self)

    def _only_input(self) -> InputEnd:
        if len(self._inputs) > 1:
            raise JobError(
                f"{self._name} has the inputs {', '.join(self._inputs)}; name one of them"
            )
        return next(iter(self._inputs.values()))

    def _only_output(self) -> OutputEnd:
        outputs = self._operator.outputs
        if len(outputs) > 1:
            raise JobError(f"{self._name} has the outputs {', '.join(outputs)}; name one")
        return OutputEnd(self, next(iter(outputs)))

    def _outputs(self) -> Outputs[Stream]:
        """The operator on what is connected to it."""
        if self._made is None:
            with self._place as place:
                if self._making:
                    raise JobError("it would read what it makes itself; a flow has no cycles")
                self._making = True
                streams = [self._at(place, end) for end in self._inputs.values()]
                self._made = self._operator.applied(place, streams, self._bound, self._given)
        return self._made

    def _at(self, place: CallSite, end: InputEnd) -> Stream:
        if not end._givers:
            raise JobError(f"nothing is connected to {end}; write a stream >> {end}")
        return united(place, [giver._stream() for giver in end._givers])


class Flow:
    """A job made of connections: see the module's first lines."""

    def __init__(self, name: str, *, dead_letters: Any = None) -> None:
        self.name = name
        self._job = Job(name, dead_letters=dead_letters)
        self._placed: dict[str, Placed] = {}
        self._ends: list[tuple[Giver, Sink, str | None, CallSite]] = []
        self._built = False

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"

    def source(self, source: Any, name: str | None = None, **given: Any) -> Giver:
        """Records to connect with `>>`; arguments as of `Job.source`."""
        stream = self._job.source(source, name, **given)
        return Given(self, str(getattr(stream._op, "label", name)), stream)

    def operator(
        self,
        operator: Operator,
        name: str | None = None,
        *,
        bound: int | None = BOUND,
        **given: Any,
    ) -> Placed:
        """An operator whose ports are connected with `>>`; parameters as at its call. `name` names
        it in errors, counts and plans."""
        with CallSite("operator"):
            if not isinstance(operator, Operator):
                raise JobError(f"{operator!r} is no operator; make one with plait.operator")
            label = operator.name if name is None else name
            if label in self._placed:
                raise JobError(f'there is an operator "{label}"; give this one another name=')
            self._placed[label] = Placed(self, operator, label, bound, given)
            return self._placed[label]

    def sink(self, giver: Any, sink: Sink, name: str | None = None) -> None:
        """The same as `giver >> sink`, with a name for the sink."""
        with CallSite("sink") as place:
            self._ends.append((self._giver(giver), checked_sink(sink), name, place))

    def job(self) -> Job:
        """The job that the connections say. Nothing can be connected afterwards."""
        if not self._built:
            self._built = True
            for placed in self._placed.values():
                placed._outputs()
            for giver, sink, name, place in self._ends:
                with place:
                    giver._stream().sink(sink, name)
        return self._job

    def run(self, **settings: Any) -> Result:
        """Runs the job in this process; arguments as of `plait.run`."""
        return self.job().run(**settings)

    def _connect(self, giver: Any, taker: Any) -> Any:
        """What a chain goes on with."""
        given = self._giver(giver)
        if self._built:
            raise JobError(f"the job of {self!r} is made already; connect everything before")
        if isinstance(taker, Operator):
            taker = self.operator(taker, free(taker.name, tuple(self._placed)))
        if isinstance(taker, Placed):
            taker = taker._only_input()
        if isinstance(taker, InputEnd):
            if taker._placed._flow is not self:
                raise JobError(f"{taker!r} is not of the flow {self.name}")
            taker._givers.append(given)
            return taker._placed
        if isinstance(taker, Sink):
            self._ends.append((given, taker, None, CallSite("sink")))
            return None
        if callable(taker) and not isinstance(taker, type):
            return Changed(self, given, taker)
        raise JobError(
            f"{taker!r} takes no records; give a port, an operator, a sink or a function"
        )

    def _giver(self, giver: Any) -> Giver:
        if isinstance(giver, Placed):
            return giver._only_output()
        if isinstance(giver, Giver):
            if giver._flow is not self:
                raise JobError(f"{giver!r} is of the flow {giver._flow.name}, not of {self.name}")
            return giver
        if isinstance(giver, Stream):
            same_job([self._job, giver.job])
            return Given(self, giver._op.name, giver)
        raise JobError(f"{giver!r} gives no records")
