"""The outage of a stream: from the log of a sink, how long nothing came after a process was killed.

Record `seq` is due at `start + seq / rate` and has the key `seq % keys`; the n-th of a key has the
count n. A sink writes a row of `ROW` for the records that come together, and how many of them have
another count than they must have.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.support.common import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = "<dqq"
"""When it came, the last record, how many were wrong."""
COLUMNS = np.dtype([("at", "<f8"), ("seq", "<i8"), ("wrong", "<i8")])
TEXT_BYTES = 1000
"""What the state of a key holds beside its count."""
PATIENCE_S = 300.0
LOOK_S = 0.02
SLACK_S = 0.25
"""Rows that are so much later than before the kill still count as caught up."""
STEADY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent, and where the sink writes."""

    size_mb: int
    rate: int
    start: float
    log: str

    @property
    def keys(self) -> int:
        return self.size_mb * 1_000_000 // TEXT_BYTES


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise CheckFailed(f"{what} did not happen within {PATIENCE_S:.0f} s")
        time.sleep(LOOK_S)


def row_bytes(at: float, seq: int, wrong: int) -> bytes:
    return struct.pack(ROW, at, seq, wrong)


def rows_of(load: Load, since: float = 0.0) -> Any:
    """The log from a moment on; CheckFailed if a row was wrong."""
    path = Path(load.log)
    data = path.read_bytes() if path.exists() else b""
    rows = np.frombuffer(data[: len(data) // COLUMNS.itemsize * COLUMNS.itemsize], COLUMNS)
    if wrong := int(rows["wrong"].sum()):
        raise CheckFailed(f"{wrong} rows are not what they must be: state was lost, or came twice")
    return rows[rows["at"] > since]


def delays(load: Load, rows: Any) -> Any:
    """How long after they were due the rows came."""
    return rows["at"] - load.start - rows["seq"] / load.rate


def is_full(load: Load) -> bool:
    """Whether every key has been there."""
    rows = rows_of(load)
    return len(rows) > 0 and int(rows["seq"].max()) > load.keys


def wait_steady(load: Load) -> float:
    """Waits until rows come soon after they are due; the delay that they have then."""

    def is_steady() -> bool:
        rows = rows_of(load, time.time() - STEADY_S)
        return len(rows) > 10 and float(delays(load, rows).max()) < STEADY_S

    wait_for("a steady stream of rows", is_steady)
    return float(np.median(delays(load, rows_of(load, time.time() - STEADY_S))))


def find_outage(load: Load, killed_at: float, usual_s: float) -> tuple[float, float] | None:
    """From the kill to the first row behind the longest gap, and until the backlog is gone."""
    rows = rows_of(load, killed_at - STEADY_S)
    if len(rows) < 2:
        return None
    number = int(np.argmax(np.diff(rows["at"])))
    after = rows[number + 1 :]
    if after["at"][0] < killed_at:
        return None
    soon = after[delays(load, after) < usual_s + SLACK_S]
    if not len(soon):
        return None
    return float(after["at"][0]) - killed_at, float(soon["at"][0]) - killed_at


def wait_outage(load: Load, killed_at: float, usual_s: float) -> dict[str, float]:
    wait_for("rows after the kill", lambda: find_outage(load, killed_at, usual_s) is not None)
    time.sleep(STEADY_S)  # a longer gap may follow
    wait_for("rows after the kill", lambda: find_outage(load, killed_at, usual_s) is not None)
    found = find_outage(load, killed_at, usual_s)
    assert found is not None
    return {
        "first_output_s": found[0],
        "caught_up_s": max(found),
        "usual_delay_s": usual_s,
    }
