"""Shedding by hand in one process: bounds while a job runs, its account, and how it is repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import plait
from plait.errors import JobError, StateError
from plait.testing.check import rows_of_arrow
from plait.testing.check_crashes import assert_same_after_crash
from plait.testing.oracle import sequential

if TYPE_CHECKING:
    from pathlib import Path

    from plait.execution.local_run import LocalRun
    from plait.streams.job import Job

HALF, KEEP_ALL = 1 << 63, 2**64 - 1


def job_of(source: object) -> Job:
    job = plait.Job("shed")
    numbers = job.source(source, name="in")
    numbers.count().sink(plait.Collect(), "counts", min_accuracy=0.2)
    numbers.filter(plait.col("seq") % 2 == 0).sink(plait.Discard(), "even", min_accuracy=0.0)
    return job


def reach(running: LocalRun, rows: int) -> None:
    """Lets it read some rows more."""
    wanted = running.engine.records_read() + rows
    while running.engine.records_read() < wanted:
        running.engine.wait(0.001)


def test_a_bound_holds_from_an_epoch_on_until_it_is_lifted() -> None:
    job = job_of(plait.Rate(200_000.0))
    running = plait.start(job, workers=2, epoch_records=64)
    reach(running, 500)
    first = running.shed("counts", 0.5)
    reach(running, 500)
    second = running.shed("even", 0.25)
    reach(running, 500)
    running.shed("counts", None)
    reach(running, 500)
    last = running.shed("even", None)
    running.stop()
    result = running.wait()
    steps = [(step.query, step.ratio) for step in result.keeps]
    assert 0 < first < second < last
    assert steps[0] == ("counts", 0.5)
    assert steps[-1] == ("even", 1.0)
    wanted = sequential(
        job.graph(), cuts=result.cuts, keeps=result.keeps, stop_at=len(result.cuts["in"])
    )
    got = rows_of_arrow(result.outputs["counts"], wanted.schemas["counts"])
    assert got == wanted.outputs["counts"]
    assert result.account.shed == wanted.account.shed
    assert [op.shed for op in result.operators] == [op.shed for op in wanted.operators]
    assert result.account.difference == 0


def test_what_cannot_be_bounded_is_refused() -> None:
    running = plait.start(job_of(plait.Rate(1000.0)))
    with pytest.raises(JobError, match="its floor is"):
        running.shed("counts", 0.1)
    with pytest.raises(JobError, match='no query "count"'):
        running.shed("count", 0.5)
    running.stop()
    assert running.wait().keeps == ()
    with pytest.raises(StateError, match="at its end"):
        running.shed("counts", 0.5)


def test_the_progress_and_the_account_name_what_was_shed() -> None:
    from plait.execution.local_run import begin, running_of

    graph = job_of([{"seq": n} for n in range(100)]).graph()
    result = running_of(begin(graph, None, None, None, {}, keeps=[(0, (HALF, HALF))])).wait()
    assert f"{result.account.shed} shed" in str(result.account)
    assert 20 < result.operators[1].shed < 80
    assert [(step.query, step.epoch, step.threshold) for step in result.keeps] == [
        ("counts", 0, HALF),
        ("even", 0, HALF),
    ]


def test_a_plan_without_a_change_is_none() -> None:
    running = plait.start(job_of(plait.Rate(1000.0)))
    running.shed("counts", 1.0)
    running.shed("even", None)
    running.stop()
    assert running.wait().keeps == ()


def test_functions_in_worker_processes_see_what_was_kept() -> None:
    from plait.execution.local_run import begin, running_of

    job = plait.Job("pooled")
    rows = job.source([{"key": n % 10, "value": n} for n in range(500)], name="in")
    summed = rows.key_by("key").fold(0, lambda total, row: total + row.value, route="pool")
    summed.sink(plait.Collect(), "out", min_accuracy=0.0)
    graph = job.graph()
    keeps = [(2, (HALF,)), (5, (KEEP_ALL,))]
    chosen = {"epoch_records": 50, "workers": 2}
    result = running_of(begin(graph, None, None, None, chosen, keeps=keeps)).wait()
    wanted = sequential(graph, epoch_records=50, keeps=result.keeps)
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    assert result.account.shed == wanted.account.shed > 0


def keyed_job() -> Job:
    job = plait.Job("saved")
    rows = job.source([{"key": n % 7, "value": n} for n in range(60)], name="in")
    rows.key_by("key").max("value").sink(plait.Collect(), "out", min_accuracy=0.0)
    return job


@pytest.mark.parametrize("epoch", [0, 5, 10])
def test_after_a_crash_the_same_records_are_shed(epoch: int) -> None:
    """With the plan of the checkpoint, whether it began long before it or with it."""
    settings = {"epoch_records": 1, "workers": 2}
    assert_same_after_crash(
        keyed_job().graph(), settings, crash_at=20, keeps=[(epoch, (HALF,)), (19, (KEEP_ALL,))]
    )


def test_a_run_that_goes_on_has_the_bounds_of_its_checkpoint(tmp_path: Path) -> None:
    job = plait.Job("bounded")
    job.source(plait.Rate(5000.0), name="in").count().sink(
        plait.Discard(), "counts", min_accuracy=0.2
    )
    running = plait.start(job, checkpoint=str(tmp_path), quality="off")
    epoch = running.shed("counts", 0.5)
    reach(running, 200)
    running.stop()
    first = running.wait()
    again = plait.start(job, checkpoint=str(tmp_path), quality="off")
    assert again.keeping.bounds == {0: 0.5}
    reach(again, 200)
    again.stop()
    result = again.wait()
    assert [(step.epoch, step.ratio) for step in result.keeps] == [(epoch, 0.5)]
    assert result.account.shed > first.account.shed > 0
