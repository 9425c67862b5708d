"""Jobs with streams of late records go on after a crash: what is late is late still."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import plait
from plait.testing import check

if TYPE_CHECKING:
    from pathlib import Path

    from plait.streams.stream import Stream

SECONDS = [0, 4, 31, 33, 2, 34, 61, 60, 5, 32, 64, 90, 1]
LATE = [2, 5, 32, 1]
VISITS = pa.table(
    {
        "key": [second % 3 for second in SECONDS],
        "ts": [datetime.datetime.fromtimestamp(second, datetime.UTC) for second in SECONDS],
    }
)


def late(visits: Stream) -> Stream:
    return visits.key_by("key").tumbling("10s").late()


@pytest.mark.parametrize("crash_at", range(0, 8, 2))
def test_late_records_after_a_crash(crash_at: int) -> None:
    check(late, VISITS, event_time="ts", checkpoint=True, crash_at=crash_at, epoch_records=1)


def test_another_number_of_bins(tmp_path: Path) -> None:
    def make_job() -> plait.Job:
        job = plait.Job("late")
        late(job.source(VISITS, "visits", event_time="ts")).sink(plait.Collect(), "late")
        return job

    run = plait.start(make_job(), checkpoint=tmp_path, epoch_records=1, bin_bits=4)
    run.stop()
    run.wait()
    result = plait.run(make_job(), checkpoint=tmp_path, bin_bits=2)
    found = result.outputs["late"].column("ts").to_pylist()
    assert [time.timestamp() for time in found] == LATE
