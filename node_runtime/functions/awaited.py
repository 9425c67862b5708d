"""An operator that awaits: rows of batches worked on in one event loop, each batch brought back
whole.

`AsyncCall` takes batches from its tray in order. Its rows are given to *runners*, tasks that work
on one row after the other: a function that never waits costs no task and no turn of the loop. There
are as many runners as rows wait at the same time, at most `concurrency`. A batch goes back when all
its rows are done; the engine puts batches in order. With the policy "fail" nothing behind the first
failing row is needed, so it is cancelled or not begun. Everything here runs in the loop's thread.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.model.records import Misfit
from plait.model.schema import Schema
from plait.node_runtime.functions.limits import Tries
from plait.node_runtime.native._calls import Records, assemble, misfit_of, select_rows
from plait.node_runtime.native._outside import NativeTray
from plait.node_runtime.native._records import Shape, columns_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Awaitable, Callable, Sequence

    from plait.graph.operators import CallOp
    from plait.node_runtime.functions.calls import Failures
    from plait.node_runtime.functions.event_loop import LoopMeter
    from plait.node_runtime.functions.opening import AwaitedOpened
    from plait.node_runtime.native._batch import NativeBatch

ALL = 1 << 64

CHUNK = 64
"""So many rows of a batch are read at once."""

TURN = 256
"""So many rows a runner takes before others of the loop have their turn."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a row gives whose function asked for the end of the process."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Unread:
    """A row of which no record can be made."""

    error: Exception


@dataclass(slots=True, eq=False)
class Flight:
    """A batch whose rows are in work."""

    serial: int
    batch: NativeBatch
    needed: int
    """Rows from here on are not needed."""
    left: int
    """Rows before `needed` that are not done."""
    begun: int = 0
    given: list[Any] = field(default_factory=list)
    """What the function gets for the rows that come next, the first last."""
    tasks: dict[int, asyncio.Task[Any]] = field(default_factory=dict)
    """The runners of the rows that are in work."""
    results: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, BaseException] = field(default_factory=dict)

    def drop_from(self, row: int) -> None:
        """Nobody needs this row and those behind it. All before it have begun."""
        self.needed = row
        self.left = sum(1 for one in self.tasks if one < row)
        for one, task in self.tasks.items():
            if one >= row:
                task.cancel()


