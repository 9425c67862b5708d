"""`Files` on an object store as a sink of a job with `checkpoint=`: each row visible exactly once.

Rows go to a log on this machine. `prepare` puts what is new of it into the store as a hidden
object, so that the rows survive this machine; a log that has ended becomes a hidden object as a
whole. `commit` copies those to their last names, which may be repeated. The position is

    {"next": 3,                                                # the number of the next part
     "ready": [{"hidden", "target", "size", "digest"}],        # to be copied by commit
     "log": {"number", "rows", "since", "size", "digest",
             "pieces": [{"hidden", "size", "digest"}]} or None}

A run that goes on copies what is ready again, and reads the pieces back into a log of its own; the
pieces themselves stay, for objects are never changed. Hidden objects have the run in their names:
what an earlier run that still lives writes is never taken for ours.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Resume, Writer
from plait.connectors.durable import digest_of, write_all
from plait.connectors.file_follower import Ready
from plait.connectors.hidden_log import HiddenLog, log_digest_of
from plait.errors import SinkError

if TYPE_CHECKING:
    from plait.connectors.file_follower import Shape
    from plait.connectors.file_targets import Targets
    from plait.connectors.objects.bucket import Bucket

HIDDEN = "_plait"
"""Readers of folders pass over names that begin so."""


@dataclass(slots=True, eq=False)
class Growing:
    """A log, and the pieces of it that are in the store."""

    log: HiddenLog
    pieces: list[dict[str, Any]] = field(default_factory=list)

    @property
    def stored(self) -> int:
        return sum(int(piece["size"]) for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Marked:
    """How things were at a boundary."""

    boundary: int
    ended: tuple[Growing, ...]
    growing: Growing | None
    size: int
    rows: int
    next: int
    written: int


class ObjectFollower(Writer):
    """Writes objects exactly once. `close` and `abort` return the URL of the object or folder."""

    def __init__(self, bucket: Bucket, targets: Targets, shape: Shape, resume: Resume) -> None:
        self.bucket, self.targets, self.shape = bucket, targets, shape
        self.hidden = f"{HIDDEN}/{targets.run}"
        self.here = Path(tempfile.mkdtemp(prefix="plait-"))
        self.lock = threading.Lock()
        """Of what both `mark` and `prepare` change."""
        self.next = 0
        self.growing: Growing | None = None
        self.ended: list[Growing] = []
        self.ready: list[Ready] = []
        self.spent: list[str] = []
        """Hidden objects that the next safe position does not need."""
        self.marked: Marked | None = None
        self.prepared: Marked | None = None
        self.boundary = resume.boundary
        self.written = self.committed = 0
        self.is_whole = False
        """The one file is there, with all rows but those written since."""
        try:
            self.begin(resume)
        except BaseException:
            shutil.rmtree(self.here, ignore_errors=True)
            raise

    def begin(self, resume: Resume) -> None:
        if self.bucket.names(self.hidden):
            raise SinkError(f"{self.shown()}: another sink of the job writes there")
        needed: set[str] = set()
        if resume.position is not None:
            needed = self.restore(resume.position)
        unknown = self.unknown_parts()
        if unknown and not self.shape.overwrite:
            what = (
                "exists already"
                if resume.position is None
                else "is not of the checkpoint that the job goes on from"
            )
            raise SinkError(
                f"{self.bucket.shown(unknown[0])} {what}; remove it or give overwrite=True"
            )
        lineage, _, attempt = self.targets.run.rpartition("-")
        for name in self.bucket.names(HIDDEN):
            whose, _, number = name.split("/")[1].rpartition("-")
            # Those of a newer run stay: this one may have been frozen, and it is not its turn.
            is_older = whose == lineage and number.isdecimal() and int(number) < int(attempt)
            if is_older and name not in needed:
                self.bucket.delete(name)
        if not self.targets.single:
            for name in unknown:
                self.bucket.delete(name)
        if self.targets.single and self.growing is None:
            self.growing = self.new_log()

    def unknown_parts(self) -> list[str]:
        """Visible objects that are in the way: of another job, or after the checkpoint."""
        if self.targets.single:
            done = self.growing is not None
            return (
                [] if done or self.bucket.size(self.targets.file) is None else [self.targets.file]
            )
        there = [(self.targets.number_of(name), name) for name in self.bucket.names()]
        return [name for number, name in there if number is not None and number >= self.next]

    def restore(self, position: Any) -> set[str]:
        """Shows what is ready and takes over the log; the hidden objects that are needed on."""
        self.next = int(position["next"])
        for plain in position["ready"]:
            self.publish(Ready(**plain), check=True)
        shown = {plain["hidden"] for plain in position["ready"]}
        self.spent += sorted(shown)
        log = position["log"]
        if log is None or self.is_closed(log):
            return shown
        growing = self.growing = self.new_log(log["number"], begin=False)
        growing.log.since, growing.log.rows = log["since"], log["rows"]
        for piece in log["pieces"]:
            if not self.bucket.is_object_with(piece["hidden"], piece["size"], piece["digest"]):
                raise SinkError(
                    f"{self.bucket.shown(piece['hidden'])} is gone or damaged, with rows that the"
                    " checkpoint counts as written"
                )
            for data in self.bucket.read(piece["hidden"]):
                write_all(growing.log.file, data)
            growing.log.size += int(piece["size"])
            growing.pieces.append(piece)
        return shown.union(piece["hidden"] for piece in log["pieces"])

    def is_closed(self, log: dict[str, Any]) -> bool:
        """Whether the run before was closed at this boundary, so that the log has become a part.
        One file goes on with its rows."""
        target = self.targets.final(log["number"])
        if self.bucket.size(target) is None:
            return False
        there = self.here / "there"
        with there.open("wb") as file:
            file.writelines(self.bucket.read(target))
        parquet = self.shape.format == "parquet"
        if (log_digest_of(there) if parquet else digest_of(there)) != log["digest"]:
            return False
        if self.targets.single:
            self.is_whole = True
            growing = self.growing = self.new_log(log["number"], begin=False)
            growing.log.since = log["since"]
            if parquet:
                growing.log.copy_rows(there)
            else:
                growing.log.copy(there, log["size"])
                growing.log.rows = log["rows"]
        there.unlink()
        return True

    # Rows and boundaries, by the workers

    def new_log(self, number: int | None = None, *, begin: bool = True) -> Growing:
        if number is None:
            number, self.next = self.next, self.next + 1
        shape = self.shape
        log = HiddenLog(
            self.here / f"{number}.log",
            number,
            shape.format,
            shape.schema,
            compression=shape.compression,
            options=shape.options,
        )
        return Growing(log.begin() if begin else log)

    def write(self, batch: Any) -> None:
        if self.growing is None:
            self.growing = self.new_log()
        self.growing.log.write(batch)
        self.written += int(batch.num_rows)

    def mark(self, boundary: int) -> None:
        growing = self.growing
        if growing is not None:
            growing.log.end_interval()
            age_s = time.time() - growing.log.since
            due = growing.log.rows > 0 and self.shape.roll.is_due(growing.log.size, age_s)
            if due and not self.targets.single:
                with self.lock:
                    self.ended.append(growing)
                self.growing = growing = None
        with self.lock:
            size, rows = (growing.log.size, growing.log.rows) if growing is not None else (0, 0)
            ended = tuple(self.ended)
            self.marked = Marked(boundary, ended, growing, size, rows, self.next, self.written)

    # Checkpoints, by the saver

    def prepare(self, boundary: int) -> Any:
        marked = self.marked
        if marked is None or marked.boundary != boundary:
            raise SinkError(f"{self.shown()}: prepare({boundary}) without its mark")
        for growing in marked.ended:
            if growing in self.ended:
                self.finish(growing)
        self.prepared = marked
        return {
            "next": marked.next,
            "ready": [ready.plain() for ready in self.ready],
            "log": self.position_of(marked),
        }

    def position_of(self, marked: Marked) -> dict[str, Any] | None:
        growing = marked.growing
        if growing is None:
            return None
        log, start = growing.log, growing.stored
        if marked.size > start:
            name = f"{self.hidden}/{self.targets.final(log.number)}.log-{start}"
            digest = self.bucket.put(name, log.path, start, marked.size)
            piece = {"hidden": name, "size": marked.size - start, "digest": digest}
            growing.pieces.append(piece)
        return {
            "number": log.number,
            "rows": marked.rows,
            "since": log.since,
            "size": marked.size,
            "digest": log.digest_at(marked.size),
            "pieces": list(growing.pieces),
        }

    def finish(self, growing: Growing) -> None:
        """Puts the part of a log that gets no more rows into the store, hidden."""
        log = growing.log
        target, path = self.targets.final(log.number), log.path
        if self.shape.format == "parquet":
            path = path.with_suffix(".part")
            log.encode_parquet(path)
        name = f"{self.hidden}/{target}.ready"
        digest = self.bucket.put(name, path)
        with self.lock:
            self.ready.append(Ready(name, target, path.stat().st_size, digest))
            self.ended = [other for other in self.ended if other is not growing]
        self.spent += [piece["hidden"] for piece in growing.pieces]
        log.close()
        log.path.unlink()
        path.unlink(missing_ok=True)

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        if boundary <= self.boundary:
            return
        marked = self.prepared
        if marked is None or marked.boundary != boundary:
            raise SinkError(f"{self.shown()}: commit({boundary}) without its prepare")
        for ready in self.ready:
            self.publish(ready)
        spent = [*self.spent, *(ready.hidden for ready in self.ready)]
        self.ready, self.spent = [], []
        for name in spent:
            self.bucket.delete(name)
        self.committed, self.boundary = marked.written, boundary

    def publish(self, ready: Ready, *, check: bool = False) -> None:
        """Copies a part to its last name; one that is there already is left alone."""
        size = self.bucket.size(ready.hidden)
        if size is None:
            if not self.bucket.is_object_with(ready.target, ready.size, ready.digest):
                raise SinkError(
                    f"{self.bucket.shown(ready.hidden)} is gone, which the checkpoint counts as"
                    f" written, and {self.bucket.shown(ready.target)} does not have its rows"
                )
            return
        if size != ready.size or (check and self.bucket.digest(ready.hidden) != ready.digest):
            raise SinkError(
                f"{self.bucket.shown(ready.hidden)} is damaged: its bytes are not those that were"
                " written"
            )
        self.bucket.copy(ready.hidden, ready.target)

    # The end

    def close(self) -> str:
        if self.written != self.committed:
            rows = self.written - self.committed
            raise SinkError(f"{self.shown()}: {rows:,} rows came after the last checkpoint")
        growing, self.growing = self.growing, None
        if growing is not None:
            growing.log.end_interval()
            if self.is_whole and not self.written:
                growing.log.close()
                growing = None
        if growing is not None:
            self.finish(growing)
            self.publish(self.ready[-1])
            self.spent.append(self.ready[-1].hidden)
        for name in self.spent:
            self.bucket.delete(name)
        shutil.rmtree(self.here, ignore_errors=True)
        return self.shown()

    def abort(self) -> str:
        """What a checkpoint may need is in the store."""
        for growing in (*self.ended, *([self.growing] if self.growing is not None else [])):
            growing.log.close()
        shutil.rmtree(self.here, ignore_errors=True)
        return self.shown()

    def shown(self) -> str:
        return self.bucket.shown(self.targets.file)
