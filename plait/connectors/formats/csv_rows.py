"""The rows of a CSV file with their lines and their text, as Python's csv module finds them.

Slower than Arrow, which does not tell the line of a row: this is for files that have a bad one.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, NamedTuple

from plait.connectors.formats.file_reader import START, Anchor
from plait.connectors.formats.text_files import FileOptions, open_utf8
from plait.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class CsvRow(NamedTuple):
    """One row of the text."""

    line: int
    text: str
    fields: Sequence[str]
    byte: int
    """Where it begins, if bytes of the file are bytes of the text."""


class RowScan:
    """The rows of a file as Python's csv module finds them, the header among them."""

    def __init__(
        self, path: str, options: FileOptions, *, blank_lines: bool, anchor: Anchor = START
    ) -> None:
        self.path = path
        self.anchor = anchor
        self.options = options
        self.blank_lines = blank_lines
        """Whether an empty line is a row."""

    def __enter__(self) -> Iterator[CsvRow]:
        import pyarrow as pa

        try:
            stream = open_utf8(self.path, self.options, self.anchor.byte)
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
        at = [max(options.skip_rows, self.anchor.line)]
        begins = [self.anchor.byte]
        rows = csv.reader(
            self.lines(held, at, begins),
            delimiter=options.delimiter,
            quotechar=options.quote,
            quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
            escapechar=options.escape,
        )
        for fields in rows:
            if fields or self.blank_lines:
                yield CsvRow(at[0] - len(held) + 1, "".join(held), fields, begins[0])
            held.clear()

    def lines(self, held: list[str], at: list[int], begins: list[int]) -> Iterable[str]:
        """The lines from the first row on; `held` are those of the present row, `at` the number of
        the last one, `begins` the byte of the first. Comments are passed over."""
        comment = self.options.comment
        byte = self.anchor.byte
        for number, line in enumerate(self.text, self.anchor.line):
            text = line.removeprefix("\ufeff") if number == 0 else line
            start, byte = byte, byte + byte_length(line)
            if number < self.options.skip_rows:
                continue
            at[0] = number + 1
            if comment is None or not text.startswith(comment):
                if not held:
                    begins[0] = start
                held.append(text)
                yield text


def byte_length(line: str) -> int:
    return len(line) if line.isascii() else len(line.encode("utf-8", "surrogateescape"))


def text_of(rows: list[CsvRow]) -> bytes:
    return "".join(
        row.text if row.text.endswith(("\n", "\r")) else row.text + "\n" for row in rows
    ).encode()
