"""The event loop of an engine: one thread for all its operators that await.

It starts with the engine and stops after the workers have left; then what is still awaited is
cancelled, and the thread ends. A function that neither returns nor heeds that it was cancelled is
interrupted, and left behind if that does not help either.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from plait.functions.open_close import hooks_of
from plait.graph.user_functions import functions_of
from plait.node_runtime.functions.opening import AwaitedOpened
from plait.node_runtime.native._outside import interrupt

if TYPE_CHECKING:
    from plait.node_runtime.functions.awaited import AsyncCall

TICK_S = 0.1
PATIENCE_S = 5.0
"""How long functions may take to clean up when they are cancelled; then they are interrupted..."""
GRACE_S = 10.0
"""... and after so long they are left behind."""


class LoopMeter:
    """Processor time of the loop's thread, shared out by batches: each is given what was used since
    the one before came back."""

    def __init__(self) -> None:
        self.seen_ns = 0

    def take_ns(self) -> int:
        now = time.thread_time_ns()
        used, self.seen_ns = now - self.seen_ns, now
        return used


class AsyncLoop:
    """A loop and its thread, for the operators given to `add` before the start."""

    def __init__(self) -> None:
        self.calls: list[AsyncCall] = []
        self.opened = AwaitedOpened()
        self.meter = LoopMeter()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None

    def add(self, call: AsyncCall) -> None:
        self.calls.append(call)
        call.meter = self.meter
        if any(hooks_of(function) for function in functions_of(call.op)):
            call.opened = self.opened

    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.over = asyncio.Event()
        # A daemon: a run that nobody waits for must not keep the process alive.
        thread = threading.Thread(target=self.run, name="plait-async", daemon=True)
        try:
            thread.start()
        except BaseException:
            self.loop.close()
            raise
        self.thread = thread

    def stop(self) -> bool:
        """Ends the loop; False if a function does not let it."""
        if self.loop is None or self.thread is None:
            return True
        with suppress(RuntimeError):  # it is closed already
            self.loop.call_soon_threadsafe(self.over.set)
        began = time.monotonic()
        while self.thread.is_alive():
            self.thread.join(TICK_S)
            waited_s = time.monotonic() - began
            if waited_s > GRACE_S:
                return False
            if waited_s > PATIENCE_S and self.thread.ident is not None:
                interrupt(self.thread.ident)
        self.loop.close()  # the thread does, unless it was interrupted in just that
        return True

    def run(self) -> None:
        """The thread."""
        assert self.loop is not None
        loop = self.loop
        why = "the event loop ended"
        self.meter.take_ns()  # what it took to begin is nobody's
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self.serve(loop))
        except BaseException as error:
            why = f"the event loop ended: {type(error).__name__}: {error}"
        finally:
            for call in self.calls:
                call.tray.broke(why)

    async def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        for call in self.calls:
            loop.add_reader(call.tray.fileno(), self.rung, call)
        try:
            await self.over.wait()
        finally:
            for call in self.calls:
                loop.remove_reader(call.tray.fileno())
                call.end()
            if self.opened.opening:
                await self.end_tasks()
                await self.opened.close()

    async def end_tasks(self) -> None:
        """What is awaited is over before what it uses is closed."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def rung(self, call: AsyncCall) -> None:
        call.rung()
        if call.tray.over():
            self.over.set()
