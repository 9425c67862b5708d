"""Objects under a URL of a store: put whole, copied within the store, read, listed, deleted.

Errors are SinkErrors that name the object without what may be secret in the URL.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

from plait.checkpoints.config import shown_url
from plait.checkpoints.store import open_store, short
from plait.errors import SinkError, StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE_BYTES = 1 << 20
FLAT = ("s3", "gcs", "abfs")
"""File systems of pyarrow that have no folders."""


class Bucket:
    """Objects by name under a URL."""

    def __init__(self, url: str) -> None:
        self.url = shown_url(url).rstrip("/")
        try:
            store: Any = open_store(url)
        except StateError as error:
            raise SinkError(f"Files: {error}") from None
        self.system, self.root = store.system, store.root

    def shown(self, name: str = "") -> str:
        return f"{self.url}/{name}" if name else self.url

    def put(self, name: str, path: Path, start: int = 0, end: int | None = None) -> str:
        """Bytes of a local file as an object; their digest. It is there as a whole or not."""
        digest = hashlib.sha256()
        size = (path.stat().st_size if end is None else end) - start
        with self.words("write", name):
            self.make_room(name)
            with path.open("rb") as file, self.system.open_output_stream(self.at(name)) as out:
                file.seek(start)
                left = size
                while left:
                    piece = file.read(min(PIECE_BYTES, left))
                    if not piece:
                        raise OSError(f"{left:,} bytes fewer than were written")
                    out.write(piece)
                    digest.update(piece)
                    left -= len(piece)
            if self.size(name) != size:
                raise OSError(f"{self.size(name)} of {size:,} bytes arrived")
        return digest.hexdigest()

    def copy(self, source: str, target: str) -> None:
        with self.words("write", target):
            self.make_room(target)
            self.system.copy_file(self.at(source), self.at(target))

    def size(self, name: str) -> int | None:
        """None: there is no such object."""
        with self.words("look at", name):
            info = self.system.get_file_info(self.at(name))
        return int(info.size) if info.is_file else None

    def digest(self, name: str) -> str:
        digest = hashlib.sha256()
        for piece in self.read(name):
            digest.update(piece)
        return digest.hexdigest()

    def is_object_with(self, name: str, size: int, digest: str) -> bool:
        return self.size(name) == size and self.digest(name) == digest

    def read(self, name: str) -> Iterator[bytes]:
        with self.words("read", name), self.system.open_input_stream(self.at(name)) as file:
            while piece := file.read(PIECE_BYTES):
                yield bytes(piece)

    def names(self, folder: str = "") -> list[str]:
        """All objects under a folder, by their names from the root."""
        from pyarrow import fs

        place = self.at(folder) if folder else self.root
        with self.words("list", folder):
            selector = fs.FileSelector(place, recursive=True, allow_not_found=True)
            infos = self.system.get_file_info(selector)
        skip = len(self.root) + 1
        return sorted(info.path[skip:] for info in infos if info.is_file)

    def delete(self, name: str) -> None:
        """It is gone, whether it was there or not."""
        with self.words("delete", name):
            try:
                self.system.delete_file(self.at(name))
            except OSError:
                if self.system.get_file_info(self.at(name)).is_file:
                    raise

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def make_room(self, name: str) -> None:
        if self.system.type_name not in FLAT:
            self.system.create_dir(self.at(name).rpartition("/")[0], recursive=True)

    @contextlib.contextmanager
    def words(self, verb: str, name: str) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot {verb} {self.shown(name)}: {short(error)}") from None
