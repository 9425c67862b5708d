"""Which event loops of this process are open, so that a leak is told by the test that caused it."""

from __future__ import annotations

import weakref
from asyncio.base_events import BaseEventLoop

loops: weakref.WeakSet[BaseEventLoop] = weakref.WeakSet()
"""Those made in this process, until the garbage collector has them."""


def note_loops() -> None:
    """Every loop made from now on is noted, before it has anything to close."""
    make = BaseEventLoop.__init__

    def noted(self: BaseEventLoop) -> None:
        loops.add(self)
        make(self)

    BaseEventLoop.__init__ = noted  # type: ignore[method-assign, assignment]


def open_loops() -> set[BaseEventLoop]:
    return {loop for loop in loops if not loop.is_closed()}
