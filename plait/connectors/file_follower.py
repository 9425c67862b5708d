"""`Files` as a sink of a job with `checkpoint=`: each row is in the visible files exactly once.

Rows go to a hidden log (`HiddenLog`), which has a length for every boundary. `mark` notes it, and
ends the log if a file is due; `prepare` makes it durable and encodes what ended; `commit` gives the
files that ended their names. All that a checkpoint needs is in the position that `prepare` returns:

    {"next": 3,                                  # the number of the next file
     "ready": [{"hidden", "target", "size", "digest"}],          # to be named by commit
     "log": {"hidden", "size", "digest", "number", "rows", "since"} or None,
     "ours": [digest]}                           # of the file that a stopped run left

A run that goes on from a position names what is ready, which may have been done before, and copies
the log up to its length into one of its own: an earlier run that still lives cannot write into it.
Files that no position names are removed; those that the last safe one names stay until there is
a newer one. Anything that should be there and is not is an error.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Resume, Writer
from plait.connectors.durable import (
    digest_of,
    is_file_with,
    make_folders,
    sync_file,
    sync_folder,
)
from plait.connectors.hidden_log import HiddenLog, log_digest_of
from plait.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.connectors.file_targets import Roll, Targets
    from plait.connectors.formats.text_files import FileOptions
    from plait.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Ready:
    """A hidden file that only needs its name."""

    hidden: str
    target: str
    size: int
    digest: str

    def plain(self) -> dict[str, Any]:
        return {
            "hidden": self.hidden,
            "target": self.target,
            "size": self.size,
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True)
class Marked:
    """How things were at a boundary."""

    boundary: int
    ended: tuple[HiddenLog, ...]
    log: HiddenLog | None
    size: int
    rows: int
    next: int
    written: int
    """Rows of the run until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the files look like."""

    format: str
    schema: Schema
    compression: str
    options: FileOptions
    roll: Roll
    overwrite: bool


class FileFollower(Writer):
    """Writes files exactly once. `close` and `abort` return the path of the file or folder."""

    def __init__(self, targets: Targets, shape: Shape, resume: Resume) -> None:
        self.targets = targets
        self.folder = targets.folder
        self.shape = shape
        self.lock = threading.Lock()
        """Of what both `mark` and `prepare` change."""
        self.next = 0
        self.log: HiddenLog | None = None
        self.ended: list[HiddenLog] = []
        """Logs that get no more rows and are not ready yet."""
        self.ready: list[Ready] = []
        self.replaced: list[str] = []
        """Hidden files that the next safe position does not need."""
        self.kept: list[set[str]] = [set()]
        """What the last safe position names, and those prepared since."""
        self.ours: set[str] = set()
        """Digests of what an earlier run of the job published under the target's name."""
        self.marked: Marked | None = None
        self.prepared: Marked | None = None
        self.boundary = resume.boundary
        """Before which all is published."""
        self.written = self.committed = 0
        self.sweep = shape.overwrite
        """Whether parts of another job are still to be removed."""
        self.broken: Exception | None = None
        with self.in_words("cannot be written"):
            make_folders(self.folder)
            if resume.position is None:
                self.refuse_existing()
            else:
                self.restore(resume.position)
            self.remove_leftovers()
            if targets.single and self.log is None:
                self.log = self.new_log().begin()

    def refuse_existing(self) -> None:
        path = self.folder / self.targets.final(0)
        if self.targets.single and path.is_dir():
            raise SinkError(f"{path} is a folder")
        if self.shape.overwrite:
            return
        there = [path.name] if self.targets.single and path.exists() else []
        there += self.targets.parts_from(0)
        if there:
            raise SinkError(
                f"{self.folder / there[0]} exists already; remove it or give overwrite=True"
            )

    # From a position

    def restore(self, position: Any) -> None:
        """Makes what is ready visible, takes over the log, and refuses what should not be there."""
        self.next = int(position["next"])
        self.ours = set(position["ours"])
        log = position["log"]
        self.kept = [{ready["hidden"] for ready in position["ready"]} | name_of_log(log)]
        for plain in position["ready"]:
            self.check(Ready(**plain))
            self.publish(Ready(**plain))
        sync_folder(self.folder)
        if log is not None:
            self.take_over(log)
        unknown = self.targets.parts_from(self.next)
        if unknown and not self.shape.overwrite:
            raise SinkError(
                f"{self.folder / unknown[0]} is not of the checkpoint that the job goes on from;"
                " remove it or give overwrite=True"
            )
        self.remove(unknown)

    def take_over(self, log: dict[str, Any]) -> None:
        """Goes on with the log of an earlier run. One that was closed, at its last boundary, has
        become a file already."""
        target = self.folder / self.targets.final(log["number"])
        hidden = self.folder / log["hidden"]
        size, digest = int(log["size"]), str(log["digest"])
        parquet = self.shape.format == "parquet"
        is_there = (
            log_digest_of(target) == digest if parquet else is_file_with(target, size, digest)
        )
        if is_there:
            self.ours = {digest_of(target)}
            self.replaced.append(log["hidden"])
            if not self.targets.single:
                return
        elif not hidden.exists():
            raise SinkError(
                f"{hidden} is gone, with {log['rows']:,} rows that the checkpoint counts as"
                f" written, and {target} does not have them"
            )
        self.log = self.new_log(log["number"])
        self.log.since = log["since"]
        if is_there and parquet:
            self.log.copy_rows(target)
            return
        source = target if is_there else hidden
        try:
            found = self.log.copy(source, size)
        except OSError as error:
            raise SinkError(f"{source} is damaged: {error}") from None
        if found != digest:
            raise SinkError(f"{source} is damaged: its bytes are not those that were written")
        self.log.rows = log["rows"]
        self.replaced.append(log["hidden"])

    def remove_leftovers(self) -> None:
        needed = self.kept[0]
        self.remove([name for name in self.targets.left_by_earlier_runs() if name not in needed])

    def remove(self, names: list[str]) -> None:
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    # Rows and boundaries, by the workers

    def new_log(self, number: int | None = None) -> HiddenLog:
        if number is None:
            number, self.next = self.next, self.next + 1
        shape = self.shape
        path = self.folder / self.targets.hidden(number, "log")
        try:
            return HiddenLog(
                path,
                number,
                shape.format,
                shape.schema,
                compression=shape.compression,
                options=shape.options,
            )
        except FileExistsError:
            raise SinkError(
                f"{self.targets.shown()}: another sink of the job writes there"
            ) from None

    def write(self, batch: Any) -> None:
        with self.in_words("cannot be written", breaks=True):
            if self.log is None:
                self.log = self.new_log().begin()
            self.log.write(batch)
            self.written += int(batch.num_rows)

    def mark(self, boundary: int) -> None:
        with self.in_words("cannot be written", breaks=True):
            log = self.log
            if log is not None:
                log.end_interval()
                age_s = time.time() - log.since
                due = log.rows > 0 and self.shape.roll.is_due(log.size, age_s)
                if due and not self.targets.single:
                    with self.lock:
                        self.ended.append(log)
                    self.log = log = None
        with self.lock:
            size, rows = (log.size, log.rows) if log is not None else (0, 0)
            ended = tuple(self.ended)
            self.marked = Marked(boundary, ended, log, size, rows, self.next, self.written)

    # Checkpoints, by the saver

    def prepare(self, boundary: int) -> Any:
        marked = self.marked
        if marked is None or marked.boundary != boundary:
            raise SinkError(f"{self.targets.shown()}: prepare({boundary}) without its mark")
        with self.in_words("cannot be made durable"):
            for log in marked.ended:
                if log in self.ended:
                    self.finish(log)
            position: dict[str, Any] = {
                "next": marked.next,
                "ready": [ready.plain() for ready in self.ready],
                "log": self.position_of(marked),
                "ours": sorted(self.ours),
            }
            sync_folder(self.folder)
        self.kept.append({ready.hidden for ready in self.ready} | name_of_log(position["log"]))
        self.prepared = marked
        return position

    def position_of(self, marked: Marked) -> dict[str, Any] | None:
        log = marked.log
        if log is None:
            return None
        log.sync()
        return {
            "hidden": log.path.name,
            "size": marked.size,
            "digest": log.digest_at(marked.size),
            "number": log.number,
            "rows": marked.rows,
            "since": log.since,
        }

    def finish(self, log: HiddenLog) -> None:
        """Makes a file of a log that gets no more rows."""
        target = self.targets.final(log.number)
        digest = log.digest_at(log.size)
        if self.shape.format == "parquet":
            hidden = self.folder / self.targets.hidden(log.number, "part")
            log.encode_parquet(hidden)
            sync_file(hidden)
            ready = Ready(hidden.name, target, hidden.stat().st_size, digest_of(hidden))
            self.replaced.append(log.path.name)
        else:
            log.sync()
            ready = Ready(log.path.name, target, log.size, digest)
        with self.lock:
            self.ready.append(ready)
            self.ended = [other for other in self.ended if other is not log]
        log.close()

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        if boundary <= self.boundary:
            return
        marked = self.prepared
        if marked is None or marked.boundary != boundary:
            raise SinkError(f"{self.targets.shown()}: commit({boundary}) without its prepare")
        with self.in_words("cannot be published"):
            for ready in self.ready:
                self.publish(ready)
            self.sweep_parts(marked.next)
            sync_folder(self.folder)
            self.kept = self.kept[-1:]
            self.ready = []
            self.remove(self.replaced)
            self.replaced = []
        self.committed = marked.written
        self.boundary = boundary

    def sweep_parts(self, number: int) -> None:
        """Removes parts of another job, which this one overwrites."""
        if self.sweep and not self.targets.single:
            self.remove(self.targets.parts_from(number))
        self.sweep = False

    def check(self, ready: Ready) -> None:
        hidden = self.folder / ready.hidden
        if hidden.exists() and not is_file_with(hidden, ready.size, ready.digest):
            raise SinkError(f"{hidden} is damaged: its bytes are not those that were written")

    def publish(self, ready: Ready) -> None:
        """Gives a file its name; one that has it already is left alone."""
        hidden, target = self.folder / ready.hidden, self.folder / ready.target
        if not hidden.exists():
            if not is_file_with(target, ready.size, ready.digest):
                raise SinkError(
                    f"{hidden} is gone, which the checkpoint counts as written, and {target} does"
                    " not have its rows"
                )
            return
        if not self.shape.overwrite and target.exists():
            digest = digest_of(target)
            if digest != ready.digest and digest not in self.ours:
                raise SinkError(f"{target} exists already (it came during the run); remove it")
        os.replace(hidden, target)

    # The end

    def close(self) -> str:
        if self.written != self.committed:
            rows = self.written - self.committed
            raise SinkError(f"{self.targets.shown()}: {rows:,} rows came after the last checkpoint")
        if self.log is not None:
            log, self.log = self.log, None
            with self.in_words("cannot be published"):
                log.end_interval()
                self.finish(log)
                self.publish(self.ready[-1])
                sync_folder(self.folder)
                self.ready = []
        self.remove(self.replaced)
        return self.targets.shown()

    def abort(self) -> str:
        """Removes what no checkpoint can need."""
        needed = set().union(*self.kept)
        for log in (*self.ended, *([self.log] if self.log is not None else [])):
            log.close()
            if log.path.name not in needed:
                log.path.unlink(missing_ok=True)
        return self.targets.shown()

    @contextmanager
    def in_words(self, what: str, *, breaks: bool = False) -> Iterator[None]:
        """Errors of the system as a SinkError. After one that `breaks` the log, which may have half
        a row, nothing goes on."""
        import pyarrow as pa

        if self.broken is not None:
            raise SinkError(f"{self.targets.shown()}: an earlier write failed: {self.broken}")
        try:
            yield
        except (OSError, pa.ArrowException, SinkError) as error:
            if breaks:
                self.broken = error
            shown = self.targets.shown()
            if isinstance(error, SinkError) and str(error).startswith(str(self.folder)):
                raise
            said = getattr(error, "strerror", None) or error
            raise SinkError(f"{shown}: {what}: {said}") from None


def name_of_log(log: dict[str, Any] | None) -> set[str]:
    return set() if log is None else {log["hidden"]}
