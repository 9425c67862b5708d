"""A store on a file system of pyarrow: S3, Google Cloud Storage, or what fsspec knows.

An object appears when its upload ends. If an upload fails, what is left under the name is removed
as well as that can be done, and if it cannot, the checksum in the file tells. Nothing is renamed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from plait.checkpoints.store import (
    Entry,
    Lock,
    Missing,
    StoreFailed,
    check_length,
    check_path,
    check_range,
    failures_told,
)
from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArrowStore:
    """Files under `root` of a pyarrow file system."""

    exclusive = False

    def __init__(self, system: Any, root: str) -> None:
        self.system = system
        self.root = root.rstrip("/")

    def __repr__(self) -> str:
        return f"ArrowStore({self.system.type_name}, {self.root!r})"

    def place(self, path: str) -> str:
        return f"{self.root}/{check_path(path)}"

    def size(self, path: str) -> int:
        info = self.system.get_file_info(self.place(path))
        if not info.is_file:
            raise Missing(f"{self.place(path)} is not there")
        return int(info.size)

    def read(self, path: str, most: int) -> bytes:
        with failures_told("read", self.place(path)):
            size = self.size(path)
            check_length(path, size, most)
            return self.get(path, 0, size)

    def read_range(self, path: str, at: int, size: int) -> bytes:
        with failures_told("read", self.place(path)):
            check_range(path, at, size, self.size(path))
            return self.get(path, at, size)

    def get(self, path: str, at: int, size: int) -> bytes:
        if size == 0:
            return b""
        with self.system.open_input_file(self.place(path)) as file:
            data = bytes(file.read_at(size, at))
        if len(data) != size:
            raise StateError(f"{path} is damaged: it became shorter while it was read")
        return data

    def write(self, path: str, data: Sequence[bytes]) -> None:
        place = self.place(path)
        with failures_told("write", place):
            try:
                self.put(path, data)
            except BaseException:
                with contextlib.suppress(Exception):
                    self.system.delete_file(place)
                raise

    def put(self, path: str, data: Sequence[bytes]) -> None:
        place = self.place(path)
        if self.system.type_name not in ("s3", "gcs", "abfs"):
            self.system.create_dir(place.rpartition("/")[0], recursive=True)
        with self.system.open_output_stream(place) as file:
            for piece in data:
                file.write(piece)
        size, sent = self.size(path), sum(map(len, data))
        if size != sent:
            raise StoreFailed(f"cannot write {place}: {size:,} of {sent:,} bytes arrived")

    def create(self, path: str, data: bytes) -> bool:
        with failures_told("write", self.place(path)):
            if self.system.get_file_info(self.place(path)).is_file:
                return False
        self.write(path, [data])
        return True

    def list(self, folder: str) -> list[Entry]:
        from pyarrow import fs

        place = self.place(folder)
        with failures_told("list", place):
            selector = fs.FileSelector(place, recursive=True, allow_not_found=True)
            infos = self.system.get_file_info(selector)
        skip = len(self.root) + 1
        found = [
            Entry(path=info.path[skip:], size_bytes=int(info.size))
            for info in infos
            if info.is_file
        ]
        return sorted(found, key=lambda entry: entry.path)

    def delete(self, path: str) -> None:
        place = self.place(path)
        with failures_told("delete", place):
            try:
                self.system.delete_file(place)
            except OSError:
                if self.system.get_file_info(place).is_file:
                    raise

    def sweep(self, folder: str) -> None:
        """Nothing is left half written: an upload that did not end is no object."""

    def lock(self, path: str) -> Lock | None:
        return NoLock()


class NoLock:
    """Object stores have no locks: the claims alone decide."""

    def close(self) -> None: ...
