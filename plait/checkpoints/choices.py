"""What a reader chose, poll by poll, so that it can choose the same again.

The order in which a reader gives records may depend on when they came, as with the partitions of a
live topic. The cuts of a job that repeats epochs say how many rows were in each; the choices say
which. One thread adds, another takes notes.

    >>> log = ChoiceLog()
    >>> log.add(b"a"), log.add(b"b"), log.add(b"c")
    (None, None, None)
    >>> log.drop(1)
    >>> log.between(1, 9)
    [b'b', b'c']
"""

from __future__ import annotations

import threading


class ChoiceLog:
    """One entry for each poll that gave rows, numbered from the opening of the reader."""

    def __init__(self) -> None:
        self.first = 0
        self.entries: list[bytes] = []
        self.lock = threading.Lock()

    def add(self, choice: bytes) -> None:
        """Before the rows of the poll are handed out."""
        with self.lock:
            self.entries.append(choice)

    def between(self, first: int, end: int) -> list[bytes]:
        """Those in [first, end) that it has."""
        with self.lock:
            return self.entries[max(0, first - self.first) : max(0, end - self.first)]

    def drop(self, before: int) -> None:
        """Nobody asks for those before this one any more."""
        with self.lock:
            gone = max(0, min(before - self.first, len(self.entries)))
            del self.entries[:gone]
            self.first += gone