class AsyncCall:
    """An operator of the mode "async"."""

    def __init__(self, op: CallOp, schema: Schema) -> None:
        assert op.awaiting is not None
        self.op = op
        self.form = Columns(op, schema) if op.columns else Whole(op, schema)
        self.tries = Tries(self.form.call, op.awaiting)
        self.stop_at_first = op.on_error == "fail"
        self.tray = NativeTray()
        self.concurrency = op.awaiting.concurrency
        self.runners: set[asyncio.Task[None]] = set()
        self.flights: dict[int, Flight] = {}
        """By serial, in order."""
        self.starting: Flight | None = None
        self.last_needed = ALL
        self.over = False
        self.adding = False
        """A runner is about to be added."""
        self.opened: AwaitedOpened | None = None
        """Where its functions are opened, if there is anything to open."""
        self.meter: LoopMeter | None = None
        """Of the thread that all of them share."""

    def rung(self) -> None:
        """The tray has something new."""
        self.tray.hush()
        self.forget_after(self.tray.last_needed())
        self.add_runners()

    def end(self) -> None:
        """No row is begun any more: the loop ends, and a task made now would never run."""
        self.over = True

    def add_runners(self) -> None:
        """One more runner if a row waits for one; and after it has begun, the next one."""
        if self.adding or self.over or len(self.runners) >= self.concurrency:
            return
        if self.find_flight() is None:
            return
        loop = asyncio.get_running_loop()
        runner = loop.create_task(self.run_rows())
        self.runners.add(runner)
        runner.add_done_callback(self.remove_runner)
        self.adding = True
        loop.call_soon(self.go_on_adding)

    def go_on_adding(self) -> None:
        self.adding = False
        self.add_runners()

    def remove_runner(self, runner: asyncio.Task[None]) -> None:
        self.runners.discard(runner)
        self.add_runners()

    async def run_rows(self) -> None:
        """A runner: rows until there are no more, or until a function was cancelled or has set a
        context variable: what it left of that would reach the next row."""
        runner = asyncio.current_task()
        assert runner is not None
        taken = 0
        context = copy_context()
        while not self.over and not runner.cancelling() and is_current(context):
            flight = self.find_flight()
            if flight is None:
                return
            row, flight.begun = flight.begun, flight.begun + 1
            flight.tasks[row] = runner
            result: Any = None
            error: BaseException | None = None
            try:
                result = await self.work(flight, row)
                if runner.cancelling():
                    await asyncio.sleep(0)  # it cancelled itself and has not been told yet
            except asyncio.CancelledError:
                error = asyncio.CancelledError("the function was cancelled")
                if runner.cancelling():
                    await asyncio.sleep(0)  # if the loop ends, all of it is told so first
                if self.over:
                    return
            except BaseException as raised:
                error = raised
            self.done(flight, row, error, result)
            taken += 1
            if taken % TURN == 0:
                await asyncio.sleep(0)

    def find_flight(self) -> Flight | None:
        """The batch of which the next row is to begin."""
        while (flight := self.starting) is None or flight.begun >= flight.needed:
            self.starting = self.next_flight()
            if self.starting is None:
                return None
        return flight

    def next_flight(self) -> Flight | None:
        while (taken := self.tray.take()) is not None:
            serial, batch = taken
            if serial <= self.last_needed:
                rows = len(batch)
                self.flights[serial] = Flight(serial, batch, needed=rows, left=rows)
                return self.flights[serial]
        return None

    async def work(self, flight: Flight, row: int) -> Any:
        batch = flight.batch
        if not flight.given:
            flight.given = self.read_rows(batch, row)
        given = flight.given.pop()
        if self.opened is not None:
            try:
                await self.opened.open(self.op)
            except JobError as error:
                return Ended(error)
        try:
            if isinstance(given, Unread):
                raise given.error
            return await self.tries.of(given, lambda: self.form.read_rows(batch, (row,))[0])
        except (KeyboardInterrupt, SystemExit) as error:
            return Ended(error)  # raised here it would end the loop

    def read_rows(self, batch: NativeBatch, row: int) -> list[Any]:
        """What the function gets for some rows from this one on, the first last."""
        rows = range(row, min(row + CHUNK, len(batch)))
        try:
            return self.form.read_rows(batch, rows)[::-1]
        except Exception:  # of one of them no record can be made
            return [self.read_one(batch, one) for one in reversed(rows)]

    def read_one(self, batch: NativeBatch, row: int) -> Any:
        try:
            return self.form.read_rows(batch, (row,))[0]
        except Exception as error:
            return Unread(error)

    def done(self, flight: Flight, row: int, error: BaseException | None, result: Any) -> None:
        """A row is done: with a result, a failure, or because nobody needs it."""
        del flight.tasks[row]
        if row < flight.needed and flight.serial in self.flights:
            if isinstance(result, Ended):
                self.end_run(flight, result.error)
            else:
                self.settle(flight, row, error, result)

    def settle(self, flight: Flight, row: int, error: BaseException | None, result: Any) -> None:
        flight.left -= 1
        if error is None:
            flight.results[row] = result
        else:
            flight.failures[row] = error
            if self.stop_at_first:
                flight.drop_from(row)
                self.forget_after(flight.serial)
        if flight.left == 0:
            del self.flights[flight.serial]
            self.bring_back(flight)

    def bring_back(self, flight: Flight) -> None:
        try:
            outcome = self.outcome(flight)
            if self.meter is not None:
                self.tray.spent_cpu(self.meter.take_ns())
            self.tray.complete(flight.serial, *outcome)
        except BaseException as error:  # no batch may be missing
            self.tray.stop(flight.serial, error)

    def end_run(self, flight: Flight, error: BaseException) -> None:
        del self.flights[flight.serial]
        flight.drop_from(0)
        self.tray.stop(flight.serial, error)

    def outcome(self, flight: Flight) -> tuple[NativeBatch, array[int] | None, Failures]:
        """The rows of a batch in their order, those that failed, and those that do not fit."""
        records = Records(self.form.out, flight.needed)
        failures: Failures = []
        for row in sorted({*flight.results, *flight.failures}):
            error = flight.failures.get(row)
            if error is None:
                error = self.add_result(records, row, flight.results[row])
            if error is not None:
                failures.append((row, error))
                if self.stop_at_first:
                    break
        made, found = records.finish(flight.batch)
        kept = found if failures else None
        return self.form.rows(flight.batch, made, kept), kept, failures

    def add_result(self, records: Records, row: int, result: Any) -> Exception | None:
        try:
            records.add(row, result)
        except Exception as error:
            return misfit_of(error) if isinstance(error, ValueError) else error
        return None

    def forget_after(self, serial: int) -> None:
        """Nothing behind this batch is needed."""
        if serial >= self.last_needed:
            return
        self.last_needed = serial
        for other in [one for one in self.flights if one > serial]:
            self.flights.pop(other).drop_from(0)


