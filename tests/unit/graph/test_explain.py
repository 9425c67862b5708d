"""`explain()`: what a user sees of the stages, the fusion and the routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plait
from plait import col

if TYPE_CHECKING:
    import pytest


@plait.compiled
def bucket(price: int) -> int:
    return price // 10


def halved(total: int) -> int:
    return total // 2


def test_every_operator_has_a_route_and_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    job = plait.Job("carts")
    rows = job.source(plait.Items([{"user": "u", "price": 3}]), name="clicks")
    made = (
        rows.filter(col("price") > 1)
        .with_columns(bucket=bucket(col("price")))
        .key_by("user")
        .aggregate(n=plait.count(), total=plait.sum("price"))
        .filter(col("n") > 0)
        .with_columns(half=halved, schema={"half": int})
        .map(lambda record: record, on_error="dead_letter")
    )
    made.sink(plait.Discard())
    job.explain(workers=3)
    told = capsys.readouterr().out
    assert "job carts: 3 workers" in told
    assert "stage 1: keyed (4 operators fused) from stage 0" in told
    assert "test_explain.py:" in told
    assert ': col("price") > 1' in told
    assert "compiled: bucket by numba" in told
    assert "native: typed state in flat tables, 1024 bins" in told
    assert "stage 2: python (2 operators fused) from stage 1" in told
    assert "inline: plain Python: called for each record" in told
    assert "bad records: dead_letter" in told
    assert "stage 3: sink from stage 2" in told


def test_a_stream_explains_what_makes_it(capsys: pytest.CaptureFixture[str]) -> None:
    stream = plait.stream([{"a": 1}]).map_batches(lambda table: table).fold(0, lambda n, r: n + r.a)
    stream.union(plait.stream([{"value": 1}])).explain()
    told = capsys.readouterr().out
    assert "batch: a function of Arrow batches" in told
    assert "one state for all records" in told
    assert "one worker at a time, by order tag" in told
