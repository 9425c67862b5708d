"""An operator that awaits: rows of batches as tasks of one event loop, each batch brought back
whole.

`AsyncCall` takes batches from its tray in order and starts a task for each row, up to
`concurrency` rows at a time over all its batches. A batch goes back when all its rows are done; the
engine puts batches in order. With the policy "fail" nothing behind the first failing row is
needed, so it is cancelled or not begun. Everything here runs in the loop's thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from dataclasses import dataclass, field
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.graph.operators import Retrying
from plait.model.records import Misfit
from plait.model.schema import Schema
from plait.node_runtime.functions.retries import pauses_s
from plait.node_runtime.native._calls import Records, assemble, misfit_of, select_rows
from plait.node_runtime.native._outside import NativeTray
from plait.node_runtime.native._records import Shape, columns_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Awaitable, Callable

    from plait.graph.operators import Awaiting, CallOp
    from plait.node_runtime.functions.calls import Failures
    from plait.node_runtime.functions.opening import AwaitedOpened
    from plait.node_runtime.native._batch import NativeBatch

ALL = 1 << 64


@dataclass(frozen=True, slots=True)
class Ended:
    """What a row gives whose function asked for the end of the process."""

    error: BaseException


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
    tasks: dict[int, asyncio.Task[Any]] = field(default_factory=dict)
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
        self.free = op.awaiting.concurrency
        self.flights: dict[int, Flight] = {}
        """By serial, in order."""
        self.starting: Flight | None = None
        self.last_needed = ALL
        self.over = False
        self.opened: AwaitedOpened | None = None
        """Where its functions are opened, if there is anything to open."""

    def rung(self) -> None:
        """The tray has something new."""
        self.tray.hush()
        self.forget_after(self.tray.last_needed())
        self.start_rows()

    def end(self) -> None:
        """No row is begun any more: the loop ends, and a task made now would never run."""
        self.over = True

    def start_rows(self) -> None:
        """As many as there is room for, in order."""
        while self.free and not self.over:
            flight = self.starting
            if flight is None or flight.begun >= flight.needed:
                self.starting = self.next_flight()
                if self.starting is None:
                    return
                continue
            row, flight.begun = flight.begun, flight.begun + 1
            self.free -= 1
            task = asyncio.get_running_loop().create_task(self.work(flight.batch, row))
            flight.tasks[row] = task
            task.add_done_callback(functools.partial(self.done, flight, row))

    def next_flight(self) -> Flight | None:
        while (taken := self.tray.take()) is not None:
            serial, batch = taken
            if serial <= self.last_needed:
                rows = len(batch)
                self.flights[serial] = Flight(serial, batch, needed=rows, left=rows)
                return self.flights[serial]
        return None

    async def work(self, batch: NativeBatch, row: int) -> Any:
        try:
            if self.opened is not None:
                await self.opened.open(self.op)
        except JobError as error:
            return Ended(error)
        try:
            return await self.tries.of(lambda: self.form.read_row(batch, row))
        except (KeyboardInterrupt, SystemExit) as error:
            return Ended(error)  # raised here it would end the loop

    def done(self, flight: Flight, row: int, task: asyncio.Task[Any]) -> None:
        """A task has ended: with a result, a failure, or because nobody needs it."""
        del flight.tasks[row]
        self.free += 1
        if task.cancelled():
            error: BaseException | None = asyncio.CancelledError("the function was cancelled")
        else:
            error = task.exception()
        if row < flight.needed and flight.serial in self.flights:
            if error is None and isinstance(task.result(), Ended):
                self.end_run(flight, task.result().error)
            else:
                self.settle(flight, row, error, None if error else task.result())
        self.start_rows()

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
            self.tray.complete(flight.serial, *self.outcome(flight))
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

    def read_row(self, batch: NativeBatch, row: int) -> Any:
        return self.shape.row(batch, row)

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
        self.calls = [
            (order.index(name), function, places_of(function, schema))
            for name, function in op.columns
        ]
        self.read = sorted({place for _, _, places in self.calls for place in places})
        self.sources = [
            -order.index(name) - 1 if name in new else schema.index(name)
            for name in op.schema.names
        ]

    def read_row(self, batch: NativeBatch, row: int) -> dict[int, Any]:
        values = columns_of(batch, self.read, (row,))
        return {place: value[0] for place, value in zip(self.read, values, strict=True)}

    async def call(self, values: dict[int, Any]) -> tuple[Any, ...]:
        """The new values in the order of the schema. All are awaited at the same time; the first
        function that raised is the one that is told."""
        begun = [
            (place, function(*(values[one] for one in places)))
            for place, function, places in self.calls
        ]
        if len(begun) == 1:
            return (check_result(await begun[0][1]),)
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


def check_result(result: Any) -> Any:
    if isinstance(result, CoroutineType):
        result.close()
        raise Misfit("the function returned a coroutine; write `return await ...`")
    return result


class Tries:
    """A function with its limits: how long a try may take, and how many there are."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]], awaiting: Awaiting) -> None:
        self.function = function
        self.timeout_s = None if awaiting.timeout_us is None else awaiting.timeout_us / 1e6
        tries = Retrying(retries=awaiting.retries, backoff_us=awaiting.backoff_us)
        self.pauses_s = pauses_s(tries)

    async def of(self, record: Callable[[], Any]) -> Any:
        """What the function gives for the record, which is made anew for every try."""
        given = record()
        for pause_s in self.pauses_s:
            try:
                return await self.once(given)
            except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
                raise
            except Misfit:
                raise
            except BaseException:
                await asyncio.sleep(pause_s)
            given = record()
        return await self.once(given)

    async def once(self, record: Any) -> Any:
        if self.timeout_s is None:
            return await self.function(record)
        try:
            async with asyncio.timeout(self.timeout_s) as limit:
                return await self.function(record)
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"no result within {self.timeout_s:g} s") from error
            raise
