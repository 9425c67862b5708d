"""Where a reader of files is, as plain data: the file by name and bytes, and those after it.

    {"path": "logs/b.csv", "size": 4096, "digest": "...", "row": 70, # rows of it that were read
     "byte": 2048, "byte_row": 64, "line": 65,                       # where a block begins
     "left": 3, "names": "...", "listed": 1763000000000000000}       # it and those after it

A run that goes on reads the files that were there when the first run listed them: the names from
this one on must have the same digest, with or without the files that are newer than the list. So a
new file is not seen, one that is missing is an error, and files that are done may be gone. A file
is the same if its size and its first and last 64 KB are: a copy of it elsewhere is, too.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from plait.connectors.formats.file_reader import Anchor
from plait.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

END_BYTES = 1 << 16
"""How much of both ends of a file is in its digest."""
NO_FILE = {"path": None, "size": 0, "digest": ""}


def stamp_file(path: str) -> dict[str, Any]:
    """A file by name, size and digest of its ends."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256(file.read(END_BYTES))
            if size > END_BYTES:
                file.seek(max(END_BYTES, size - END_BYTES))
                digest.update(file.read(END_BYTES))
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    return {"path": path, "size": size, "digest": digest.hexdigest()[:32]}


def digest_names(paths: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(paths).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def position_of(
    stamp: dict[str, Any], row: int, anchor: Anchor, left: Sequence[str], listed_ns: int
) -> dict[str, Any]:
    place = {"row": row, "byte": anchor.byte, "byte_row": anchor.row, "line": anchor.line}
    names = {"left": len(left), "names": digest_names(left), "listed": listed_ns}
    return {**stamp, **place, **names}


def anchor_of(position: dict[str, Any]) -> Anchor:
    return Anchor(position["byte"], position["byte_row"], position["line"])


def find_rest(paths: Sequence[str], position: Any, shown: str) -> list[str]:
    """The files that are left to read at a position, the present one first; SourceError if it, or
    one after it, is gone or not the same. `shown`: what was given to `Files`."""
    if not isinstance(position, dict) or "names" not in position:
        raise SourceError(f"Files {shown}: {position!r} is not a position of files")
    path = position["path"]
    if path is None:
        return []
    if path not in paths:
        raise SourceError(f"{path} is gone; the job was to go on at row {position['row'] + 1:,}")
    check_same(path, position)
    for first in [i for i, other in enumerate(paths) if other == path]:
        rest = list(paths[first:])
        old = [other for other in rest if not is_newer(other, position["listed"])]
        for candidate in (rest, old, oldest_of(rest, position["left"])):
            if digest_names(candidate) == position["names"]:
                return candidate
    raise SourceError(
        f"Files {shown}: the files from {path} on are not those of the run before:"
        f" {position['left']:,} then, {len(paths) - paths.index(path):,} now"
    )


def check_same(path: str, position: dict[str, Any]) -> None:
    now = stamp_file(path)
    if now["size"] != position["size"]:
        raise SourceError(
            f"{path} has changed: {position['size']:,} bytes when it was read,"
            f" {now['size']:,} bytes now"
        )
    if now["digest"] != position["digest"]:
        raise SourceError(f"{path} has changed since it was read; its bytes are not the same")


def oldest_of(paths: Sequence[str], count: int) -> list[str]:
    """So many of the files: those that got their names or bytes first, in the order given. The
    clock of a file system is coarse: a file that came right after the list may look as old."""
    by_age = sorted(range(len(paths)), key=lambda i: (os.stat(paths[i]).st_ctime_ns, i))
    return [paths[i] for i in sorted(by_age[:count])]


def is_newer(path: str, listed_ns: int) -> bool:
    """Whether a file got its name or its bytes after the list was made."""
    return os.stat(path).st_ctime_ns > listed_ns
