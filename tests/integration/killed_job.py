"""A job with checkpoints for `test_kill.py`, which kills the process that runs it, again and again.

Files in; files, one or two databases and dead letters out; a count by key, windows, a fold and a
process that remember.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import plait
from examples.exactly_once_sqlite import Numbers

ROWS_PER_S = 20_000


class Slowly(plait.Source):
    """Files, read at a rate."""

    def __init__(self, files: plait.Files) -> None:
        self.files = files
        self.schema = files.schema

    def open(self, position: Any = None) -> plait.Reader:
        return SlowReader(self.files.open(position))


class SlowReader(plait.Reader):
    def __init__(self, reader: plait.Reader) -> None:
        self.reader = reader
        self.read = 0
        self.began = time.monotonic()

    def poll(self, max_rows: int) -> Any:
        left = int((time.monotonic() - self.began) * ROWS_PER_S) + 1 - self.read
        if left <= 0:
            return plait.Wait(0.001)
        rows = self.reader.poll(min(left, max_rows))
        self.read += 0 if rows is None else rows.num_rows
        return rows

    def position(self) -> Any:
        return self.reader.position()

    def close(self) -> None:
        self.reader.close()


def check(row: Any) -> bool:
    if row.v % 1000 == 999:
        raise ValueError("a bad value")
    return True


def build(folder: Path) -> plait.Job:
    job = plait.Job("killed")
    files = plait.Files(str(folder / "in" / "*.jsonl"), schema={"n": int, "k": int, "v": int})
    events = job.source(Slowly(files)).filter(check, on_error="dead_letter")
    totals = events.key_by("k").aggregate(n=plait.last("n"), total=plait.sum("v"))
    totals.sink(plait.Files(folder / "totals", format="parquet"), "totals")
    listed = events.key_by("k").fold(
        0, lambda state, row: (state * 31 + row.v) % 1_000_003, type=int
    )
    listed.sink(plait.Files(folder / "folded.csv"), "folded")
    sums = events.aggregate(n=plait.count(), square=plait.sum("v"))
    match (folder / "kind").read_text():
        case "databases":  # one is ahead of the checkpoints, and a crash may come between the two
            sums.sink(Numbers(str(folder / "second.db")), "second")
            sums.sink(Numbers(str(folder / "numbers.db"), commit="20ms"), "numbers")
        case "database":
            sums.sink(Numbers(str(folder / "numbers.db")), "numbers")
        case _:
            sums.sink(plait.Files(folder / "sums", format="jsonl"), "sums")
    return job


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print("starts", flush=True)
    result = plait.run(
        build(folder),
        workers=2,
        epoch_records=int(sys.argv[2]),
        checkpoint=plait.Checkpoint(
            str(folder / "checkpoints"),
            every="60ms" if (folder / "kind").read_text() != "databases" else "300ms",
        ),
        dead_letters=plait.Files(folder / "letters", format="jsonl"),
    )
    print(f"delivered {result.account.delivered} read {result.account.read}", flush=True)
