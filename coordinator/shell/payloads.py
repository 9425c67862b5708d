"""The payloads of jobs as files beside the journal.

A payload is a list of parts: the pickled job, then the buffers of the tables in it, as they are.
It may be larger than the memory that the coordinator should use, so it is written part by part and
read by mapping the file. The rule: a payload is there as long as its job may need new nodes, also
for a coordinator that was restarted, and no longer.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING, Any

import msgpack

from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNCLAIMED_S = 600.0
"""A payload whose job was never submitted is kept so long."""


class PayloadFiles:
    """Payloads by key, in a folder of their own. May be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        if not key.isalnum():
            raise StateError(f"{key!r} is not the key of a payload")
        return self.folder / key

    def write(self, key: str, parts: Sequence[Any]) -> None:
        """Returns when the payload is safe. Written again under its key, it is the same one."""
        views = [memoryview(part).cast("B") for part in parts]
        head: bytes = msgpack.packb([len(view) for view in views])
        fresh = self.path(key).with_suffix(".part")
        with fresh.open("wb", buffering=0) as file:
            os.fchmod(file.fileno(), 0o600)
            for view in (memoryview(len(head).to_bytes(8, "little")), memoryview(head), *views):
                while view:
                    view = view[file.write(view) :]
            os.fsync(file.fileno())
        fresh.replace(self.path(key))

    def read(self, key: str) -> list[memoryview]:
        """The parts, mapped from the file: they take memory only where they are read."""
        try:
            with self.path(key).open("rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        except OSError as error:
            raise StateError(f"the payload of the job is gone: {error}") from error
        at = 8 + int.from_bytes(data[:8], "little")
        parts = []
        for length in msgpack.unpackb(data[8:at]):
            parts.append(data[at : at + length])
            at += length
        return parts

    def retain(self, keys: frozenset[str]) -> None:
        """Removes all others, but not those that may be about to be submitted."""
        for path in self.folder.iterdir():
            if path.name in keys:
                continue
            try:
                claimed = path.stat().st_mtime == 0.0
                if claimed or time.time() - path.stat().st_mtime > UNCLAIMED_S:
                    path.unlink()
            except FileNotFoundError:
                continue
        for key in keys:
            try:
                os.utime(self.path(key), (0, 0))
            except (FileNotFoundError, StateError):
                continue  # of a gateway that needs no payload
