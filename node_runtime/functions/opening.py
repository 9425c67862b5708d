"""Functions that are open in this process: opened before their first batch, closed at the end.

`Opened` is for functions that are called, `AwaitedOpened` for those that are awaited, in the loop
that awaits them. An object that several operators share is opened once, and so is one that several
runs in this process share: the last of them closes it. What a hook raises names
the operator; what `close` raises is kept in `errors`, so that all others are closed.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.functions.open_close import hooks_of, owner_of
from plait.graph.user_functions import functions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.functions.open_close import Hook
    from plait.graph.operators import AnyOp
    from plait.node_runtime.functions.calls import CallResult, Operator
    from plait.node_runtime.native._batch import NativeBatch


def hook_error(op: AnyOp, name: str, error: BaseException) -> JobError:
    made = JobError(f"{op}: {name}() raised {type(error).__name__}: {error}")
    made.__cause__ = error
    return made


users: dict[int, int] = {}
"""How many runs in this process have each object open."""
USERS = threading.RLock()


class Opened:
    """What one run has opened in this process, by one thread at a time."""

    def __init__(self) -> None:
        self.owners: set[int] = set()
        self.closes: list[tuple[AnyOp, int, Hook | None]] = []
        self.errors: list[JobError] = []

    def opener(self, op: AnyOp) -> Callable[[], None] | None:
        """Opens the functions of an operator, if any has something to open."""
        if not any(hooks_of(function) for function in functions_of(op)):
            return None
        return lambda: self.open(op)

    def open_first(self, op: AnyOp, operator: Operator) -> Operator:
        """The operator, opened before its first batch."""
        opener = self.opener(op)
        return operator if opener is None else OpensFirst(operator, opener)

    def open(self, op: AnyOp) -> None:
        for function in functions_of(op):
            hooks, owner = hooks_of(function), owner_of(function)
            if hooks is None or owner in self.owners:
                continue
            with USERS:
                try:
                    if hooks.open is not None and owner not in users:
                        hooks.open()
                except Exception as error:
                    raise hook_error(op, "open", error) from error
                users[owner] = users.get(owner, 0) + 1
            self.owners.add(owner)
            self.closes.append((op, owner, hooks.close))

    def close(self) -> None:
        """Closes all, the last first; once."""
        while self.closes:
            op, owner, close = self.closes.pop()
            with USERS:
                users[owner] -= 1
                if users[owner]:
                    continue
                del users[owner]
                try:
                    if close is not None:
                        close()
                except Exception as error:
                    self.errors.append(hook_error(op, "close", error))
        self.owners.clear()


class OpensFirst:
    """An operator that is opened before its first batch."""

    def __init__(self, operator: Operator, opener: Callable[[], None]) -> None:
        self.operator = operator
        self.opener: Callable[[], None] | None = opener

    def __call__(self, batch: NativeBatch) -> CallResult:
        if self.opener is not None:
            self.opener()
            self.opener = None
        return self.operator(batch)


class AwaitedOpened:
    """What was opened in an event loop."""

    def __init__(self) -> None:
        self.opening: dict[int, asyncio.Future[None]] = {}
        self.closes: list[tuple[AnyOp, Hook]] = []
        self.errors: list[JobError] = []

    async def open(self, op: AnyOp) -> None:
        """Returns when all functions of the operator are open; rows wait for the same opening."""
        for function in functions_of(op):
            owner = owner_of(function)
            if owner not in self.opening:
                self.opening[owner] = asyncio.ensure_future(self.open_one(op, function))
            await asyncio.shield(self.opening[owner])

    async def open_one(self, op: AnyOp, function: Any) -> None:
        hooks = hooks_of(function)
        if hooks is None:
            return
        try:
            await result_of(hooks.open)
        except Exception as error:
            raise hook_error(op, "open", error) from error
        if hooks.close is not None:
            self.closes.append((op, hooks.close))

    async def close(self) -> None:
        """Closes all, the last first; once."""
        while self.closes:
            op, close = self.closes.pop()
            try:
                await result_of(close)
            except Exception as error:
                self.errors.append(hook_error(op, "close", error))


async def result_of(hook: Hook | None) -> None:
    result = None if hook is None else hook()
    if inspect.isawaitable(result):
        await result
