"""The breaker on one thread, on all cores and on nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.testing.crashes import Durable
from plait.testing.nodes import run_on_nodes

if TYPE_CHECKING:
    from pathlib import Path

RATE = 20_000

SOME = r"\([1-9](\.\d+)?%\)"
"""Of several nodes, records and letters are not counted at the same moment."""


class Endless(plait.Source):
    """Numbers, a thousand at a time, without an end."""

    schema = plait.Schema.of({"n": int})
    bounded = False

    def open(self, position: Any = None) -> plait.Reader:
        return EndlessReader(position or 0)


class EndlessReader(plait.Reader):
    def __init__(self, at: int) -> None:
        self.at = at
        self.waits = False

    def poll(self, max_rows: int) -> Any:
        self.waits = not self.waits
        if self.waits:
            return plait.Wait(0.01)
        first, self.at = self.at, self.at + min(100, max_rows)
        return [{"n": n} for n in range(first, self.at)]

    def position(self) -> Any:
        return self.at


def refuse_some(row: Any) -> Any:
    if row.n % 20 == 0:
        raise ValueError(f"{row.n} is one of those")
    return row


def job_with(source: Any, sink: plait.Sink | None = None) -> plait.Job:
    job = plait.Job("breaker")
    rows = job.source(source, "in").map(refuse_some, on_error="dead_letter")
    rows.sink(sink or plait.Discard(), "out")
    return job


@pytest.mark.parametrize("how", [{"threading": "manual"}, {"workers": 1}, {"workers": 3}])
def test_it_ends_the_run(how: Any) -> None:
    with pytest.raises(plait.BreakerError, match=r"\(5%\).*(?s:.)*: ValueError: 0 is one of those"):
        job_with(Endless()).run(breaker="1% of 10s", **how)


def test_a_source_that_cannot_read_counts(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"n": 1}\n{"n": "x"}\n' * 50_000)
    job = plait.Job("breaker")
    source = job.source(plait.Files(path, schema={"n": int}), "in", on_error="dead_letter")
    slowed = source.map(refuse_some, on_error="dead_letter")
    slowed.sink(plait.Discard())
    rows = plait.Rate(RATE)  # a second source, so that the run does not end by itself
    job.source(rows, "rate").sink(plait.Discard())
    with pytest.raises(plait.BreakerError, match="source at "):
        job.run(breaker="1% of 1h")


def test_output_since_the_last_checkpoint_is_not_shown(tmp_path: Path) -> None:
    letters, out = Durable("letters"), Durable("out")
    job = job_with(Endless(), out)
    saved = plait.Checkpoint(str(tmp_path), every="1h")
    with pytest.raises(plait.BreakerError):
        job.run(breaker="1% of 10s", dead_letters=letters, checkpoint=saved)
    assert (letters.ended, out.ended) == ("abort", "abort")
    assert (letters.batches, out.batches) == ([], [])


def test_it_does_not_end_a_run_with_few_letters() -> None:
    import pyarrow as pa

    table = pa.table({"n": list(range(20_000))})
    result = job_with(plait.Table(table, rate_per_s=40_000.0)).run(breaker="6% of 10s")
    assert result.account.dead_lettered == 1_000


@pytest.mark.parametrize("nodes", [1, 2])
def test_on_nodes(nodes: int) -> None:
    with pytest.raises(plait.BreakerError, match=SOME):
        run_on_nodes(job_with(Endless()), nodes, breaker="1% of 10s")


def test_on_nodes_with_a_source_that_all_read() -> None:
    import pyarrow as pa

    table = pa.table({"n": list(range(400_000))})
    with pytest.raises(plait.BreakerError, match=SOME):
        run_on_nodes(job_with(plait.Table(table, rate_per_s=20_000.0)), 2, breaker="1% of 10s")


def test_key_order_on_nodes_is_refused() -> None:
    with pytest.raises(plait.JobError, match="no node sees all dead letters"):
        plait.submit(job_with(Endless()), nodes=2, order="key", breaker="1% of 10s")
