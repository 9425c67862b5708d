"""A worker process of the pool: claims batches, runs the functions of a trip on them, answers.

It is forked by the zygote, loads the functions once, and lives until the pool closes or somebody
kills it. What it writes is complete before the slot is marked done, so its death at any moment
costs nothing but the work on one batch.
"""

from __future__ import annotations

import array
import gc
import json
import mmap
import os
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.node_runtime.functions.calls import Operator, compile_call
from plait.node_runtime.functions.opening import Opened
from plait.node_runtime.native._calls import at_step, beat_at, select_rows
from plait.node_runtime.native._pool import NativeWorker, die_with_parent, read_replay
from plait.node_runtime.pool.errors import pack, text_of
from plait.node_runtime.pool.lanes import LaneProgram, LaneSpec
from plait.node_runtime.state import pickling

if TYPE_CHECKING:
    import socket

    from plait.graph.operators import CallOp
    from plait.model.schema import Schema
    from plait.node_runtime.native._batch import NativeBatch
    from plait.node_runtime.native._pool import Step

    Calls = tuple[tuple[CallOp, Schema], ...]

MOST_TOLD = 8_000
"""Characters of an error that go through the control socket."""


@dataclass(frozen=True, slots=True)
class Function:
    """One operator of a trip."""

    run: Operator
    whole: bool
    """A function of batches: its rows have no single origin."""
    stops: bool
    """A failed record ends the run, and what was raised is raised again."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is done with a batch in one trip."""

    functions: tuple[Function, ...]

    def serve(self, worker: NativeWorker) -> None:
        """Does the batch that the worker has claimed."""
        worker.finish(trip(self, worker.batch(self.keeps_tables), worker.poison()))

    @property
    def keeps_tables(self) -> bool:
        """A function may keep the batch it got, so that it must own its memory."""
        return any(function.whole for function in self.functions)


def program_of(calls: Calls | LaneSpec, opened: Opened) -> Program | LaneProgram:
    """The operators (operator, schema of its input), or one with state, ready to run."""
    if isinstance(calls, LaneSpec):
        return LaneProgram(calls, opened)
    return Program(
        tuple(
            Function(
                opened.open_first(op, compile_call(op, given)),
                op.mode == "batches",
                stops=op.on_error == "fail",
            )
            for op, given in calls
        )
    )


def trip(program: Program, batch: NativeBatch, poison: list[tuple[int, int, str]]) -> list[Step]:
    """The outcome of every function, as far as there were rows; `poison`: rows that killed other
    processes (number of the function, row, why)."""
    steps: list[Step] = []
    for number, function in enumerate(program.functions):
        at_step(number, {row: why for step, row, why in poison if step == number})
        try:
            out, origin, failures = function.run(batch)
        except BaseException as error:  # not a matter of one record
            told = (0, text_of(error).encode("utf-8", "replace"), pack(error))
            steps.append((None, None, False, True, [told], None))
            break
        failed = [
            (row, text_of(error).encode("utf-8", "replace"), pack(error) if function.stops else b"")
            for row, error in failures
        ]
        records = None
        if failed and number > 0:
            records = select_rows(batch, array.array("I", [row for row, _ in failures]))
        steps.append((out, origin, function.whole, False, failed, records))
        if not len(out):
            break
        batch = out
    return steps


def load(functions_fd: int, opened: Opened) -> list[Program | LaneProgram]:
    size = os.fstat(functions_fd).st_size
    with mmap.mmap(functions_fd, size, prot=mmap.PROT_READ) as data:
        programs = [program_of(calls, opened) for calls in pickle.loads(data)]
    pickling.foreign.begin()
    return programs


def restore(programs: list[Program | LaneProgram], fd: int) -> None:
    """Gives the programs with state what a dead process had, and closes the file."""
    for number, bins, messages in read_replay(fd, os.fstat(fd).st_size):
        program = programs[number]
        assert isinstance(program, LaneProgram)
        program.restore(bins, messages)


def tell(control: socket.socket, **message: Any) -> None:
    control.send(json.dumps(message).encode())


def close(opened: Opened) -> None:
    """Closes the functions of this process; nobody else hears of one that cannot be closed."""
    with suppress(BaseException):
        opened.close()
        for error in opened.errors:
            print(f"plait: in a worker process: {error}", file=sys.stderr)


def work(
    index: int,
    ring_fd: int,
    functions_fd: int,
    restore_fd: int,
    control: socket.socket,
    zygote: int,
) -> None:
    """The life of a worker process, the child of `zygote`. Never returns. `restore_fd`: what it
    does first, in the place of one that died; or -1."""
    status = 1
    opened = Opened()
    try:
        die_with_parent()
        if os.getppid() != zygote:  # it died before we could say that we go with it
            return
        try:
            programs = load(functions_fd, opened)
        except BaseException as error:
            told = f"a function cannot be loaded there: {text_of(error)}"
            tell(control, kind="broken", worker=index, text=told[:MOST_TOLD])
            return
        worker = NativeWorker(os.dup(ring_fd), index)
        beat_at(worker.beat)
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(line_buffering=True)
        try:
            if restore_fd >= 0:
                restore(programs, restore_fd)
        except BaseException as error:
            told = f"its state did not come back: {text_of(error)}"
            tell(control, kind="broken", worker=index, text=told[:MOST_TOLD])
            return
        gc.freeze()
        tell(control, kind="ready", worker=index)
        while (number := worker.claim()) >= 0:
            programs[number].serve(worker)
        status = 0
    finally:
        close(opened)
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
