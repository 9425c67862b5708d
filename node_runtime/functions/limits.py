"""The limits of a function that is awaited: how often it is tried, and how long a try may take.

One timer looks after all tries of an operator. A task is cancelled when its try has lasted too
long; what it says then is a TimeoutError, unless the function took it otherwise.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from plait.graph.operators import Retrying
from plait.model.records import Misfit
from plait.node_runtime.functions.retries import pauses_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plait.graph.operators import Awaiting


class Tries:
    """A function with its limits: how long a try may take, and how many there are."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]], awaiting: Awaiting) -> None:
        self.function = function
        self.limits = None if awaiting.timeout_us is None else Limits(awaiting.timeout_us / 1e6)
        tries = Retrying(retries=awaiting.retries, backoff_us=awaiting.backoff_us)
        self.pauses_s = pauses_s(tries)

    def of(self, given: Any, again: Callable[[], Any]) -> Awaitable[Any]:
        """What the function gives for a record; `again` makes it anew, for every other try."""
        return self.several(given, again) if self.pauses_s else self.once(given)

    async def several(self, given: Any, again: Callable[[], Any]) -> Any:
        for pause_s in self.pauses_s:
            try:
                return await self.once(given)
            except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
                raise
            except Misfit:
                raise
            except BaseException:
                await asyncio.sleep(pause_s)
            given = again()
        return await self.once(given)

    def once(self, record: Any) -> Awaitable[Any]:
        if self.limits is None:
            return self.function(record)
        return self.limits.keep(self.function(record))


class Limits:
    """How long a try may take. One timer for all of them: `asyncio.timeout` would cost more than
    everything else that is done for a row."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.until: dict[asyncio.Task[Any], float] = {}
        """The tasks in a try, and when it has lasted too long; in this order."""
        self.expired: set[asyncio.Task[Any]] = set()
        self.timer: asyncio.TimerHandle | None = None

    async def keep(self, tried: Awaitable[Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        until = self.until[task] = time.monotonic() + self.timeout_s
        if self.timer is None:
            self.set_timer(until)
        try:
            return await tried
        except (asyncio.CancelledError, TimeoutError) as error:
            if task in self.expired and task.cancelling() <= 1:
                raise TimeoutError(f"no result within {self.timeout_s:g} s") from error
            raise
        finally:
            del self.until[task]
            if self.expired and task in self.expired:
                self.expired.discard(task)
                task.uncancel()

    def set_timer(self, until: float) -> None:
        """The timer of the loop goes by its own clock."""
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(max(until - time.monotonic(), 0.0), self.look)

    def look(self) -> None:
        """Cancels what has lasted too long, and looks again when the next one will have."""
        self.timer = None
        now = time.monotonic()
        for task, until in self.until.items():
            if until > now:
                self.set_timer(until)
                return
            if task not in self.expired:
                self.expired.add(task)
                task.cancel()
