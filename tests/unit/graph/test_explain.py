"""`explain()`: what a user sees of the stages, the fusion and the routes."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait import col


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


KEPT: dict[str, tuple[dict[str, Any], list[str]]] = {
    "interval": (
        {"between": ("-2s", "5s"), "how": "left"},
        [
            "keeps: left records until the watermark is more than 5s above their time",
            "keeps: right records until the watermark is more than 2s above their time",
        ],
    ),
    "interval before": (
        {"between": ("-3s", "-1s")},
        [
            "keeps: left records until the watermark is less than 1s below their time",
            "keeps: right records until the watermark is more than 3s above their time",
        ],
    ),
    "semi": (
        {"between": ("0s", "5s"), "how": "semi"},
        [
            "keeps: left records until the watermark is more than 5s above their time",
            "keeps: right records until the watermark is above their time",
            "time after it: 5s behind, as its results may be so much older than the watermark",
        ],
    ),
    "windows": (
        {"window": plait.Sliding("10s", every="2s")},
        ["keeps: records of both sides until the watermark reaches the end of their last window"],
    ),
    "ttl": (
        {"ttl": "1m"},
        ["keeps: records of both sides until the watermark is more than 1m above their time"],
    ),
    "all": (
        {},
        ["keeps: all records of both sides to the end; ttl=, window= or between= drops them"],
    ),
    "spans": (
        {"between": (col("ts"), col("until"))},
        [
            "keeps: left records until the watermark is above the end of their span",
            "keeps: right records until the watermark is above their time",
        ],
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_join_keeps_and_until_when(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    given, wanted = KEPT[name]
    schema = plait.Schema.of({"k": int, "ts": plait.Timestamp, "until": plait.Timestamp})
    job = plait.Job("joins")
    left, right = (
        job.source(plait.Items([], schema=schema), label, event_time="ts") for label in "ab"
    )
    joined = left.join(right.select("k", at="ts"), on="k", **given)
    made = joined.count() if name == "spans" else joined
    made.sink(plait.Discard())
    job.explain()
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith(("keeps:", "time after it:"))] == wanted


def test_what_a_join_as_of_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    schema = plait.Schema.of({"k": int, "ts": plait.Timestamp})
    job = plait.Job("joins")
    left, right = (
        job.source(plait.Items([], schema=schema), label, event_time="ts") for label in "ab"
    )
    joined = left.join_as_of(right.select("k", at="ts"), on="k", tolerance="5s")
    joined.sink(plait.Discard())
    job.explain()
    shown = capsys.readouterr().out
    assert "keeps: left records until the watermark is above their time" in shown
    assert "keeps: of each key the last right record at or before the watermark, dropped" in shown
