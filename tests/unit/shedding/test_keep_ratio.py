"""The share that is kept, as a column: what it is, where it may be asked for, and what can be
estimated with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.errors import JobError
from plait.execution.local_run import begin, running_of
from plait.shedding.plan import thresholds
from plait.testing.check import rows_of_arrow
from plait.testing.oracle import sequential

if TYPE_CHECKING:
    from plait.results.result import Result
    from plait.streams.job import Job
    from plait.streams.stream import Stream

ROWS = 16_000
MANY = 100_000
WINDOWS = 1000
SCHEMA = pa.schema([pa.field("seq", pa.int64(), False), pa.field("key", pa.int64(), False)])


def kept(job: Job, *plans: tuple[int, dict[int, float]], **settings: Any) -> Result:
    """A run that keeps so much of its queries, from these epochs on; held against a plain loop."""
    graph = job.graph()
    steps = [(epoch, thresholds(ratios, len(graph.sinks))) for epoch, ratios in plans]
    given = {"epoch_records": 1024, **settings}
    result = running_of(begin(graph, None, None, None, given, keeps=steps)).wait(progress=False)
    wanted = sequential(graph, cuts=result.cuts, keeps=result.keeps)
    for label, output in result.outputs.items():
        assert rows_of_arrow(output, wanted.schemas[label]) == wanted.outputs[label]
    assert result.account == wanted.account
    assert result.account.difference == 0
    return result


def source(rows: int = ROWS) -> Stream:
    table = pa.table({"seq": range(rows), "key": [row % WINDOWS for row in range(rows)]}, SCHEMA)
    return plait.Job("job").source(plait.Table(table), name="in")


def ratios(result: Result, label: str = "out") -> set[float]:
    return set(result.outputs[label].column("keep").to_pylist())


@pytest.mark.parametrize("workers", [1, 2])
def test_the_ratio_is_that_of_the_epoch(workers: int) -> None:
    out = source().filter(col("seq") % 3 == 0).with_keep_ratio("keep").select("seq", "keep")
    out.sink(plait.Collect(), "out", min_accuracy=0.1, shed="records")
    result = kept(out.job, (0, {0: 0.5}), (5, {0: 0.25}), (10, {}), workers=workers)
    assert ratios(result) == {0.5, 0.25, 1.0}
    assert 0.2 < result.account.shed / ROWS < 0.7


def test_a_branch_has_its_own_ratio_and_a_lossless_reader_one() -> None:
    rows = source()
    for label, floor in (("a", 0.1), ("b", 0.1), ("whole", 1.0)):
        branch = rows.with_keep_ratio("keep").select("seq", "keep")
        branch.sink(plait.Collect(), label, min_accuracy=floor)
    result = kept(rows.job, (0, {0: 0.5, 1: 0.75}))
    assert [ratios(result, label) for label in ("a", "b", "whole")] == [{0.5}, {0.75}, {1.0}]
    assert result.outputs["whole"].num_rows == ROWS


def test_by_keys_it_is_the_share_of_the_keys() -> None:
    out = source().with_keep_ratio("keep").key_by("key").max("keep")
    out.sink(plait.Collect(), "out", min_accuracy=0.1)
    result = kept(out.job, (0, {0: 0.5}))
    assert set(result.outputs["out"].column("max").to_pylist()) == {0.5}


def test_counts_and_sums_of_windows_can_be_estimated_with_bounds() -> None:
    """Of 1,000 groups: the true count is within 95 % bounds for about as many of them. The ratio
    changes in the middle."""
    keep = col("keep")
    rows = source(MANY).with_keep_ratio("keep")
    weighted = rows.with_columns(weight=1 / keep, spread=(1 - keep) / (keep * keep))
    out = weighted.key_by("key").aggregate(
        n=plait.count(), estimate=plait.sum("weight"), variance=plait.sum("spread")
    )
    out.sink(plait.Collect(), "out", min_accuracy=0.1, shed="records")
    result = kept(out.job, (0, {0: 0.5}), (48, {0: 0.25}))
    last = {row["key"]: row for row in result.outputs["out"].to_pylist()}
    truth = MANY / WINDOWS
    held = [abs(row["estimate"] - truth) <= 1.96 * row["variance"] ** 0.5 for row in last.values()]
    assert len(last) == WINDOWS
    assert 0.93 <= sum(held) / WINDOWS <= 0.97
    total = sum(row["estimate"] for row in last.values())
    assert abs(total - MANY) < 0.02 * MANY
    completeness = sum(row["n"] for row in last.values()) / total
    assert abs(completeness - (1 - result.account.shed / MANY)) < 0.01


def test_with_nothing_shed_estimates_are_exact() -> None:
    out = source().with_keep_ratio("keep").with_columns(weight=1 / col("keep"))
    out.key_by("key").aggregate(n=plait.count(), estimate=plait.sum("weight")).sink(
        plait.Collect(), "out"
    )
    result = kept(out.job)
    made = result.outputs["out"]
    assert made.column("n").to_pylist() == made.column("estimate").to_pylist()


def test_a_column_that_nobody_reads_may_be_there() -> None:
    out = source().with_keep_ratio().key_by("key").count()
    out.sink(plait.Collect(), "out", min_accuracy=0.1)
    assert kept(out.job, (0, {0: 0.5})).account.shed > 0


def after_a_window(rows: Stream) -> Stream:
    return rows.key_by("key").count().with_keep_ratio()


def before_its_key(rows: Stream) -> Stream:
    return rows.with_keep_ratio().with_columns(key=col("seq") % 7).key_by("key").max("seq")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (after_a_window, "whose results are no share of the input; write it before that"),
        (before_its_key, "a key which is computed after it; write it after the key"),
    ],
)
def test_where_it_cannot_be_told_it_is_refused(make: Any, words: str) -> None:
    out = make(source())
    out.sink(plait.Discard(), "out", min_accuracy=0.5)
    with pytest.raises(JobError, match=words):
        out.job.graph()


def test_queries_that_are_shed_in_different_ways_have_no_common_ratio() -> None:
    rows = source().with_keep_ratio()
    rows.key_by("key").max("seq").sink(plait.Discard(), "keys", min_accuracy=0.5)
    rows.count().sink(plait.Discard(), "records", min_accuracy=0.5)
    with pytest.raises(JobError, match="write it on the branch of each query"):
        rows.job.graph()


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(JobError, match='a column "seq" already'):
        source().with_keep_ratio("seq")


def test_explain_says_where_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    out = source().with_keep_ratio("keep")
    out.sink(plait.Discard(), "out", min_accuracy=0.5)
    out.job.explain(workers=1)
    assert "records for out, told as keep" in capsys.readouterr().out
