"""A backfill made here goes live on nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration
ROWS, CUT = 6_000, 4_100


def job_of(table: Any) -> plait.Job:
    job = plait.Job("filled")
    numbers = job.source(table, "numbers").key_by("key")
    numbers.aggregate(n=plait.count(), total=plait.sum("n")).sink(plait.Collect(), "out")
    return job


def test_a_backfill_goes_live_on_two_nodes(cluster: str, tmp_path: Path) -> None:
    table = pa.table({"key": [n * n % 97 for n in range(ROWS)], "n": list(range(ROWS))})
    whole = plait.run(job_of(table)).outputs["out"]
    done = plait.backfill(
        job_of(table),
        history={"numbers": table.slice(0, CUT)},
        until={"numbers": CUT},
        checkpoint=tmp_path,
    )
    handle = plait.submit(
        job_of(table),
        address=cluster,
        nodes=2,
        workers=1,
        checkpoint=tmp_path,
        start=done.savepoint,
    )
    try:
        live = handle.result(timeout=120).outputs["out"]
    finally:
        handle.forget()
    assert live.to_pylist() == whole.slice(CUT).to_pylist()
