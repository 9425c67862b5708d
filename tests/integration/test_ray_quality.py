"""An overload on a real cluster: the lower priority gives way, it is said why, and a plain loop
repeats the run exactly."""

from __future__ import annotations

import time

import pytest

import plait
from plait.testing.check import rows_of_arrow
from plait.testing.oracle import sequential
from tests.integration.conftest import PATIENCE_S, until

pytestmark = pytest.mark.integration

BURN_NS = 2_000_000


def burn(seq: int) -> int:
    """Two milliseconds of processor time."""
    ends = time.thread_time_ns() + BURN_NS
    while time.thread_time_ns() < ends:
        pass
    return seq


def overloaded(name: str) -> plait.Job:
    """3,000 rows a second. `high` is cheap; `low` would need six cores."""
    job = plait.Job(name)
    rows = job.source(plait.Rate(3000.0), name="in")
    rows.count().sink(plait.Collect(), "high", priority=5, min_accuracy=0.3, shed="records")
    rows.with_columns(b=burn).count().sink(
        plait.Collect(), "low", priority=1, min_accuracy=0.005, shed="records"
    )
    return job


def test_the_lower_priority_gives_way_and_the_account_adds_up(cluster: str) -> None:
    job = overloaded("overload")
    handle = plait.submit(
        job, address=cluster, nodes=2, workers=1, pool=0, epoch_records=32, queue_records=256
    )

    def low_is_shed() -> bool:
        view = handle.status()
        return any(one.query == "low" and one.measured < 0.9 for one in view.queries)

    until(low_is_shed, handle)
    high, low = handle.status().queries
    assert (high.query, high.priority, high.floor) == ("high", 5, 0.3)
    assert low.asked < 1.0
    assert high.asked >= low.asked
    assert "query low: " in str(handle.status())
    metrics = handle.metrics()
    assert metrics["keep.low"] <= metrics["keep.high"]
    assert metrics["accuracy.low"] <= 1.0
    [first, *_] = handle.why("low")
    assert first.reason.was == "1.00"
    assert "short of" in first.reason.because or "cannot use more" in first.reason.because
    assert {point.query for point in handle.accuracy()} == {"high", "low"}
    with pytest.raises(plait.JobError, match='no query "lwo"'):
        handle.why("lwo")
    handle.stop()
    result = handle.result(PATIENCE_S)
    assert result.account.shed > 0
    assert result.account.difference == 0
    assert result.decisions
    assert result.queries[1].overall < 1.0
    wanted = sequential(
        job.graph(), cuts=result.cuts, keeps=result.keeps, stop_at=len(result.cuts["in"])
    )
    for label in ("high", "low"):
        assert rows_of_arrow(result.outputs[label], wanted.schemas[label]) == wanted.outputs[label]
    assert result.account.shed == wanted.account.shed
    handle.forget()
