"""The rows of a CSV file with their lines and their text, as Python's csv module finds them.

Slower than Arrow, which does not tell the line of a row: this is for files that have a bad one.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, NamedTuple

from plait.connectors.text_files import FileOptions, open_utf8
from plait.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class CsvRow(NamedTuple):
    """One row of the text."""

    line: int
    text: str
    fields: Sequence[str]


class RowScan:
    """The rows of a file as Python's csv module finds them, the header among them."""

    def __init__(self, path: str, options: FileOptions, *, blank_lines: bool) -> None:
        self.path = path
        self.options = options
        self.blank_lines = blank_lines
        """Whether an empty line is a row."""

    def __enter__(self) -> Iterator[CsvRow]:
        import pyarrow as pa

        try:
            stream = open_utf8(self.path, self.options)
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror or error}") from None
        if not isinstance(stream, pa.NativeFile):
            stream = pa.PythonFile(stream, "r")
        self.text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline="")
        return self.rows()

    def __exit__(self, *_: object) -> None:
        self.text.close()

    def rows(self) -> Iterator[CsvRow]:
        options = self.options
        held: list[str] = []
        at = [options.skip_rows]
        rows = csv.reader(
            self.lines(held, at),
            delimiter=options.delimiter,
            quotechar=options.quote,
            quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
            escapechar=options.escape,
        )
        for fields in rows:
            if fields or self.blank_lines:
                yield CsvRow(at[0] - len(held) + 1, "".join(held), fields)
            held.clear()

    def lines(self, held: list[str], at: list[int]) -> Iterable[str]:
        """The lines from the first row on; `held` are those of the present row, `at` the number of
        the last one. Comments are passed over."""
        comment = self.options.comment
        for number, line in enumerate(self.text):
            text = line.removeprefix("\ufeff") if number == 0 else line
            if number < self.options.skip_rows:
                continue
            at[0] = number + 1
            if comment is None or not text.startswith(comment):
                held.append(text)
                yield text


def text_of(rows: list[CsvRow]) -> bytes:
    return "".join(
        row.text if row.text.endswith(("\n", "\r")) else row.text + "\n" for row in rows
    ).encode()
