"""Sinks that deliver exactly once, driven as a job with checkpoints does and crashed anywhere.

The model: row i is i, and a checkpoint remembers how many rows were before it. After every step the
visible rows are those before a boundary, in order, and at the end each row is there once. A crash
drops the writer without a word, and cuts every file to what was synced, or somewhat more; system
calls fail in the middle of `prepare`, `commit` and `open`.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.exactly_once_sqlite import Numbers
from plait.connectors.base import Resume, Sink, Writer
from plait.connectors.files import Files
from plait.connectors.opening import open_writer
from plait.errors import SinkError
from plait.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MORE = settings(max_examples=3 * settings().max_examples)

NUMBERS = Schema.of({"n": int, "square": int})
LINES = Schema.of({"line": str})


def batch_of(schema: Schema, first: int, end: int) -> Any:
    numbers = range(first, end)
    if schema is LINES:
        rows: list[dict[str, Any]] = [{"line": str(n)} for n in numbers]
    else:
        rows = [{"n": n, "square": n * n} for n in numbers]
    return pa.RecordBatch.from_pylist(rows, schema=schema.to_arrow())


class Disk:
    """What was synced of every file, and system calls that fail."""

    def __init__(self) -> None:
        self.synced: dict[int, int] = {}
        self.fail_at: int | None = None

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        if self.fail_at is not None:
            self.fail_at -= 1
            if self.fail_at < 0:
                self.fail_at = None
                raise OSError(errno.EIO, "Input/output error")
        return function(*given)

    @contextmanager
    def watch(self) -> Iterator[None]:
        fsync, rename = os.fsync, os.replace

        def fsync_noted(file: int) -> None:
            self.call(fsync, file)
            stat = os.fstat(file)
            self.synced[stat.st_ino] = stat.st_size

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", fsync_noted)
            patch.setattr(os, "replace", lambda old, new: self.call(rename, old, new))
            yield

    def cut(self, folder: Path, kept: float) -> None:
        """The power fails: of bytes that were not synced, only some are there."""
        for path in folder.rglob("*"):
            if path.is_file():
                stat = path.stat()
                synced = min(self.synced.get(stat.st_ino, 0), stat.st_size)
                size = synced + int((stat.st_size - synced) * kept)
                os.truncate(path, size)
                self.synced[stat.st_ino] = size


@dataclass
class Sealed:
    """A checkpoint: its manifest, as far as the sink goes."""

    boundary: int
    rows: int
    position: Any


@dataclass
class Life:
    """A job's life over all its runs."""

    sink: Sink
    folder: Path
    schema: Schema
    visible: Callable[[], list[int]]
    disk: Disk
    whole_at_commit: bool
    """Whether what is committed is visible at once."""
    sealed: list[Sealed] = field(default_factory=lambda: [Sealed(0, 0, None)])
    attempt: int = 0
    epoch: int = 0
    rows: int = 0
    committed: int = 0
    boundaries: set[int] = field(default_factory=lambda: {0})
    """How many rows were before each boundary there was."""
    writer: Writer | None = None

    def open(self) -> None:
        while self.writer is None:
            self.attempt += 1
            try:
                at = self.recover()
                resume = Resume(at.position, at.boundary, f"abc-{self.attempt}")
                self.writer = open_writer(self.sink, self.schema, "sink", resume)
            except (SinkError, sqlite3.OperationalError) as error:
                if "rror" not in str(error) and "interrupted" not in str(error):
                    raise
                continue  # the disk failed: once more
            self.rows, self.epoch = at.rows, at.boundary
            self.committed = at.rows

    def recover(self) -> Sealed:
        """The newest checkpoint that counts."""
        if self.sink.kind == "decider":
            delivered = self.sink.survey(self.sealed[-1].position)
            boundary = delivered.boundary if delivered is not None else 0
            self.sealed = [one for one in self.sealed if one.boundary <= boundary]
            assert self.sealed[-1].boundary == boundary
        return self.sealed[-1]

    def write(self, count: int) -> None:
        assert self.writer is not None
        self.writer.write(batch_of(self.schema, self.rows, self.rows + count))
        self.rows += count
        self.epoch += 1

    def checkpoint(self, until: str, during: int, again: bool) -> bool:
        """Up to a step; false if the run ends with it."""
        writer = self.writer
        assert writer is not None
        self.epoch += 1
        boundary, rows = self.epoch, self.rows
        writer.mark(boundary)
        self.boundaries.add(rows)
        if during:
            self.write(during)
        if until == "mark":
            return True
        try:
            position = writer.prepare(boundary)
        except SinkError:
            return True  # given up; the next one has its rows
        if until == "prepare":
            return True
        self.sealed.append(Sealed(boundary, rows, msgpack.unpackb(msgpack.packb(position))))
        if until == "seal":
            return False
        for _ in range(1 + again):
            try:
                writer.commit(boundary)
            except (SinkError, sqlite3.OperationalError):
                try:
                    writer.commit(boundary)
                except (SinkError, sqlite3.OperationalError):
                    return False
        self.committed = rows
        return True

    def crash(self, kept: float) -> None:
        if isinstance(database := getattr(self.writer, "database", None), sqlite3.Connection):
            database.close()
        self.writer = None
        self.disk.cut(self.folder, kept)

    def check(self) -> None:
        found = self.visible()
        assert found == list(range(len(found)))
        assert len(found) in self.boundaries
        assert len(found) <= self.sealed[-1].rows
        if self.whole_at_commit:
            assert len(found) >= self.committed


STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 5)),
    st.tuples(
        st.just("checkpoint"),
        st.integers(0, 4),
        st.sampled_from(["mark", "prepare", "seal", "commit", "commit", "commit"]),
        st.integers(0, 3),
        st.booleans(),
        st.none() | st.integers(0, 6),
    ),
    st.tuples(st.just("crash"), st.sampled_from([0.0, 0.5, 1.0]), st.none() | st.integers(0, 3)),
    st.tuples(st.just("abort")),
    st.tuples(st.just("stop")),
)


def live(life: Life, steps: list[tuple[Any, ...]]) -> None:
    with life.disk.watch():
        for step in steps:
            life.open()
            match step:
                case ("write", count):
                    life.write(count)
                case ("checkpoint", before, until, during, again, fail_at):
                    if before:
                        life.write(before)
                    life.disk.fail_at = fail_at
                    goes_on = life.checkpoint(until, during, again)
                    life.disk.fail_at = None
                    if not goes_on:
                        life.crash(0.5)
                case ("crash", kept, fail_at):
                    life.crash(kept)
                    life.check()
                    life.disk.fail_at = fail_at
                    life.open()
                    life.disk.fail_at = None
                case ("abort",):
                    assert life.writer is not None
                    life.writer.abort()
                    life.writer = None
                case ("stop",):
                    finish(life)
            life.check()
        life.open()
        finish(life)
        life.check()
        assert life.visible() == list(range(life.rows))
        # A start from the last checkpoint, when all is done, changes nothing.
        life.open()
        finish(life)
        assert life.visible() == list(range(life.rows))


def finish(life: Life) -> None:
    assert life.writer is not None
    assert life.checkpoint("commit", 0, again=False)
    life.writer.close()
    life.writer = None


TARGETS: list[tuple[str, dict[str, Any]]] = [
    ("out", {"format": "jsonl"}),
    ("out", {"format": "csv"}),
    ("out", {"format": "parquet"}),
    ("out", {"format": "text"}),
    ("out", {"format": "jsonl", "roll": "0.2kB"}),
    ("out", {"format": "csv", "roll": "0.1kB"}),
    ("out", {"format": "parquet", "roll": "1kB"}),
    ("out", {"format": "text", "roll": "0.02kB"}),
    ("out", {"format": "jsonl", "roll": "1ms"}),
    ("deep/out.jsonl", {}),
    ("out.csv", {}),
    ("out.parquet", {}),
    ("out.txt", {"format": "text"}),
    ("out.csv.gz", {}),
    ("out.jsonl.xz", {}),
]


@pytest.mark.parametrize(("target", "options"), TARGETS, ids=str)
@MORE
@given(steps=st.lists(STEP, min_size=1, max_size=14))
def test_files(target: str, options: dict[str, Any], steps: list[tuple[Any, ...]]) -> None:
    schema = LINES if options.get("format") == "text" else NUMBERS
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / target

        def visible() -> list[int]:
            if not path.exists() or (path.is_dir() and not visible_files(path)):
                return []
            own = None if schema is LINES else schema
            reader = Files(path, options.get("format"), own).open()
            found: list[int] = []
            while (batch := reader.poll(1000)) is not None:
                found += [int(value) for value in batch.column(0).to_pylist()]
            reader.close()
            return found

        whole = target == "out" and "roll" not in options
        life = Life(Files(path, **options), Path(name), schema, visible, Disk(), whole)
        live(life, steps)
        assert hidden_files(Path(name)) == []


def visible_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def hidden_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if path.is_file()]


@MORE
@given(steps=st.lists(STEP, min_size=1, max_size=14))
def test_a_decider(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "numbers.db"

        def visible() -> list[int]:
            database = sqlite3.connect(path)
            database.executescript("CREATE TABLE IF NOT EXISTS numbers (n INTEGER, square INTEGER)")
            found = [n for (n,) in database.execute("SELECT n FROM numbers ORDER BY rowid")]
            database.close()
            return found

        disk = Interrupting()
        life = Life(Numbers(str(path)), Path(name) / "nothing", NUMBERS, visible, disk, True)
        disk.life = life
        live(life, steps)


class Interrupting(Disk):
    """Fails in the middle of a transaction."""

    life: Life | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        writer = self.life.writer if self.life is not None else None
        database = getattr(writer, "database", None)
        if name == "fail_at" and isinstance(database, sqlite3.Connection):
            if value is None:
                database.set_progress_handler(None, 0)
            else:
                calls = iter(range(value * 7 + 1))
                database.set_progress_handler(lambda: next(calls, None) is None, 3)
