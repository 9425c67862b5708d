"""What the readers of single files have in common: a schema, and rows from a number on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from plait.connectors.formats.text_files import COMPRESSED, FileOptions
from plait.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.connectors.bad_rows import PolledRows
    from plait.model.schema import Schema


UNIT_BYTES = 2**28
"""More than this is not put into one unit if it can be two: a column holds 2 GiB of text."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place in a file where a row begins: the bytes, rows and lines before it. Reading can start
    there."""

    byte: int = 0
    row: int = 0
    line: int = 0


START = Anchor()


class EmptyFile(SourceError):
    """The file has nothing that says its columns."""


class FileReader:
    """An open file. `schema` is the wanted one, or None for the file's own."""

    schema: Schema

    def __init__(
        self,
        path: str,
        schema: Schema | None,
        *,
        only_known: bool,
        options: FileOptions | None = None,
    ) -> None:
        self.path = path
        self.only_known = only_known
        self.options = options or FileOptions()
        self.wanted = schema
        self.open()

    def open(self) -> None:
        raise TypeError(f"{type(self).__name__} has no method open()")

    def batches(self, start_row: int, anchor: Anchor = START) -> Iterator[PolledRows]:
        """The rows from `start_row` on, good and bad ones. `anchor`: one of this file that is not
        after it."""
        raise TypeError(f"{type(self).__name__} has no method batches(start_row, anchor)")

    def find_anchor(self) -> Anchor | None:
        """A place at or not far before the rows that `batches` gave last; None: not known, or the
        format needs none."""
        return None

    @property
    def has_bytes(self) -> bool:
        """Whether bytes of the file are bytes of the text, so that reading can start at one."""
        return self.options.is_utf8 and not self.path.endswith(COMPRESSED)

    def close(self) -> None:
        """Gives the file back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def failed(self, what: object) -> SourceError:
        return SourceError(f"{self.path}: {what}")

    def damaged(self, error: Exception) -> SourceError:
        """The file cannot be read on."""
        said = getattr(error, "strerror", None) or error
        if self.path.endswith(COMPRESSED) and not getattr(error, "errno", None):
            return self.failed(f"the archive is damaged or cut off: {said}")
        return self.failed(said)

    def settle(self, own: Schema) -> None:
        """Takes the wanted schema, or the file's own. A wanted column that may be null need not be
        in the file."""
        self.schema = self.wanted or own
        missing = [f.name for f in self.schema if f.name not in own and not f.nullable]
        extra = [name for name in own.names if name not in self.schema] if self.only_known else []
        if missing or extra:
            raise self.failed(
                f"its columns are {', '.join(own.names)}; expected {', '.join(self.schema.names)}"
                + (" as in the first file, or give schema=" if self.only_known else "")
            )


def rows_within(batch: Any, most_rows: int, most_bytes: int) -> int:
    """How many of the first rows of a batch take no more bytes; at least one."""
    rows = min(most_rows, int(batch.num_rows))
    while rows > 1 and batch.slice(0, rows).nbytes > most_bytes:
        rows //= 2
    return max(rows, 1)
