"""Plain Python functions in worker processes of the nodes of a real Ray cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import plait
from plait import col
from plait.testing import sequential
from plait.testing.check import rows_of_arrow

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.integration


def where(seq: int) -> int:
    return os.getpid()


def refused(record: Any) -> Any:
    if record.seq == 1234:
        raise ValueError("1234 is refused")
    return record


def numbers(name: str) -> tuple[plait.Job, Any]:
    job = plait.Job(name)
    read = job.source(plait.Rate(1e9, total=5_000), name="numbers").select("seq")
    return job, read


def test_functions_run_in_worker_processes_of_the_nodes(entry_point: Callable[..., Any]) -> None:
    job, read = numbers("pids")
    read.with_columns(pid=where, route="pool").sink(plait.Collect(), name="out")
    result = entry_point(job, epoch_records=64, pool=2)
    out = result.outputs["out"]
    assert out["seq"].to_pylist() == list(range(5_000))
    pids = set(out["pid"].to_pylist())
    assert len(pids) >= 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.slow
def test_the_answer_is_that_of_the_plain_loop(entry_point: Callable[..., Any]) -> None:
    job, read = numbers("loop")
    doubled = read.with_columns(k=lambda seq: seq % 7, route="pool", schema={"k": int})
    kept = doubled.filter(lambda record: record.seq % 3 != 1, route="pool")
    kept.key_by("k").sum("seq").filter(col("k") > 1).sink(plait.Collect(), name="out")
    result = entry_point(job, epoch_records=64, pool=1)
    wanted = sequential(job.graph())
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]


def test_an_error_comes_back(entry_point: Callable[..., Any]) -> None:
    job, read = numbers("refused")
    read.map(refused, route="pool").sink(plait.Collect())
    with pytest.raises(plait.RecordError, match="1234 is refused") as raised:
        entry_point(job, epoch_records=64, pool=1)
    assert raised.value.row == 1235
    assert isinstance(raised.value.__cause__, ValueError)
