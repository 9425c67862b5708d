"""A sink of your own that delivers exactly once: rows in SQLite, through any crash.

Rows, the boundary before which all is delivered, and notes of how to get there again go into one
transaction, so the database always knows how far it is, and the job goes on from there. With
commit="100ms" rows are there after 0.1 s, not only at a checkpoint. Run it, kill it, run it again:
every number is in the table once.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import plait

TABLES = """
CREATE TABLE IF NOT EXISTS progress (
    sink TEXT PRIMARY KEY, boundary INTEGER, notes BLOB, owner INTEGER
);
CREATE TABLE IF NOT EXISTS numbers (n INTEGER, square INTEGER);
"""


class Numbers(plait.Sink):
    """The table `numbers` of an SQLite database."""

    kind = "decider"

    def __init__(self, path: str, label: str = "numbers", commit: str | None = None) -> None:
        self.path, self.label, self.commit = path, label, commit

    def survey(self, seen: Any) -> plait.Delivered | None:
        with sqlite3.connect(self.path) as database:
            database.executescript(TABLES)
            # A new owner first: what an earlier run has not committed by now, it never will.
            database.execute("INSERT OR IGNORE INTO progress VALUES (?, 0, '', 0)", [self.label])
            database.execute("UPDATE progress SET owner = owner + 1 WHERE sink = ?", [self.label])
        query = "SELECT boundary, notes FROM progress WHERE sink = ?"
        boundary, notes = database.execute(query, [self.label]).fetchone()
        database.close()
        if boundary < (seen or 0):
            raise plait.SinkError(f"{self.path} has lost rows: it is not the database of this job")
        return plait.Delivered(boundary, notes or b"") if boundary else None

    def open(self, schema: plait.Schema, resume: plait.Resume | None = None) -> plait.Writer:
        if resume is None:
            raise plait.SinkError(f"{self.label}: run the job with checkpoint=")
        return NumbersWriter(self, resume.boundary)


class NumbersWriter(plait.Writer):
    def __init__(self, sink: Numbers, boundary: int) -> None:
        self.label, self.boundary = sink.label, boundary
        self.database = sqlite3.connect(sink.path)
        query = "SELECT owner FROM progress WHERE sink = ?"
        self.owner = self.database.execute(query, [self.label]).fetchone()[0]
        self.rows: list[dict[str, Any]] = []
        self.before_mark = 0

    def write(self, batch: Any) -> None:
        self.rows += batch.to_pylist()

    def mark(self, boundary: int) -> None:
        self.before_mark = len(self.rows)

    def prepare(self, boundary: int) -> int:
        return self.boundary  # what the database has must never be less

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        if boundary <= self.boundary:
            return
        with self.database:  # one transaction
            update = "UPDATE progress SET boundary = ?, notes = ? WHERE sink = ? AND owner = ?"
            ours = self.database.execute(update, [boundary, notes, self.label, self.owner])
            if ours.rowcount != 1:
                raise plait.SinkError(f"{self.label}: another run of the job writes there now")
            rows = self.rows[: self.before_mark]
            self.database.executemany("INSERT INTO numbers VALUES (:n, :square)", rows)
        self.boundary = boundary
        del self.rows[: self.before_mark]

    def close(self) -> int:
        self.database.close()
        return self.boundary


if __name__ == "__main__":
    job = plait.Job("squares")
    numbers = job.source(plait.Rate(50_000, total=100_000)).select(n="seq")
    squares = numbers.with_columns(square=plait.col("n") * plait.col("n"))
    squares.sink(Numbers("squares.db", commit="100ms"), "numbers")
    plait.run(job, checkpoint=plait.Checkpoint("checkpoints", every="1s"))
    found = sqlite3.connect("squares.db").execute("SELECT count(*), sum(n) FROM numbers").fetchone()
    print(f"{found[0]:,} numbers with the sum {found[1]:,}")
