"""Runs an operator with its own loop: lets the records of a unit arrive at its ports one by one,
and its coroutine run after each as far as it can. `OperatorSpec` has the meaning.

The coroutine is a task of an event loop of its own, so that it may await anything. The loop runs
only while a unit is taken, in the thread of the worker that takes it: one at a time, in order. It
wakes now and then while the coroutine awaits something else than records, so that an interrupt from
outside is heard. A worker can be interrupted anywhere, so it neither makes nor closes a loop; what
starts and ends the run does. Its state is frames of Python: it can neither be copied nor moved.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from plait.errors import StateError
from plait.graph.temporal import SIDE, OperatorSpec
from plait.model.records import Misfit, error_text
from plait.node_runtime.functions.calls import in_parts
from plait.node_runtime.native._calls import assemble
from plait.node_runtime.native._process import MadeRows
from plait.node_runtime.native._records import Shape, columns_of
from plait.node_runtime.state.ports import PortContext
from plait.node_runtime.state.processes import FailedTimer, UnitResult
from plait.node_runtime.state.timers import ALL_TIME, AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.graph.operators import TimedOp
    from plait.model.schema import Schema
    from plait.node_runtime.native._batch import NativeBatch

BEAT_S = 0.05
"""How often a coroutine that awaits something can be interrupted."""
CLOSING_S = 1.0
"""How long one that is cancelled may take to clean up."""

NO_ROW = -2

Arrival = tuple[int, Any]
"""The number of a port, and the record that arrives there or why there is none."""


class OperatorPython:
    """An operator that runs. `sources`: the numbers of those that reach each port. `here`: whether
    this is the node on which it runs; on others no record arrives."""

    def __init__(
        self,
        op: TimedOp,
        in_schema: Schema,
        sources: Sequence[Sequence[int]],
        number: int = 0,
        here: bool = True,
    ) -> None:
        assert isinstance(op.spec, OperatorSpec)
        self.number = number
        self.op = op
        self.name = str(op)
        self.spec = op.spec
        self.finished = not here
        self.out = Shape(op.schema)
        self.shapes = [Shape(port.schema) for port in self.spec.inputs]
        self.columns = [
            [in_schema.index(name) for name in port.columns] for port in self.spec.inputs
        ]
        self.side = in_schema.index(SIDE) if len(self.shapes) > 1 else -1
        self.open = [set(reaching) for reaching in sources]
        """Of each port: the sources that are not at their end."""
        self.ports = PortContext(self.spec, self.deliver_next, self.pause, self.add)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None
        self.begun = False
        self.idle: asyncio.Future[None] | None = None
        self.arrivals: Iterator[tuple[int, Arrival]] = iter(())
        self.ending: tuple[str, ...] = ()
        """Ports that are over behind the unit, as long as the coroutine has not heard of it."""
        self.rows: MadeRows | None = None
        self.closing = self.left_behind = False
        self.base, self.row, self.mark = 0, NO_ROW, 0
        self.order: Sequence[int] | None = None
        self.time, self.place = AT_ONCE, 0
        """Of what came last: its row (-1: the end of ports), the rows made before it, its order."""
        self.refused: Exception | None = None
        """Why what came last could not arrive."""

    def __call__(
        self,
        batch: NativeBatch,
        base: int,
        order: Sequence[int] | None,
        watermarks: Sequence[int],
        watermark: int,
        behind: int,
        now: int = 0,
        clock: int = AT_ONCE,
        ended: int = -1,
    ) -> UnitResult:
        """Takes a unit, as `ProcessPython` does; `ended`: the source that is at its end behind."""
        rows = MadeRows(self.out, len(batch))
        self.ending = self.end_source(ended)
        if self.finished or not (len(batch) or self.ending):
            return UnitResult(rows, [], None, ALL_TIME)
        self.rows, self.base, self.order, self.row = rows, base, order, NO_ROW
        self.arrivals = enumerate(self.arrivals_of(batch))
        if not self.begun:
            # What it emits before it waits comes at the place of the first record.
            self.begun = True
            self.came(0 if len(batch) else -1)
        elif self.idle is not None:
            self.idle.set_result(None)
        self.advance()
        result = self.result(rows)
        self.rows = None
        return result

    def prepare(self) -> None:
        """Makes the loop and the task, which runs when the first record comes; before any worker
        runs. `close` ends both."""
        if self.finished:
            return
        self.loop = self.ports.loop = asyncio.new_event_loop()
        coroutine = self.spec.function(self.ports, **dict(self.spec.parameters))
        self.task = self.ports.task = self.loop.create_task(coroutine)
        self.task.add_done_callback(lambda _: self.stop())

    def advance(self) -> None:
        """Runs the loop until the coroutine waits for a record that is not here, or has ended."""
        assert self.loop is not None
        self.beat()
        try:
            self.loop.run_forever()
        finally:
            self.next_beat.cancel()
            if self.left_behind:
                self.close()

    def beat(self) -> None:
        assert self.loop is not None
        self.next_beat = self.loop.call_later(BEAT_S, self.beat)

    def stop(self) -> None:
        if self.loop is not None and not self.closing:
            self.loop.stop()

    def result(self, rows: MadeRows) -> UnitResult:
        """What became of the unit."""
        assert self.task is not None
        error: BaseException | None = self.refused
        if self.task.done():
            self.finished = True
            if self.task.cancelled():
                error = error or RuntimeError("the operator was cancelled")
            else:
                error = error or self.task.exception()
        if error is None:
            if self.finished:
                self.wind_up()
            return UnitResult(rows, [], None, ALL_TIME)
        self.finished = True
        self.wind_up()
        rows.back(self.mark)
        if self.row >= 0:
            return UnitResult(rows, [(self.row, error)], None, ALL_TIME)
        told = f"at the end of {', '.join(self.ending)}: {error_text(error)}"
        return UnitResult(rows, [], FailedTimer(told, error, self.time, self.place), ALL_TIME)

    async def pause(self) -> None:
        """Waits for the next unit."""
        assert self.loop is not None
        self.idle = self.loop.create_future()
        self.stop()
        try:
            await self.idle
        finally:
            self.idle = None

    def deliver_next(self) -> bool:
        """Lets the next record of the unit arrive, or tells of ports that are over behind it."""
        if self.refused is not None or self.rows is None:
            return False
        found = next(self.arrivals, None)
        if found is None:
            if self.ports.closed.issuperset(self.ending):
                return False
            self.came(-1)
            self.ports.closed.update(self.ending)
            return True
        row, (port, record) = found
        self.came(row)
        name = self.spec.inputs[port].name
        waiting = self.ports.waiting[name]
        if isinstance(record, Exception):
            self.refused = record
        elif self.spec.bound is not None and len(waiting) >= self.spec.bound:
            self.refused = Misfit(
                f'port "{name}" is full: {len(waiting):,} records wait there while the operator'
                f" waits with {self.ports.describe_wait()}; let it pop them, or give bound= more"
                " or None"
            )
        else:
            waiting.append(record)
            return True
        return False

    def came(self, row: int) -> None:
        """Notes what comes: a row, or -1 for the end of ports."""
        assert self.rows is not None
        if row != self.row:
            self.row, self.mark = row, len(self.rows)
        if row < 0:
            self.time, self.place = ALL_TIME, self.base
        else:
            at = row if self.order is None else self.order[row]
            self.time, self.place = AT_ONCE, self.base + at

    def add(self, row: Any) -> None:
        """Takes what is emitted; a ValueError says what does not fit."""
        if self.rows is None:
            raise RuntimeError("the run is over; nothing can be emitted")
        self.rows.add(row, self.time, self.place)

    def end_source(self, source: int) -> tuple[str, ...]:
        """The ports that are over when a source is at its end."""
        found: list[str] = []
        for port, left in zip(self.spec.inputs, self.open, strict=True):
            if source in left:
                left.discard(source)
                if not left:
                    found.append(port.name)
        return tuple(found)

    def arrivals_of(self, batch: NativeBatch) -> Iterator[Arrival]:
        """What arrives, row by row."""

        def error_arrival(row: int, error: Exception) -> Arrival:
            port = 0 if self.side < 0 else columns_of(batch, [self.side], (row,))[0][0]
            return port, error

        return in_parts(range(len(batch)), partial(self.records, batch), error_arrival)

    def records(self, batch: NativeBatch, rows: Sequence[int]) -> list[Arrival]:
        parts = [assemble(columns, batch, batch) for columns in self.columns]
        if self.side < 0:
            return [(0, record) for record in self.shapes[0].rows(parts[0], rows)]
        sides = columns_of(batch, [self.side], rows)[0]
        made = []
        for i, (shape, part) in enumerate(zip(self.shapes, parts, strict=True)):
            of_port = [row for row, one in zip(rows, sides, strict=True) if one == i]
            made.append(iter(shape.rows(part, of_port)))
        return [(one, next(made[one])) for one in sides]

    def wind_up(self) -> None:
        """Cancels what has not ended and lets it clean up; no record arrives any more."""
        loop, self.rows, self.closing = self.loop, None, True
        assert loop is not None
        loop.set_exception_handler(lambda *_: None)  # what does not end in time is left behind
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            waiting = asyncio.wait(left, timeout=CLOSING_S)
            try:
                loop.run_until_complete(waiting)
            finally:
                waiting.close()  # an abort may have struck before it began
        loop.run_until_complete(loop.shutdown_asyncgens())

    def close(self) -> None:
        """Ends the coroutine, if it has not ended, and the loop. A loop that still runs, in a
        worker that was left behind, is closed when its function returns."""
        loop = self.loop
        if loop is None or loop.is_closed():
            return
        if loop.is_running():
            self.left_behind = True
            return
        try:
            self.wind_up()
        finally:
            loop.close()

    def bins(self) -> list[int]:
        raise self.unmovable()

    def copy_bin(self, bin: int) -> bytes:
        raise self.unmovable()

    def take_bin(self, bin: int) -> bytes:
        raise self.unmovable()

    def put_bin(self, data: bytes) -> int:
        raise self.unmovable()

    def unmovable(self) -> StateError:
        return StateError(
            f"{self.name} has a loop of its own, whose state is in its running function: it cannot"
            " be saved or moved; keep what must outlive the run in a plait.Process"
        )
