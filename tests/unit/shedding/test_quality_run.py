"""Overload in one process: what is shed, for whom, why, and that the run can be repeated exactly.
No time is asserted: the tests wait for what the run recorded."""

from __future__ import annotations

import gc
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait.errors import JobError, TimedOut
from plait.testing.check import rows_of_arrow
from plait.testing.oracle import sequential

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.execution.local_run import LocalRun
    from plait.streams.job import Job

BURN_NS = 250_000
HANGS_S = 60.0
SMALL: dict[str, Any] = {"epoch_records": 32, "queue_records": 256}
"""Little is under way when what is kept changes."""


def until(happened: Callable[[], bool]) -> None:
    """Waits for a condition; what takes this long hangs."""
    deadline = time.monotonic() + HANGS_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.001)


def burn(seq: int) -> int:
    """A quarter of a millisecond of processor time."""
    ends = time.thread_time_ns() + BURN_NS
    while time.thread_time_ns() < ends:
        pass
    return seq


def burn_too(seq: int) -> int:
    return burn(seq)


def overloaded(source: object, *, floors: tuple[float, float] = (0.05, 0.01)) -> Job:
    """Two queries that need a quarter of a millisecond a row each."""
    job = plait.Job("overload")
    rows = job.source(source, name="in")
    high, low = floors
    rows.with_columns(a=burn).count().sink(
        plait.Collect(), "high", priority=5, min_accuracy=high, shed="records"
    )
    rows.with_columns(b=burn_too).count().sink(
        plait.Collect(), "low", priority=1, min_accuracy=low, shed="records"
    )
    return job


def is_shed(running: LocalRun, query: str) -> bool:
    return any(one.query == query and one.asked < 1.0 for one in running.queries())


def test_an_overload_is_shed_by_priority_and_repeated_exactly() -> None:
    """8,000 rows a second of half a millisecond: twice what two cores can do, and more on fewer."""
    job = overloaded(plait.Rate(8000.0))
    running = plait.start(job, workers=2, pool=0, quality_period_ms=100, **SMALL)
    until(lambda: is_shed(running, "low"))
    until(lambda: sum(part.shed for part in running.tasks()) > 100)
    running.stop()
    result = running.wait()
    assert result.account.shed > 0
    assert result.account.difference == 0
    wanted = sequential(
        job.graph(), cuts=result.cuts, keeps=result.keeps, stop_at=len(result.cuts["in"])
    )
    for label in ("high", "low"):
        got = rows_of_arrow(result.outputs[label], wanted.schemas[label])
        assert got == wanted.outputs[label]
    assert result.account.shed == wanted.account.shed
    asked = {"high": 1.0, "low": 1.0}
    for step in result.keeps:
        asked[step.query] = step.ratio
        assert step.ratio >= {"high": 0.05, "low": 0.01}[step.query] - 1e-9
    high, low = result.queries
    assert (high.query, low.query) == ("high", "low")
    assert low.overall <= high.overall + 0.05
    for point in result.accuracy:
        assert 0.0 <= point.measured <= 1.0
    drops = [step for step in result.decisions if step.reason.query == "low"]
    assert "this process is short of" in drops[0].reason.because
    assert [str(step) for step in drops] == [str(step) for step in running.why("low")]


def test_what_was_shed_is_given_back_when_the_load_is_gone() -> None:
    """A burst of a table beside a trickle without an end."""
    job = plait.Job("burst")
    burst = job.source(
        plait.Table(pa.table({"seq": pa.array(range(12_000), pa.int64())}), rate_per_s=12_000.0),
        name="burst",
    )
    trickle = job.source(plait.Rate(5.0), name="trickle").select("seq")
    rows = burst.union(trickle)
    rows.with_columns(a=burn).sink(plait.Discard(), "out", min_accuracy=0.01, shed="records")
    running = plait.start(job, workers=1, pool=0, quality_period_ms=50, **SMALL)
    until(lambda: is_shed(running, "out"))
    until(lambda: not is_shed(running, "out"))
    running.stop()
    result = running.wait()
    assert result.account.difference == 0
    assert result.keeps[-1].ratio == 1.0
    assert "what it asks for fits" in result.decisions[-1].reason.because


def test_a_lossless_job_is_not_watched_and_loads_no_controller() -> None:
    job = plait.Job("lossless")
    job.source(plait.Rate(1000.0), name="in").sink(plait.Discard(), "out")
    running = plait.start(job)
    assert running.quality is None
    running.stop()
    result = running.wait()
    assert (result.queries, result.decisions, result.accuracy) == ((), (), ())


@pytest.mark.parametrize("how", ["off", "fast"])
def test_no_watch_where_there_is_nothing_to_decide(how: str) -> None:
    """Shedding is off; or rows are read as fast as they are taken, so that nothing is overload."""
    source: object = plait.Rate(100.0) if how == "off" else plait.Rate(100.0, total=50)
    running = plait.start(overloaded(source), quality="off" if how == "off" else "auto")
    assert running.quality is None
    running.stop()
    assert running.wait().account.shed == 0


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "plait-quality"]


def test_the_thread_ends_with_the_run() -> None:
    """With the result, when the run is given up, and when nobody waits for it."""
    running = plait.start(overloaded(plait.Rate(10.0)), quality_period_ms=20)
    assert len(watching()) == 1
    running.stop()
    running.wait()
    assert watching() == []
    with pytest.raises(TimedOut):
        plait.run(overloaded(plait.Rate(10.0)), timeout=0.05, quality_period_ms=20)
    assert watching() == []
    running = plait.start(overloaded(plait.Rate(10.0)), quality_period_ms=10)
    del running
    gc.collect()
    until(lambda: watching() == [])


def test_why_names_the_queries_there_are() -> None:
    running = plait.start(overloaded(plait.Rate(10.0)))
    assert running.why() == ()
    with pytest.raises(JobError, match='no query "hihg"'):
        running.why("hihg")
    running.stop()
    running.wait()


def test_a_bound_by_hand_is_seen_and_stays() -> None:
    running = plait.start(overloaded(plait.Rate(10.0)), quality_period_ms=20)
    running.shed("low", 0.5)
    until(lambda: any(step.reason.query == "low" for step in running.why()))
    assert running.queries()[1].asked == 0.5
    assert "set by hand" in running.why("low")[0].reason.because
    running.shed("low", None)
    until(lambda: running.queries()[1].asked == 1.0)
    running.stop()
    assert running.wait().account.difference == 0
