"""Files that survive a crash: writing to disk, renaming, copying, with digests.

A file is durable when it and the folder that names it were synced. Every step here can be repeated.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash
    from pathlib import Path

PIECE_BYTES = 1 << 20


def make_folders(folder: Path) -> None:
    """Makes a folder and those above it, durably."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_file(path: Path) -> None:
    """Makes the bytes of a file durable, whoever wrote them."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def add_to_digest(digest: _Hash, file: int, start: int, end: int) -> None:
    """Adds the bytes of an open file to a digest; OSError if there are fewer."""
    while start < end:
        piece = os.pread(file, min(PIECE_BYTES, end - start), start)
        if not piece:
            raise OSError(f"{end - start:,} bytes fewer than were written")
        digest.update(piece)
        start += len(piece)


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_file_with(path: Path, size: int, digest: str) -> bool:
    """Whether the file is there with these bytes."""
    try:
        return path.stat().st_size == size and digest_of(path) == digest
    except FileNotFoundError:
        return False


def copy_start(source: Path, target: int, size: int) -> _Hash:
    """Copies the first bytes of a file into an open one and gives their digest; OSError if there
    are fewer."""
    digest = hashlib.sha256()
    with source.open("rb") as file:
        left = size
        while left:
            piece = file.read(min(PIECE_BYTES, left))
            if not piece:
                raise OSError(f"it has {size - left:,} bytes, and {size:,} were written")
            digest.update(piece)
            write_all(target, piece)
            left -= len(piece)
    return digest


def write_all(file: int, data: bytes | memoryview) -> None:
    """Writes all of the bytes: a single `os.write` may take only some."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
