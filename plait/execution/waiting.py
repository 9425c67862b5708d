"""What a stopped run still waits for, in words: the function that a worker is in, functions that
are awaited, worker processes.

A function is found by the frames of the thread that runs Python now, so nothing is measured while a
run goes well.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.functions.pickling import is_installed
from plait.functions.process import Process
from plait.graph.operators import SinkOp
from plait.graph.user_functions import functions_of
from plait.model.call_site import is_ours
from plait.results.failures import describe_op

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType, FrameType

    from plait.graph.operators import AnyOp, Graph
    from plait.node_runtime.assembly.engine_parts import EngineParts


def describe_wait(parts: EngineParts, graph: Graph) -> str:
    """What holds up the end: operators with their line, and the line that is running."""
    found = list(awaited(parts))
    thread = parts.engine.python_thread()
    frame = sys._current_frames().get(thread) if thread else None
    if frame is not None:
        found.insert(0, running(frame, graph))
    if parts.pools is not None:
        busy = parts.pools.busy_operators()
        found += [f"{describe_op(graph.operators[op])} in a worker process" for op in busy]
    return "; ".join(found) or "records that were read"


def awaited(parts: EngineParts) -> Iterator[str]:
    """The operators whose functions are awaited, and for how many records."""
    for call in parts.loop.calls if parts.loop is not None else ():
        count = sum(len(flight.tasks) for flight in tuple(call.flights.values()))
        if count:
            records = "1 record" if count == 1 else f"{count:,} records"
            yield f"{describe_op(call.op)}, awaited for {records}"


def running(frame: FrameType, graph: Graph) -> str:
    """The operator whose function this thread is in, and the user's innermost line."""
    frames: list[FrameType] = []
    at: FrameType | None = frame
    while at is not None:
        frames.append(at)
        at = at.f_back
    op = operator_of(frames, graph)
    users = next((one for one in frames if not is_ours(one) and not is_library(one)), None)
    where = "" if users is None else f"{Path(users.f_code.co_filename).name}:{users.f_lineno}"
    if op is None:
        return f"Python code at {where}" if where else "Python code"
    return f"{describe_op(op)} (now at {where})" if where else describe_op(op)


def operator_of(frames: Sequence[FrameType], graph: Graph) -> AnyOp | None:
    """By the code of its function, or because a frame of plait's own works for it."""
    codes = {one.f_code for one in frames}
    for op in graph.operators:
        if codes.intersection(codes_of(op)):
            return op
    for frame in filter(is_ours, frames):
        held = (frame.f_locals.get("op"), getattr(frame.f_locals.get("self"), "op", None))
        for op in graph.operators:
            if any(op is one for one in held):
                return op
    return None


def is_library(frame: FrameType) -> bool:
    return is_installed(sys.modules.get(frame.f_globals.get("__name__", "")))


def codes_of(op: AnyOp) -> Iterator[CodeType]:
    """The code of the user's functions in an operator."""
    for function in handlers_of(op):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is None:
            code = getattr(vars(type(function)).get("__call__"), "__code__", None)
        if code is not None:
            yield code


def handlers_of(op: AnyOp) -> Iterator[Any]:
    if isinstance(op, SinkOp):
        yield getattr(op.sink, "function", None)
    for function in functions_of(op):
        if not isinstance(function, Process):
            yield getattr(function, "function", function)
            continue
        names = ("on_record", "on_left", "on_right", "on_timer", "on_timeout")
        yield from (getattr(function, name, None) for name in names)
