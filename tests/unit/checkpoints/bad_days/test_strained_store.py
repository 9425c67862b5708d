"""Runs on a real file system that is full, read-only or slow for a while: what cannot be saved is
given up in words, the job runs on, nothing is visible that is not saved, and nothing is lost."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

import plait
from plait.checkpoints.job_folder import JobFolder
from plait.checkpoints.store import open_store
from plait.testing.crashes import Durable, abandon
from tests.unit.checkpoints.bad_days.test_bad_days import (
    KEYS,
    RIGHT,
    feed_of,
    job_of,
    push,
    rows_of,
    saved_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Strained(LocalFileSystem):  # type: ignore[misc]
    """A folder of this machine with little space, or slow, or read-only."""

    protocol = "strained"
    cachable = False
    left: ClassVar[int | None] = None
    """The bytes that can still be written; None: any number."""
    read_only: ClassVar[bool] = False
    open_gate: ClassVar[threading.Event]
    """While it is not set, what writes waits."""
    waits: ClassVar[threading.Event]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return str(path).removeprefix("strained://").rstrip("/")

    def _open(self, path: str, mode: str = "rb", **given: Any) -> Any:
        if "w" not in mode:
            return super()._open(path, mode, **given)
        if Strained.read_only:
            raise OSError(errno.EROFS, "Read-only file system", path)
        return StrainedFile(path)


class StrainedFile:
    """A file that is written."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "wb")  # noqa: SIM115
        self.mode = "wb"

    @property
    def closed(self) -> bool:
        return self.file.closed

    def write(self, data: Any) -> int:
        if not Strained.open_gate.is_set():
            Strained.waits.set()
            Strained.open_gate.wait()
        if Strained.left is not None:
            some = min(len(data), Strained.left)
            Strained.left -= some
            self.file.write(bytes(data)[:some])
            if some < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return some
        return self.file.write(bytes(data))

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()


@pytest.fixture(autouse=True)
def strained() -> Iterator[None]:
    fsspec.register_implementation("strained", Strained, clobber=True)
    Strained.left, Strained.read_only = None, False
    Strained.open_gate, Strained.waits = threading.Event(), threading.Event()
    Strained.open_gate.set()
    yield
    Strained.open_gate.set()


def config(tmp_path: Path) -> plait.Checkpoint:
    return plait.Checkpoint(f"strained://{tmp_path}/ckpt", every="1h")


@pytest.mark.parametrize("kind", ["follower", "decider"])
@pytest.mark.parametrize("left", [0, 1, 200, 700, 1100, 1500])
def test_a_store_that_is_full(tmp_path: Path, kind: Any, left: int) -> None:
    """It is full after the first byte of a chunk, in a part, or in a manifest."""
    sink = Durable("counts", kind)
    feed = feed_of()
    running = plait.start(job_of(feed, sink), checkpoint=config(tmp_path))
    saved = saved_of(running)
    push(running, feed, *KEYS[:2])
    assert saved.take() is not None
    Strained.left = left
    for key in KEYS[2:4]:
        push(running, feed, key)
        saved.try_to_take()
    assert saved.stats.failed >= 1
    assert "No space left on device" in saved.stats.error
    assert saved.failure is None
    shown = rows_of(sink)
    assert shown == RIGHT[: len(shown)]
    Strained.left = None
    abandon(running)
    folder = JobFolder(open_store(config(tmp_path).url), "clicks")
    assert folder.manifests()[0].number == saved.stats.last_number
    run_to_end(tmp_path, sink)


def test_there_is_space_again(tmp_path: Path) -> None:
    sink = Durable("counts")
    feed = feed_of()
    running = plait.start(job_of(feed, sink), checkpoint=config(tmp_path))
    saved = saved_of(running)
    push(running, feed, *KEYS[:3])
    Strained.left = 10
    saved.try_to_take()
    assert rows_of(sink) == []
    Strained.left = None
    push(running, feed, KEYS[3])
    assert saved.take() is not None
    assert rows_of(sink) == RIGHT[:4]
    abandon(running)
    run_to_end(tmp_path, sink)


def test_a_store_that_becomes_read_only(tmp_path: Path) -> None:
    sink = Durable("counts")
    feed = feed_of()
    running = plait.start(job_of(feed, sink), checkpoint=config(tmp_path))
    saved = saved_of(running)
    push(running, feed, *KEYS[:2])
    assert saved.take() is not None
    Strained.read_only = True
    push(running, feed, KEYS[2])
    saved.try_to_take()
    assert "Read-only file system" in saved.stats.error
    assert rows_of(sink) == RIGHT[:2]
    Strained.read_only = False
    abandon(running)
    Strained.read_only = True
    with pytest.raises(plait.PlaitError, match="Read-only file system"):
        plait.run(job_of(feed_of(*KEYS), sink), checkpoint=config(tmp_path))
    assert rows_of(sink) == RIGHT[:2]
    Strained.read_only = False
    run_to_end(tmp_path, sink)


def test_the_job_goes_on_while_a_slow_store_writes(tmp_path: Path) -> None:
    """What comes meanwhile is worked on, and is not in the checkpoint."""
    sink = Durable("counts")
    feed = feed_of()
    running = plait.start(job_of(feed, sink), checkpoint=config(tmp_path))
    saved = saved_of(running)
    push(running, feed, *KEYS[:2])
    Strained.open_gate.clear()
    taking = threading.Thread(target=saved.take)
    taking.start()
    try:
        assert Strained.waits.wait(60.0)
        push(running, feed, *KEYS[2:4])
        while running.engine.records_delivered() < 4:
            running.engine.wait(0.001)
        assert taking.is_alive()
        assert rows_of(sink) == []
    finally:
        Strained.open_gate.set()
        taking.join()
    assert rows_of(sink) == RIGHT[:2]
    abandon(running)
    run_to_end(tmp_path, sink)


def run_to_end(tmp_path: Path, sink: Durable) -> None:
    feed = feed_of(*KEYS)
    feed.close()
    plait.run(job_of(feed, sink), checkpoint=config(tmp_path))
    assert rows_of(sink) == RIGHT
