"""Event times so far off that windows around them could not be counted fail their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait.testing import sequential

if TYPE_CHECKING:
    from collections.abc import Callable

    EntryPoint = Callable[..., plait.Result]

FAR = 2**62
VERBS: dict[str, Any] = {
    "tumbling": lambda s: s.key_by("k").tumbling("1s").count(on_error="skip"),
    "session": lambda s: s.key_by("k").session(gap="1s").count(on_error="skip"),
    "ttl": lambda s: s.key_by("k", ttl="1h").count(on_error="skip"),
}


def job_of(make: Any) -> plait.Job:
    job = plait.Job("far")
    times = [0, FAR, FAR + 1, -FAR, -FAR - 1, 5]
    column = pa.array(times).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"k": [1, 2, 1, 2, 1, 1], "ts": column})
    read = job.source(plait.Table(table), event_time="ts", name="given")
    make(read).select("k", "count").sink(plait.Collect(), name="out")
    return job


@pytest.mark.parametrize("name", VERBS)
def test_records_with_far_times_are_left_out(entry_point: EntryPoint, name: str) -> None:
    result = entry_point(job_of(VERBS[name]), epoch_records=64, bin_bits=4)
    wanted = sequential(job_of(VERBS[name]).graph(), epoch_records=64)
    got = [tuple(row.values()) for row in result.outputs["out"].to_pylist()]
    assert got == [tuple(row) for row in wanted.outputs["out"]]
    assert result.account.skipped == 2


def test_a_far_time_ends_the_job() -> None:
    job = job_of(lambda s: s.key_by("k").tumbling("1s").count())
    with pytest.raises(plait.RecordError, match=f"the event time {FAR + 1} us is not within"):
        plait.run(job)
