"""Where in a CSV file the rows of an Arrow batch begin, which Arrow does not tell.

Arrow makes a batch of every block it reads: the rows that end in it. `TrackedBlocks` keeps the
bytes of the present batch. The place where they were cut is a guess where fields may have line ends
in quotes, so whoever wants to use it reads these bytes again and compares.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from plait.connectors.formats.file_reader import Anchor

LONGEST = 1 << 26
"""Bytes without the end of a row after which nothing is kept any more."""


class TrackedBlocks:
    """A stream for Arrow to read from."""

    closed = False

    def __init__(self, stream: Any, anchor: Anchor, quote: str | None) -> None:
        self.stream = stream
        self.quote = None if quote is None else quote.encode()
        self.blocks: deque[bytes] = deque()
        """Those that Arrow has read ahead."""
        self.over = False
        self.anchor = anchor
        """Where the present batch begins."""
        self.after = anchor
        self.text = b""
        """Its bytes."""
        self.tail = b""
        self.lost = False

    def read(self, size: int) -> bytes:
        block: bytes = self.stream.read(size)
        self.over = not block
        if block and not self.lost:
            self.blocks.append(block)
        return block

    def take_batch(self, rows: int) -> None:
        """Arrow gave the next batch."""
        if self.lost or not self.blocks:
            self.lose()
            return
        text = self.tail + self.blocks.popleft()
        last = self.over and not self.blocks
        end = len(text) if last else end_of_rows(text, self.quote)
        self.text, self.tail = text[:end], text[end:]
        self.anchor, at = self.after, self.after
        lines = self.text.count(b"\n")
        self.after = Anchor(at.byte + end, at.row + rows, at.line + lines)
        if len(self.tail) > LONGEST:
            self.lose()

    def lose(self) -> None:
        self.lost = True
        self.blocks.clear()
        self.text = self.tail = b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.stream.close()


def end_of_rows(text: bytes, quote: bytes | None) -> int:
    """After the last line end that is not in quotes, as far as their number tells; 0: none.

    >>> end_of_rows(b'a,1\\n"b\\n', b'"'), end_of_rows(b'a,1\\nb', None)
    (4, 4)
    """
    end = text.rfind(b"\n")
    quotes = text.count(quote, 0, end) if quote is not None and end > 0 else 0
    while end >= 0 and quotes % 2:
        before = text.rfind(quote or b"", 0, end)
        earlier = text.rfind(b"\n", 0, before)
        quotes -= text.count(quote or b"", max(earlier, 0), end)
        end = earlier
    return end + 1


def same_rows(ours: Any, given: Any) -> bool:
    """Whether two batches have the same values, NaN like any other."""
    import pyarrow as pa

    if ours.num_rows != given.num_rows or ours.schema != given.schema:
        return False
    for one, other in zip(ours.columns, given.columns, strict=True):
        if pa.types.is_float64(one.type):
            one, other = one.view(pa.int64()), other.view(pa.int64())
        if not one.equals(other):
            return False
    return True
