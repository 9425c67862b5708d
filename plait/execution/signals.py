"""What asks a process to end while a run is watched: Ctrl-C, SIGTERM and SIGHUP.

`Presses` counts these signals instead of letting them end the process at any place of the code; the
first stops the sources, the second ends the run at once. Only the main thread can do so, and only
signals that nobody else handles are taken: a handler of the user's stays, and so does a signal that
is ignored (SIGHUP under nohup). What was there before is there again after the run.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.node_runtime.native._engine import NativeEngine

UNHANDLED: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
"""The signals that ask a process to end, each with its handler when nobody has set one."""


@contextmanager
def handling(handler: Callable[..., Any], *, anyway: bool = False) -> Iterator[None]:
    """Calls `handler` for signals that ask the process to end and that nobody handles; `anyway`:
    also for those that somebody does."""
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number, unhandled in UNHANDLED.items():
                present = signal.getsignal(number)
                if present is unhandled or (anyway and present is not signal.SIG_IGN):
                    before[number] = present
                    signal.signal(number, handler)
        yield
    finally:
        for number, present in before.items():
            signal.signal(number, present)


@contextmanager
def raising_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does, whatever a library has set."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with handling(interrupt, anyway=True):
        yield


class Presses:
    """Counts Ctrl-C, SIGTERM and SIGHUP while a run is watched.

    What a handler of the user's raises as KeyboardInterrupt counts as well.
    """

    def __init__(self) -> None:
        self.count = 0
        self.signal: int | None = None
        """The first one."""
        self.taken = handling(self.count_press)

    def __enter__(self) -> Self:
        self.taken.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.taken.__exit__(None, None, None)

    def count_press(self, number: int = signal.SIGINT, *_: object) -> None:
        self.count += 1
        if self.signal is None:
            self.signal = number

    def wait(self, engine: NativeEngine, seconds: float) -> bool:
        """Waits for the engine; True when its run is over."""
        try:
            return engine.wait(seconds)
        except KeyboardInterrupt:
            self.count_press()
            return False
