"""Files of text as streams of UTF-8 bytes, whatever they are packed in and encoded as.

`open_bytes` unpacks by the suffix; `open_utf8` also decodes. A byte that the encoding does not have
stays in the stream as it is, which is not UTF-8, so that the reader names its line like any other
bad line. `blocks` cuts a stream into pieces of whole lines.
"""

from __future__ import annotations

import codecs
import lzma
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from plait.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.connectors.columns import Rounding

BLOCK_BYTES = 1 << 22
COMPRESSED = (".gz", ".bz2", ".zst", ".xz")
DAMAGED = (OSError, EOFError, lzma.LZMAError)
"""What reading raises when a file cannot be read on: the disk, or a damaged archive."""
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """How files are read and written: the arguments of `Files`."""

    batch_rows: int = 65536
    encoding: str = "utf-8"
    file_and_line: bool = False
    left_out: str = ""
    """The beginning of paths that the column file leaves out: of relative ones made whole."""
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: Literal[True, False] | tuple[str, ...] = True
    nulls: tuple[str, ...] = ("",)
    comment: str | None = None
    skip_rows: int = 0
    rounding: Rounding = "error"

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            given = getattr(self, name)
            if given is None and name != "delimiter":
                continue
            if not isinstance(given, str) or len(given.encode()) != 1 or given in "\r\n":
                raise SourceError(f"Files: {name} is {given!r}; it must be one ASCII character")
        if self.comment is not None and (not isinstance(self.comment, str) or not self.comment):
            raise SourceError(f"Files: comment is {self.comment!r}; it must be a text such as '#'")
        if self.batch_rows < 1:
            raise SourceError(f"Files: batch_rows is {self.batch_rows}; it must be 1 or more")
        if self.skip_rows < 0:
            raise SourceError(f"Files: skip_rows is {self.skip_rows}; it must be 0 or more")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise SourceError(
                f'Files: the encoding "{self.encoding}" is not known; use one such as'
                ' "utf-8", "latin-1", "cp1252" or "utf-16"'
            ) from None

    @property
    def is_utf8(self) -> bool:
        """Whether the bytes of the files are UTF-8 already, with or without a mark at the start."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig", "ascii")

    def not_text(self) -> str:
        """What is wrong with bytes that cannot be decoded."""
        return f'text that is not {self.encoding.upper()}; give encoding=, such as "latin-1"'

    def for_csv(self) -> list[str]:
        """The options that were given and that only CSV files have."""
        plain = FileOptions()
        names = ("delimiter", "quote", "escape", "header", "nulls", "comment", "skip_rows")
        return [name for name in names if getattr(self, name) != getattr(plain, name)]


def open_bytes(path: str) -> Any:
    """The bytes of a file, unpacked as its suffix says."""
    if path.endswith(".xz"):
        return lzma.open(path)
    import pyarrow as pa

    return pa.input_stream(path)


def open_utf8(path: str, options: FileOptions, byte: int = 0) -> Any:
    """The text of a file as UTF-8 bytes; from a byte on, of a file that is neither compressed nor
    of another encoding."""
    stream = open_bytes(path)
    if byte:
        stream.seek(byte)
    return stream if options.is_utf8 else Decoded(stream, options.encoding)


class Piped:
    """A stream that changes the bytes of another: `read` gives some bytes, b"" at the end."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.ready = b""

    def more(self) -> bytes | None:
        """Some bytes, perhaps none; None at the end."""
        raise TypeError(f"{type(self).__name__} has no method more()")

    def read(self, size: int) -> bytes:
        while not self.ready:
            more = self.more()
            if more is None:
                return b""
            self.ready = more
        given, self.ready = self.ready[:size], self.ready[size:]
        return given

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Decoded(Piped):
    """Text of another encoding as UTF-8."""

    def __init__(self, stream: Any, encoding: str) -> None:
        super().__init__(stream)
        self.decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self.over = False

    def more(self) -> bytes | None:
        if self.over:
            return None
        data = self.stream.read(BLOCK_BYTES)
        self.over = not data
        return self.decoder.decode(data, self.over).encode("utf-8", "surrogateescape")


class Head(Piped):
    """The first bytes. Arrow reads ahead, as far as it can get."""

    def __init__(self, stream: Any, size: int) -> None:
        super().__init__(stream)
        self.left = size

    def more(self) -> bytes | None:
        data: bytes = self.stream.read(min(BLOCK_BYTES, self.left))
        self.left -= len(data)
        return data or None


class Uncommented(Piped):
    """UTF-8 without the first lines and without those that start as comments do."""

    def __init__(self, stream: Any, skip_rows: int, comment: str) -> None:
        super().__init__(stream)
        self.pieces = blocks(stream)
        self.skip_rows = skip_rows
        self.comment = comment.encode()

    def more(self) -> bytes | None:
        piece = next(self.pieces, None)
        if piece is None:
            return None
        lines = piece.splitlines(keepends=True)
        skipped = min(self.skip_rows, len(lines))
        self.skip_rows -= skipped
        return b"".join(line for line in lines[skipped:] if not line.startswith(self.comment))


def blocks(stream: Any, *, start: bool = True) -> Iterator[bytes]:
    """Whole lines in large pieces; every piece but the last ends with a line end. `start`: of the
    file, where there may be a mark."""
    held = stream.read(BLOCK_BYTES)
    if start:
        held = held.removeprefix(BOM)
    while True:
        more = stream.read(BLOCK_BYTES)
        if not more:
            break
        end = more.rfind(b"\n") + 1
        if end:
            yield held + more[:end]
            held = more[end:]
        else:
            held += more
    if held:
        yield held


def mark_bytes(path: str) -> int:
    """The length of the mark at the start of a file."""
    with open(path, "rb") as file:
        return len(BOM) if file.read(len(BOM)) == BOM else 0


def is_text(text: str) -> bool:
    """Whether all of it was decoded: what was not is there as lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(text: str) -> str:
    """A line as a dead letter has it: bytes that are not text are written \\xff."""
    text = text.rstrip("\r\n")
    if is_text(text):
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
