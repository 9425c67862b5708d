"""The journal: facts are kept before anything is done about them.

A folder with one snapshot and the facts since, each in a file whose name has the same number. A
record is its length, a checksum of the length, a checksum of its bytes, and the bytes. A record
that was being written when the power went (the torn tail) is cut off: nothing was done about it
yet. Damage before the end is never passed over: the journal is refused, in words.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from plait.coordinator.journal.codec import decode, encode
from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.coordinator.machine.state import State
    from plait.coordinator.messages.events import Fact

HEADER = struct.Struct("<III")
SNAPSHOT_BYTES = 4_000_000
"""A snapshot is taken when the facts since the last one are so many bytes, or as many as it has."""


def frame(payload: bytes) -> bytes:
    length = struct.pack("<I", len(payload))
    return HEADER.pack(len(payload), zlib.crc32(length), zlib.crc32(payload)) + payload


def unframe(data: bytes, name: str = "the journal") -> tuple[list[bytes], int]:
    """The records, and how many bytes of them are whole. Raises for damage before the end."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        rest = data[at:] if len(data) - at < HEADER.size else b""
        if rest or not data[at : at + HEADER.size].strip(b"\0"):
            if data[at:].strip(b"\0") and not rest:
                raise StateError(f"{name} is damaged at byte {at}: a record is gone")
            break
        length, length_sum, payload_sum = HEADER.unpack_from(data, at)
        if zlib.crc32(struct.pack("<I", length)) != length_sum:
            raise StateError(
                f"{name} is damaged at byte {at}: the length of a record does not match its "
                "checksum. Restore the file from a copy; nothing after this byte can be trusted"
            )
        end = at + HEADER.size + length
        if end > len(data):
            break
        payload = data[at + HEADER.size : end]
        if zlib.crc32(payload) != payload_sum:
            if end == len(data):
                break
            raise StateError(
                f"{name} is damaged at byte {at}: a record does not match its checksum, and "
                "whole records follow. Restore the file from a copy"
            )
        found.append(payload)
        at = end
    return found, at


class Journal(Protocol):
    """Where facts are kept."""

    def load(self) -> tuple[State | None, list[Fact]]:
        """The last snapshot and the facts since."""

    def append(self, facts: Sequence[Fact]) -> None:
        """Returns when the facts are safe. An error: none of them is written, and later ones may
        be; after a JournalBroken nothing is known, and the journal has to be loaded again."""

    def wants_snapshot(self, calm: bool) -> bool:
        """Whether enough has come since the last one. `calm`: the state is small now."""

    def snapshot(self, state: State) -> None:
        """The state after all facts so far; they are not needed any more. An error: it was not
        taken, and the facts are still there; JournalBroken as above."""

    def close(self) -> None: ...


class JournalBroken(StateError):
    """What is in the journal is not known any more: its owner has to load it again."""


class FileJournal:
    """A journal in a folder of its own. One process at a time may have it open."""

    def __init__(self, folder: str | Path, *, sync: bool = True) -> None:
        self.folder = Path(folder)
        self.sync = sync
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self.lock)
            raise StateError(
                f"the journal in {self.folder} is in use by another coordinator"
            ) from None
        self.number = max(self.numbers("snapshot"), default=0)
        self.since = 0
        self.base = 0
        self.file = -1

    def numbers(self, kind: str) -> list[int]:
        return [int(path.name.split("-")[1]) for path in self.folder.glob(f"{kind}-[0-9]*")]

    def path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number}"

    def load(self) -> tuple[State | None, list[Fact]]:
        state: State | None = None
        if self.number:
            path = self.path("snapshot", self.number)
            data = path.read_bytes()
            records, whole = unframe(data, str(path))
            if len(records) != 1 or whole != len(data):
                raise StateError(f"{path} is damaged: a snapshot must be one whole record")
            state = decode(records[0])
            self.base = len(data)
        path = self.path("facts", self.number)
        data = path.read_bytes() if path.exists() else b""
        records, whole = unframe(data, str(path))
        self.open(whole)
        self.since = whole
        return state, [decode(record) for record in records]

    def open(self, length: int) -> None:
        """The file of facts, cut to its whole records."""
        path = self.path("facts", self.number)
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self.file, length)
        self.flush(self.file)
        self.flush_folder()

    def append(self, facts: Sequence[Fact]) -> None:
        if self.file < 0:
            raise StateError("load the journal before writing to it")
        data = b"".join(frame(encode(fact)) for fact in facts)
        try:
            write_all(self.file, data)
        except OSError:
            self.cut_back()
            raise
        try:
            self.flush(self.file)
        except OSError as error:
            raise JournalBroken(f"{self.folder} cannot be flushed: {error}") from error
        self.since += len(data)

    def cut_back(self) -> None:
        """Takes a part of a record away, so that the next one follows a whole one."""
        try:
            os.ftruncate(self.file, self.since)
        except OSError as error:
            raise JournalBroken(f"{self.folder} cannot be cut to its records: {error}") from error

    def wants_snapshot(self, calm: bool) -> bool:
        return self.since > max(SNAPSHOT_BYTES, self.base) * (1 if calm else 8)

    def snapshot(self, state: State) -> None:
        data = frame(encode(state))
        fresh = self.folder / "fresh"
        try:
            self.write_file(fresh, data)
            fresh.rename(self.path("snapshot", self.number + 1))
        except OSError:
            # Tried again when as many facts have come once more.
            self.base = max(self.base, self.since)
            fresh.unlink(missing_ok=True)
            raise
        try:
            self.begin_anew(len(data))
        except OSError as error:
            raise JournalBroken(f"{self.folder} cannot go on after a snapshot: {error}") from error

    def write_file(self, path: Path, data: bytes) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            write_all(file, data)
            self.flush(file)
        finally:
            os.close(file)

    def begin_anew(self, length: int) -> None:
        """A snapshot is there: the facts before it go, later ones have a file of their own."""
        self.flush_folder()
        os.close(self.file)
        old, self.number = self.number, self.number + 1
        self.base, self.since = length, 0
        self.open(0)
        for kind in ("facts", "snapshot"):
            self.path(kind, old).unlink(missing_ok=True)

    def flush(self, file: int) -> None:
        if self.sync:
            os.fsync(file)

    def flush_folder(self) -> None:
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            self.flush(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


class MemoryJournal:
    """A journal that lives as long as its process: for a job without a coordinator to restart, and
    for the simulator, which restarts coordinators from these very bytes."""

    def __init__(self, saved: bytes = b"", facts: bytes = b"") -> None:
        self.saved = saved
        self.facts = bytearray(facts)

    def load(self) -> tuple[State | None, list[Fact]]:
        state = decode(unframe(self.saved)[0][0]) if self.saved else None
        records, whole = unframe(bytes(self.facts))
        del self.facts[whole:]
        return state, [decode(record) for record in records]

    def append(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self.facts += frame(encode(fact))

    def wants_snapshot(self, calm: bool) -> bool:
        return len(self.facts) > max(SNAPSHOT_BYTES, len(self.saved)) * (1 if calm else 8)

    def snapshot(self, state: State) -> None:
        self.saved = frame(encode(state))
        self.facts.clear()

    def close(self) -> None:
        pass
