"""Where in the user's code plait was called, and that line in front of what goes wrong.

The line is that of the first frame outside the package. Frames are recognised by the name of their
module, not by their file, because the folders of the package lie in several places.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

from plait.errors import JobError, SinkError, SourceError
from plait.model.schema import Location

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class CallSite:
    """The verb the user wrote and the line of it. An error that leaves the block names both."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.at = here()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, JobError | SourceError | SinkError):
            raise type(error)(f"{self.name} at {self.at}: {error}") from error.__cause__


def was_typed_in(at: Location) -> bool:
    """Whether a line is of a notebook's cell or a prompt, which may be run again, and not of a
    file: their names are such as `<stdin>` or /tmp/ipykernel_12/34.py.

    >>> was_typed_in(Location("<stdin>", 1)), was_typed_in(Location("/home/ann/carts.py", 1))
    (True, False)
    """
    return at.file.startswith("<") or "/ipykernel_" in at.file


def here() -> Location:
    """The place in the user's code from which plait was called."""
    frame = sys._getframe(1)
    while True:
        if not is_ours(frame) or frame.f_back is None:
            return Location(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is of plait's own code."""
    module = frame.f_globals.get("__name__", "")
    return bool(module == "plait" or module.startswith("plait."))
