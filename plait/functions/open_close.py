"""Functions with something to open: a client, a connection, a model.

A callable object with `open` and `close`, or a function given them by `plait.function`, is opened
before its first record in every process that calls it, and closed at the end of the run, also when
the run fails or is stopped. A function that is awaited is opened and closed in the event loop that
calls it, so both may be async. A `plait.Process` may have them as well.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable

    Hook = Callable[[], Any]

PLAIN = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
"""Callables that have nothing to open."""


class Hooks(NamedTuple):
    """What is called before the first record and at the end."""

    open: Hook | None
    close: Hook | None


class OpenFunction:
    """A function with its hooks; made by `plait.function`."""

    __name__: str

    def __init__(self, function: Callable[..., Any], hooks: Hooks) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.hooks = hooks

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.function(*given, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenFunction, (self.function, self.hooks)


def function(
    function: Callable[..., Any], *, open: Hook | None = None, close: Hook | None = None
) -> OpenFunction:
    """A function for `map` and the other verbs, with something to open.

    `open()` is called before the first record in every process that calls the function, and
    `close()` at the end of the run, also when it fails or is stopped. For `map_async` and
    `with_columns_async` both may be async; they run in the event loop of the function. A callable
    object with methods `open` and `close` is the same thing.

    >>> import plait
    >>> rates = {}
    >>> def to_euro(record):
    ...     return {"euro": record.price * rates["USD"]}
    >>> convert = plait.function(to_euro, open=lambda: rates.update(USD=0.5), close=rates.clear)
    >>> prices = plait.stream([{"price": 10.0}]).map(convert, schema={"euro": float})
    >>> [record.euro for record in prices.collect()]
    [5.0]
    >>> rates
    {}
    """
    for name, given in (("function", function), ("open", open), ("close", close)):
        if not callable(given) and (given is not None or name == "function"):
            raise JobError(f"function: {name} is {given!r}; it must be a function")
    if open is None and close is None:
        raise JobError("function: give open=, close= or both; without them pass the function as is")
    return OpenFunction(function, Hooks(open, close))


def hooks_of(function: Any) -> Hooks | None:
    """The hooks of a function or a process, if it has any."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, OpenFunction):
        return function.hooks
    if isinstance(function, PLAIN):
        return None
    found = [getattr(function, name, None) for name in ("open", "close")]
    hooks = Hooks(*(hook if inspect.ismethod(hook) else None for hook in found))
    return hooks if any(hooks) else None


def owner_of(function: Any) -> int:
    """The same for all that are opened together."""
    while isinstance(function, functools.partial):
        function = function.func
    return id(function)


def check_hooks(function: Any) -> None:
    """Raises if a function that is not awaited has hooks that must be."""
    for name, hook in zip(Hooks._fields, hooks_of(function) or (), strict=False):
        if inspect.iscoroutinefunction(hook):
            raise JobError(
                f"{name} is async, but the function is not awaited; write a plain {name}, or use"
                " map_async"
            )
