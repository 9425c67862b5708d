"""A run and its result: counts, outputs, letters, and settings that must not matter."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.model.settings import SCHEDULERS
from plait.testing import Capture, assert_same

ROWS = pa.table({"k": [i * 7 % 5 for i in range(500)], "v": list(range(500))})
QUEUES = ("lanes", "hybrid", "partitioned", "shared")


def busy_job() -> plait.Job:
    """A fan-out, a union, native and Python state, dead letters."""
    job = plait.Job("busy")
    rows = job.source(ROWS, name="rows")
    halves = rows.with_columns(h=100 // (col("v") % 50), on_error="dead_letter")
    counts = halves.key_by("k").aggregate(n=plait.count(), top=plait.max("h"))
    sums = (
        rows.key_by("k").fold(0, lambda total, r: total + r.v).select("k", n="value", top=col("k"))
    )
    plait.union(counts, sums).sink(Capture(), name="both")
    rows.filter(lambda r: r.v % 3 == 0).flat_map(lambda r: [r, r], schema=rows.schema).sink(
        Capture(), name="twice"
    )
    return job


@pytest.mark.parametrize("reorder", ["nonblocking", "locked"])
@pytest.mark.parametrize("queue", QUEUES)
def test_every_queue_and_reorder_buffer(queue: str, reorder: str) -> None:
    for workers, tight in itertools.product((1, 2, 4), (False, True)):
        limits = {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1} if tight else {}
        given = {"queue": queue, "reorder": reorder, "workers": workers, "epoch_records": 7}
        assert_same(busy_job().graph(), {**given, **limits, "timeout": 60.0})


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler(scheduler: str) -> None:
    for workers in (1, 3):
        given = {"scheduler": scheduler, "workers": workers, "slice_us": 5, "epoch_records": 16}
        assert_same(busy_job().graph(), {**given, "timeout": 60.0})


def test_more_workers_than_work() -> None:
    stream = plait.stream([{"v": 1}]).key_by("v").count()
    stream.sink(Capture())
    assert_same(stream.job.graph(), {"workers": 64, "timeout": 60.0})


def test_the_result() -> None:
    stream = plait.stream(ROWS).filter(col("v") >= 100)
    stream.sink(plait.Collect(), name="out")
    result = plait.run(stream.job, workers=2, epoch_records=200, timeout=60.0)
    assert str(result.account) == "500 read, 400 delivered, 100 filtered"
    assert result.account.difference == 0
    assert result.outputs["out"].column("v").to_pylist() == list(range(100, 500))
    assert result.seconds > 0
    assert result.records_per_s > 0
    assert [counts.records_out for counts in result.operators] == [500, 400, 400]
    (cuts,) = result.cuts.values()
    assert cuts == (200, 200, 100)
    assert 0 <= result.latency.p50_ms <= result.latency.p99_ms <= result.latency.max_ms


def test_dead_letters_come_in_order_and_to_their_sink() -> None:
    letters = Capture()
    job = plait.Job("letters", dead_letters=letters)
    rows = job.source(ROWS, name="rows")
    rows.with_columns(h=1 // (col("v") % 10), on_error="dead_letter").sink(plait.Discard())
    result = plait.run(job, workers=4, epoch_records=3, timeout=60.0)
    assert [letter.row for letter in result.dead_letters] == list(range(1, 501, 10))
    assert {letter.source for letter in result.dead_letters} == {"rows"}
    written = pa.Table.from_batches(letters.batches)
    assert sorted(written.column("row").to_pylist()) == list(range(1, 501, 10))
    assert letters.ended == "close"


def test_a_sink_that_takes_only_some() -> None:
    stream = plait.stream(plait.Rate(1e6))
    stream.sink(plait.Collect(limit=10), name="out")
    result = plait.run(stream.job, timeout=60.0)
    assert result.outputs["out"].num_rows == 10


@pytest.mark.parametrize("rows", [0, 1])
def test_hardly_any_rows(rows: int) -> None:
    stream = plait.stream(ROWS.slice(0, rows)).key_by("k").count()
    stream.sink(Capture())
    for limit in (None, 0, 1):
        given: dict[str, Any] = {} if limit is None else {"limit": limit}
        assert_same(stream.job.graph(), {"workers": 2, "timeout": 60.0, **given})
