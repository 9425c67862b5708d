"""Sums of integers that int64 cannot hold: the job ends with the operator's name and line."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

    EntryPoint = Callable[..., plait.Result]

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
SETTINGS = {"epoch_records": 4, "bin_bits": 4}
HALF = 2**62
SUMS: dict[str, Any] = {
    "running": lambda s: s.key_by("k").sum("v"),
    "running beside others": lambda s: s.key_by("k").aggregate(
        total=plait.sum("v"), low=plait.min("v"), n=plait.count()
    ),
    "of nulls": lambda s: (
        s.with_columns(v=plait.when(col("v") > 9).then(col("v")).otherwise(None))
        .key_by("k")
        .sum("v")
    ),
    "of all": lambda s: s.sum("v"),
    "forgotten keys": lambda s: s.key_by("k", ttl="1h").sum("v"),
    "tumbling": lambda s: s.key_by("k").tumbling("1m").sum("v"),
    "panes": lambda s: s.key_by("k").sliding("1m", every="1s").sum("v"),
    "session": lambda s: s.key_by("k").session(gap="10s").sum("v"),
    "rows": lambda s: s.key_by("k").rows(7).sum("v"),
    "last_n": lambda s: s.key_by("k").last_n(5).sum("v"),
}


def given() -> plait.Items:
    """The last record of key 1 is one too many."""
    values = [5] * 8 + [HALF, 7, HALF - 30, 8, 40, 9]
    return plait.Items(
        [
            {"k": i % 2, "v": v, "ts": START + datetime.timedelta(seconds=i)}
            for i, v in enumerate(values)
        ]
    )


def job_of(make: Any) -> plait.Job:
    job = plait.Job("sums")
    make(job.source(given(), event_time="ts")).sink(plait.Collect())
    return job


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_that_does_not_fit(entry_point: EntryPoint, name: str) -> None:
    with pytest.raises(plait.RecordError, match=r"a sum does not fit int64; .*wrap=True") as raised:
        entry_point(job_of(SUMS[name]), **SETTINGS)
    assert raised.value.at.startswith("test_sum_overflow.py:")


def test_the_units_before_it_are_delivered() -> None:
    seen: list[int] = []
    job = plait.Job("sums")
    totals = job.source(given(), event_time="ts").key_by("k").sum("v")
    totals.sink(plait.Call(lambda record: seen.append(record.sum)))
    with pytest.raises(plait.RecordError, match=r"sum at test_sum_overflow\.py"):
        plait.run(job, workers=2, epoch_records=4)
    assert seen == [5, 5, 10, 10, 15, 15, 20, 20, 20 + HALF, 27, 2 * HALF - 10, 35]


def test_sums_that_wrap_or_are_floats() -> None:
    stream = plait.stream([{"v": HALF}, {"v": HALF}])
    wrapped = [record.sum for record in stream.sum("v", wrap=True).collect()]
    assert wrapped == [HALF, -(2**63)]
    floats = stream.aggregate(total=plait.sum(col("v").cast("float64")))
    assert [record.total for record in floats.collect()] == [2.0**62, 2.0**63]
