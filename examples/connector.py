"""A source and a sink of your own, in plain Python.

A source says its schema and opens a reader; a reader gives at most so many rows when it is polled,
None at the end, and the position from which another reader would go on. A sink opens a writer,
which gets batches in order and is closed once.
"""

from __future__ import annotations

from typing import Any

import plait
from plait import col


class Collatz(plait.Source):
    """The numbers of the Collatz sequence from `start` down to 1."""

    schema = plait.Schema.of({"step": int, "n": int})

    def __init__(self, start: int) -> None:
        self.start = start

    def open(self, position: Any = None) -> CollatzReader:
        return CollatzReader(*(position or (0, self.start)))


class CollatzReader(plait.Reader):
    def __init__(self, step: int, n: int) -> None:
        self.step, self.n = step, n

    def poll(self, max_rows: int) -> list[tuple[int, int]] | None:
        rows: list[tuple[int, int]] = []
        while len(rows) < max_rows and self.n:
            rows.append((self.step, self.n))
            following = 0 if self.n == 1 else 3 * self.n + 1 if self.n % 2 else self.n // 2
            self.step, self.n = self.step + 1, following
        return rows or None

    def position(self) -> list[int]:
        return [self.step, self.n]


class Bars(plait.Sink):
    """Draws each value of a column as a bar."""

    def __init__(self, column: str) -> None:
        self.column = column

    def open(self, schema: plait.Schema) -> BarsWriter:
        return BarsWriter(self.column)


class BarsWriter(plait.Writer):
    def __init__(self, column: str) -> None:
        self.column = column
        self.drawn = 0

    def write(self, batch: Any) -> None:
        for value in batch.column(self.column).to_pylist():
            print(f"{value:6} {'#' * (value // 150)}")
            self.drawn += 1

    def close(self) -> int:
        return self.drawn


odd = plait.stream(Collatz(27)).filter(col("n") % 2 == 1)
result = odd.sink(Bars("n"), name="bars").run()
print(f"{result.outputs['bars']} odd numbers of {result.account.read}")
