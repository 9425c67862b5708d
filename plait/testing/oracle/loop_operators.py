"""An operator with its own loop in the plain loop: each record is pushed to its port, and then the
coroutine is run until it waits for another one, or has ended.

A port is over when all sources that reach it are at their end; the coroutine is told behind the
rows of the unit. One that raises fails the record that came last; with none it ends the stream.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from plait.graph.temporal import SIDE, OperatorSpec
from plait.testing.oracle.row_operators import called, described
from plait.testing.oracle.time import Fate, Time, TimedOperator, TimerFault
from plait.testing.oracle.values import Fault, Values, held_of, record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.graph.operators import TimedOp
    from plait.graph.temporal import InputPort
    from plait.model.schema import Schema

NEVER_ENDS = 1000


class PlainContext:
    """The ports, as lists."""

    def __init__(self, spec: OperatorSpec, pause: Callable[[], Any]) -> None:
        self.spec = spec
        self.pause = pause
        self.inputs = tuple(port.name for port in spec.inputs)
        self.outputs = tuple(port.name for port in spec.outputs)
        self.queues: dict[str, list[Any]] = {name: [] for name in self.inputs}
        self.ended: set[str] = set()
        self.emitted: list[Values] = []
        self.in_vain = 0

    async def wait_all(self, **counts: int) -> bool:
        return await self.wait(counts, lambda short: not short, any)

    async def wait_any(self, **counts: int) -> bool:
        return await self.wait(counts, lambda short: len(short) < len(counts), all)

    async def wait(
        self,
        counts: dict[str, int],
        met: Callable[[list[str]], bool],
        which: Callable[[list[bool]], bool],
    ) -> bool:
        for port, count in counts.items():
            most = self.spec.bound
            if port not in self.queues or count < 1 or (most is not None and count > most):
                raise ValueError(f"cannot wait for {count} records of {port}")
        if not counts:
            raise ValueError("waits for nothing")
        while not met(short := [p for p, count in counts.items() if self.size(p) < count]):
            if which([port in self.ended for port in short]):
                self.in_vain += 1
                if self.in_vain > NEVER_ENDS:
                    raise RuntimeError("the loop does not end with its ports")
                return False
            await self.pause()
        return True

    def pop(self, port: str, n: int | None = None) -> Any:
        found = self.queues[port]
        if len(found) < (1 if n is None else n):
            raise LookupError(f"{port} has {len(found)} records")
        self.in_vain = 0
        return found.pop(0) if n is None else [found.pop(0) for _ in range(n)]

    def peek(self, port: str, i: int = 0) -> Any:
        if not 0 <= i < len(self.queues[port]):
            raise LookupError(f"{port} has no record {i}")
        return self.queues[port][i]

    def size(self, port: str) -> int:
        return len(self.queues[port])

    def over(self, port: str) -> bool:
        if port not in self.queues:
            raise ValueError(f"no input {port}")
        return port in self.ended

    def emit(self, *record: Any, **records: Any) -> Any:
        if record and (len(record) > 1 or records or len(self.outputs) > 1):
            raise ValueError("which port?")
        if record:
            records = {self.outputs[0]: record[0]}
        for name, given in records.items():
            if name not in self.outputs:
                raise ValueError(f"no output {name}")
            self.emitted.append(self.row(self.outputs.index(name), given))
        self.in_vain = 0
        return NOTHING_TO_AWAIT

    def row(self, number: int, given: Any) -> Values:
        """A row of the operator: where there are several ports, the number and the columns of
        all."""
        port = self.spec.outputs[number]
        if port.tuples:
            if not isinstance(given, tuple | list) or len(given) != len(self.inputs):
                raise ValueError(f"expected a record of each of {', '.join(self.inputs)}")
            given = [
                value
                for part, one in zip(given, self.spec.inputs, strict=True)
                for value in self.values(part, one)
            ]
        values = held_of(given, port.schema)
        if len(self.outputs) == 1:
            return values
        row: list[Any] = [number]
        for i, one in enumerate(self.spec.outputs):
            row += values if i == number else [None] * len(one.schema)
        return tuple(row)

    def values(self, part: Any, port: InputPort) -> list[Any]:
        if part is None:
            return [None] * len(port.schema)
        return [getattr(part, name) for name in port.schema.names]


class NothingToAwait:
    def __await__(self) -> Any:
        yield from ()


NOTHING_TO_AWAIT = NothingToAwait()


class Loops(TimedOperator):
    """One coroutine; `over` says of each port whether its sources are at their end."""

    def __init__(self, op: TimedOp, schema: Schema, over: Callable[[], Sequence[bool]]) -> None:
        assert isinstance(op.spec, OperatorSpec)
        self.spec = op.spec
        self.schema = schema
        self.over = over
        self.context = PlainContext(op.spec, self.pause)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None

    def take(self, place: int, values: Values, watermark: Time) -> list[Values] | Fate:
        self.begin()
        if not self.runs():
            return self.said()
        port = self.port(values)
        record = called(self.record, values)
        waiting = self.context.queues[port.name]
        if self.spec.bound is not None and len(waiting) >= self.spec.bound:
            raise Fault(f"port {port.name} is full")
        waiting.append(record)
        self.step()
        return self.said()

    def behind(self, watermark: Time, *, at_end: bool) -> list[Values]:
        names = [port.name for port in self.spec.inputs]
        ended = {name for name, over in zip(names, self.over(), strict=True) if over}
        if ended <= self.context.ended:
            return []
        try:
            self.begin()
            self.context.ended |= ended
            self.step()
            return self.said()
        except Fault as fault:
            raise TimerFault(str(fault), []) from fault

    def port(self, values: Values) -> InputPort:
        several = len(self.spec.inputs) > 1
        return self.spec.inputs[values[self.schema.index(SIDE)] if several else 0]

    def record(self, values: Values) -> Any:
        """The record that arrives, of the class that the user knows."""
        port = self.port(values)
        return record_of(tuple(values[self.schema.index(c)] for c in port.columns), port.schema)

    def shown(self, values: Values) -> Any:
        port = self.port(values)
        return described(tuple(values[self.schema.index(c)] for c in port.columns), port.schema)

    def runs(self) -> bool:
        return self.task is not None and not self.task.done()

    def begin(self) -> None:
        if self.task is None:
            self.loop = asyncio.new_event_loop()
            coroutine = self.spec.function(self.context, **dict(self.spec.parameters))
            self.task = self.loop.create_task(coroutine)
            self.paused = self.loop.create_future()
            self.wait_until_paused()

    def step(self) -> None:
        """Lets the coroutine look at its ports again."""
        if self.runs():
            assert self.loop is not None
            self.paused = self.loop.create_future()
            self.go_on.set_result(None)
            self.wait_until_paused()

    def wait_until_paused(self) -> None:
        assert self.loop is not None
        assert self.task is not None
        either = asyncio.wait((self.task, self.paused), return_when=asyncio.FIRST_COMPLETED)
        self.loop.run_until_complete(either)

    async def pause(self) -> None:
        assert self.loop is not None
        self.go_on = self.loop.create_future()
        self.paused.set_result(None)
        await self.go_on

    def said(self) -> list[Values]:
        """What was emitted, or the Fault that ended the coroutine."""
        assert self.task is not None
        if self.task.done():
            called(self.task.result)
        rows, self.context.emitted = self.context.emitted, []
        return rows

    def close(self) -> None:
        if self.loop is None or self.loop.is_closed():
            return
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.close()
