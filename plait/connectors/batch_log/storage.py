"""The files of a batch log in a folder: created once, replaced whole, read with a size limit.

A file is created by writing it under a random name and linking it to its own: the link fails if
the name is taken, so of two writers one wins, and nobody sees half a file. This works in local
folders and on NFS; object stores have no such link and are refused in words.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from plait.connectors.batch_log.layout import (
    BATCHES,
    END,
    LOG,
    MOST_BATCH_FILE_BYTES,
    READERS,
    SEGMENTS,
    BatchFile,
    LogFile,
    ReaderFile,
    batch_name,
    damaged,
    decode_batch,
    decode_log,
    decode_reader,
    encode,
    first_name,
    newest_run,
    number_of_batch,
    number_of_first,
    number_of_segment,
    plain_of,
    reader_name,
)
from plait.connectors.durable import make_folders, sync_folder, write_all
from plait.errors import StateError


class LogFolder:
    """The folder of a log; it need not be there yet. Every method may be called by any process."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path)
        if "://" in text:
            raise StateError(
                f"{text}: a batch log is a folder that all its readers and writers see, because"
                " object stores cannot create a file exactly once; use a shared folder, or Kafka"
            )
        self.root = Path(text)
        self.segments = self.root / SEGMENTS
        self.batches = self.root / BATCHES
        self.readers = self.root / READERS

    def __str__(self) -> str:
        return str(self.root)

    def make(self) -> None:
        for folder in (self.segments, self.batches, self.readers):
            make_folders(folder)

    def create(self, path: Path, data: bytes) -> bool:
        """Makes a file, durably; False: it is there already."""
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        put(hidden, data)
        try:
            os.link(hidden, path)
        except FileExistsError:
            return False
        finally:
            hidden.unlink()
        sync_folder(path.parent)
        return True

    def replace(self, path: Path, data: bytes) -> None:
        """Puts a file in place of another, or of none."""
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        put(hidden, data)
        os.replace(hidden, path)
        sync_folder(path.parent)

    def read_log(self) -> LogFile | None:
        """What the log is; None: there is none yet."""
        path = self.root / LOG
        data = read_small(path)
        return None if data is None else decode_log(data, path)

    def create_log(self, log: LogFile) -> LogFile:
        """The log as it is there: this one, or one that another process was quicker to make."""
        self.make()
        self.create(self.root / LOG, encode(log))
        there = self.read_log()
        assert there is not None
        return there

    def replace_log(self, log: LogFile) -> None:
        self.replace(self.root / LOG, encode(log))

    def batch_path(self, number: int) -> Path:
        return self.batches / batch_name(number)

    def batch_data(self, number: int) -> bytes | None:
        """The bytes of a batch file; None: it is not there."""
        return read_small(self.batch_path(number))

    def read_batch(self, number: int) -> BatchFile | None:
        data = self.batch_data(number)
        if data is None:
            return None
        path = self.batch_path(number)
        batch = decode_batch(data, path)
        if batch.number != number:
            raise damaged(path, f"it says that it is batch {batch.number}")
        return batch

    def listing(self) -> tuple[list[int], list[int]]:
        """The numbers of all batch files, and those with which the log was said to begin."""
        try:
            names = os.listdir(self.batches)
        except FileNotFoundError:
            return [], []
        numbers = (number_of_batch(name) for name in names)
        firsts = (number_of_first(name) for name in names)
        return sorted(n for n in numbers if n is not None), sorted(
            n for n in firsts if n is not None
        )

    def numbers(self) -> list[int]:
        """Of the batches that count."""
        numbers, firsts = self.listing()
        first = firsts[-1] if firsts else 0
        return [number for number in numbers if number >= first]

    def begin_at(self, number: int) -> None:
        """Nothing before this batch counts any more; it never goes back."""
        _, before = self.listing()
        self.create(self.batches / first_name(number), b"")
        for old in before:
            if old < number:
                (self.batches / first_name(old)).unlink(missing_ok=True)

    def range(self) -> tuple[int, int] | None:
        """The oldest and the newest batch; None: there is none."""
        return newest_run(self.numbers())

    def segment_times(self) -> dict[str, float]:
        """When each segment was last written."""
        found: dict[str, float] = {}
        with os.scandir(self.segments) as entries:
            for entry in entries:
                if number_of_segment(entry.name) is not None:
                    try:
                        found[entry.name] = entry.stat().st_mtime
                    except FileNotFoundError:  # another reader has removed it
                        continue
        return found

    def read_readers(self) -> list[ReaderFile]:
        """Of all readers that have said how far they are."""
        try:
            names = sorted(os.listdir(self.readers))
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            path = self.readers / name
            if name.startswith(".") or path.suffix != ".json":
                continue
            data = read_small(path)
            if data is not None:
                found.append(decode_reader(data, path))
        return found

    def reader_path(self, name: str) -> Path:
        return self.readers / f"{reader_name(name)}.json"

    def put_reader(self, reader: ReaderFile) -> None:
        self.replace(self.reader_path(reader.name), encode(reader))

    def read_end(self) -> int | None:
        """The number of the last batch, if the log has ended; -1: it ended without one."""
        path = self.root / END
        data = read_small(path)
        if data is None:
            return None
        last = plain_of(data, path).get("last")
        if not isinstance(last, int):
            raise damaged(path, "it has no last batch")
        return last


def put(path: Path, data: bytes) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        write_all(opened, data)
        os.fsync(opened)
    finally:
        os.close(opened)


def read_small(path: Path) -> bytes | None:
    """The bytes of a file that is not there to hold much; None: there is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BATCH_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MOST_BATCH_FILE_BYTES:
        raise damaged(path, f"it has more than {MOST_BATCH_FILE_BYTES:,} bytes")
    return data
