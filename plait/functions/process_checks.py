"""Checks of a `Process` when a job is built: its handlers, its state, and the timers it sets.

Whatever can be seen in the class is refused here, at the user's line: a handler that is missing or
misspelt, a state of a type that plait does not keep, and timers that no handler takes.
"""

from __future__ import annotations

import copy
import difflib
import dis
import keyword
import typing
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.functions.process import SCALARS, KeyState, Process, shown
from plait.functions.signatures import check_call
from plait.model.schema import Location, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORD = ("key", "record", "state", "timers")
TIMER = ("key", "time", "state", "timers")
TIMED = ("on_timer", "on_timeout")
TAKERS = {"at": "on_timer", "after": "on_timeout"}
"""The handler that takes what a method of `Timers` sets."""
HANDLERS = ("on_record", "on_left", "on_right", *TIMED)
EMPTY: dict[str, Any] = {"state": {}, "out": None}
CLOSE_RATIO = 0.8
"""How alike two names must be for one to be a misspelling of the other."""
WORDS = "int, float, bool, str, bytes, plait.Timestamp, list[...] and dict[..., ...] of these"


def check_process(process: Any, shapes: Sequence[Schema], *, timed: bool) -> Process:
    """The process, bound to streams of these schemas. `timed`: whether they have event time."""
    if isinstance(process, type) and issubclass(process, Process):
        raise JobError(f"{process.__name__} is a class; give an object: {process.__name__}()")
    if not isinstance(process, Process):
        raise JobError(f"{process!r} is not a plait.Process; write class Name(plait.Process)")
    name = type(process).__name__
    check_spelling(process)
    checked_state(process.state, name)
    wanted = ("on_record",) if len(shapes) == 1 else ("on_left", "on_right")
    for handler in wanted:
        if not hasattr(process, handler):
            streams = "one stream" if len(shapes) == 1 else "two streams"
            raise JobError(f"{name} has no {handler}; a process of {streams} needs it")
    for handler in HANDLERS:
        there = getattr(process, handler, None)
        if there is not None and handler not in (*wanted, *TIMED):
            streams = "two streams" if len(shapes) == 1 else "one stream"
            raise JobError(f"{name} has {handler}, which is for a process of {streams}")
        if there is not None:
            check_call(there, TIMER if handler in TIMED else RECORD)
            check_timers(process, there)
    if hasattr(process, "on_timer") and not timed:
        raise JobError(
            f"{name} has on_timer, and the stream has no event time for its timers; name the"
            ' column: source(..., event_time="ts"), or use the wall clock with timers.after and'
            " on_timeout"
        )
    bound = copy.copy(process)
    bound.shapes = tuple(shapes)
    return bound


def check_spelling(process: Process) -> None:
    """Raises if an attribute looks like one that plait reads, and that one is missing."""
    own = {name for kind in type(process).__mro__ for name in vars(kind)} - set(dir(Process))
    missing = [name for name in HANDLERS if not hasattr(process, name)]
    missing += [name for name in ("state", "out") if getattr(process, name) == EMPTY[name]]
    for name in sorted(name for name in own if not name.startswith("_")):
        close = difflib.get_close_matches(name, missing, 1, CLOSE_RATIO)
        if close and (callable(getattr(process, name)) or close[0] not in HANDLERS):
            raise JobError(
                f"{type(process).__name__} has {name}, which nothing reads;"
                f" did you mean {close[0]}?"
            )


def check_timers(process: Process, handler: Any) -> None:
    """Raises if a handler sets timers that no method of the process takes, as far as that can be
    seen in its code: a call of a method on its last parameter."""
    code = getattr(handler, "__code__", None)
    if code is None or code.co_argcount < len(RECORD):
        return
    timers = code.co_varnames[code.co_argcount - 1]
    loaded: Any = None
    for step in dis.get_instructions(code):
        taker = TAKERS.get(step.argval) if step.opname in ("LOAD_ATTR", "LOAD_METHOD") else None
        if taker and loaded == timers and not hasattr(process, taker):
            line = step.positions.lineno if step.positions else None
            raise JobError(
                f"{type(process).__name__}.{code.co_name} calls {timers}.{step.argval} at"
                f" {Location(code.co_filename, line or code.co_firstlineno)}, and there is no"
                f" {taker}; write def {taker}(self, key, at, state, timers)"
            )
        loaded = None
        if step.opname.startswith("LOAD_FAST"):  # newer Pythons load two at a time
            loaded = step.argval[-1] if isinstance(step.argval, tuple) else step.argval


def out_schema(process: Process) -> Schema:
    """The schema of what the handlers yield."""
    name = type(process).__name__
    if process.out is None:
        raise JobError(f"{name}.out is missing; set it to a dataclass or a dict of types")
    try:
        return Schema.of(process.out)
    except JobError as error:
        raise JobError(f"{name}.out: {error}") from None


def checked_state(kinds: Any, name: str) -> None:
    if not isinstance(kinds, dict):
        raise JobError(f'{name}.state is {kinds!r}; it must be a dict such as {{"seen": int}}')
    for field, kind in kinds.items():
        if not isinstance(field, str) or not field.isidentifier() or keyword.iskeyword(field):
            raise JobError(f"{name}.state: {field!r} cannot be the name of an attribute")
        if field.startswith("_") or hasattr(KeyState, field):
            raise JobError(f'{name}.state: "{field}" is taken; choose another name')
        if not is_state_type(kind):
            raise JobError(
                f'{name}.state: "{field}" is {shown(kind)}; it must be one of {WORDS}{advice(kind)}'
            )


def advice(kind: Any) -> str:
    """What to write for a value in place of a type, or a type without its parts."""
    of: Any = type(kind) if type(kind) in (*SCALARS, list, dict) else kind
    if of in SCALARS and of is not kind:
        return f"; write its type, {of.__name__}, which starts as {SCALARS[of]!r}"
    examples: dict[Any, str] = {list: "list[int]", dict: "dict[str, int]"}
    return f"; write, for example, {examples[of]}" if of in examples else ""


def is_state_type(kind: Any) -> bool:
    try:
        if kind in SCALARS:
            return True
    except TypeError:
        return False  # not a type at all
    args = typing.get_args(kind)
    size = {list: 1, dict: 2}.get(typing.get_origin(kind))
    return size == len(args) and all(arg in SCALARS for arg in args)