class Whole:
    """A function of a record that gives a record."""

    def __init__(self, op: CallOp, schema: Schema) -> None:
        self.function = op.function
        self.shape, self.out = Shape(schema), Shape(op.schema)

    def read_rows(self, batch: NativeBatch, rows: Sequence[int]) -> list[Any]:
        return list(self.shape.rows(batch, rows))

    async def call(self, record: Any) -> Any:
        return check_result(await self.function(record))

    def rows(self, batch: NativeBatch, made: NativeBatch, kept: array[int] | None) -> NativeBatch:
        return made


class Columns:
    """Functions of columns, each for one of the new ones; the others stay as they are."""

    def __init__(self, op: CallOp, schema: Schema) -> None:
        new = dict(op.columns)
        fields = tuple(field for field in op.schema.fields if field.name in new)
        self.out = Shape(Schema(fields))
        order = [field.name for field in fields]
        self.calls = [(order.index(name), function) for name, function in op.columns]
        self.places = [places_of(function, schema) for _, function in op.columns]
        self.only = self.calls[0][1] if len(self.calls) == 1 else None
        self.sources = [
            -order.index(name) - 1 if name in new else schema.index(name)
            for name in op.schema.names
        ]

    def read_rows(self, batch: NativeBatch, rows: Sequence[int]) -> list[Any]:
        """Of each row, the arguments of each function."""
        arguments = []
        for places in self.places:
            columns = columns_of(batch, places, rows)
            arguments.append(list(zip(*columns, strict=True)) or [()] * len(rows))
        return list(zip(*arguments, strict=True))

    async def call(self, arguments: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
        """The new values in the order of the schema. All are awaited at the same time; the first
        function that raised is the one that is told."""
        if self.only is not None:
            return (check_result(await self.only(*arguments[0])),)
        begun = [
            (place, function(*given))
            for (place, function), given in zip(self.calls, arguments, strict=True)
        ]
        results: list[Any] = [None] * len(begun)
        tasks = [(place, asyncio.ensure_future(catch_exit(one))) for place, one in begun]
        try:
            for place, task in tasks:
                result = check_result(await task)
                if isinstance(result, Ended):
                    raise result.error
                results[place] = result
        finally:
            for _, task in tasks:
                task.cancel()
            await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
        return tuple(results)

    def rows(self, batch: NativeBatch, made: NativeBatch, kept: array[int] | None) -> NativeBatch:
        base = batch if kept is None else select_rows(batch, kept)
        return assemble(self.sources, base, made)


def places_of(function: Callable[..., Any], schema: Schema) -> list[int]:
    """The columns that a function's parameters name."""
    return [schema.index(name) for name in inspect.signature(function).parameters]


async def catch_exit(coroutine: Awaitable[Any]) -> Any:
    """What a task of its own gives; who asks for the end of the process must not end the loop."""
    try:
        return await coroutine
    except (KeyboardInterrupt, SystemExit) as error:
        return Ended(error)


def is_current(context: Context) -> bool:
    """Whether the variables of the current context are those of this one. Quick if none was set."""
    try:
        return context == copy_context()
    except Exception:  # a value that cannot be compared
        return False


def check_result(result: Any) -> Any:
    if isinstance(result, CoroutineType):
        result.close()
        raise Misfit("the function returned a coroutine; write `return await ...`")
    return result
