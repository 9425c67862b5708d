"""Times at which the whole machine stood still, as a process of its own sees them.

A shared virtual machine is stopped now and then for tens of milliseconds, all of its processors at
once, when it has used up what its host grants it. No program on it can be better than that, so a
worst latency says something only beside the longest such stall. The watcher sleeps for a
millisecond again and again, at real-time priority where that is allowed, and keeps the times at
which it came back late: nothing but a machine that stands still keeps it from running.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TICK_S = 0.001
LATE_S = 0.003
"""Later than this is kept."""

Stall = tuple[float, float]
"""When it ended (monotonic clock), and how long it was."""


def keep_watch(pipe: Connection) -> None:
    """The process: answers each message with the stalls since the last one."""
    with suppress(PermissionError, OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    found: list[Stall] = []
    last = time.monotonic()
    while True:
        time.sleep(TICK_S)
        now = time.monotonic()
        if now - last > LATE_S:
            found.append((now, now - last))
        if pipe.poll():
            try:
                pipe.recv()
            except (EOFError, OSError):
                return
            pipe.send(found)
            found = []
        last = time.monotonic()


class Stalls:
    """Watches from `with` on."""

    def __init__(self) -> None:
        self.found: list[Stall] = []

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process: Any = context.Process(target=keep_watch, args=(other,), daemon=True)
        self.process.start()
        other.close()
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()
        self.process.join(5.0)

    def longest_ms(self, began: float, ended: float) -> float:
        """The longest stall that lay in this time, also in part; 0: none that counts."""
        self.pipe.send(None)
        self.found += self.pipe.recv()
        return max(
            (length * 1e3 for at, length in self.found if at > began and at - length < ended),
            default=0.0,
        )
