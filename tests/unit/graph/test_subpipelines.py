"""How a pipeline is cut into sub-pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plait
from plait import col
from plait.graph.stages import make_pipeline
from plait.graph.subpipelines import SubPipeline, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = [{"k": 1, "v": 2}]


def same(record: Any) -> Any:
    return record


def parts_of(stream: plait.Stream, total: bool = True) -> tuple[SubPipeline, ...]:
    return cut(make_pipeline(stream.job.graph()), total)


def shown(parts: Sequence[SubPipeline]) -> list[str]:
    return [f"{part.name} {part.kind} {part.inputs} {'/'.join(part.queries)}" for part in parts]


def two_queries() -> plait.Stream:
    """Of one source: a count by key, and a filter with a Python function."""
    bids = plait.Job("job").source(ROWS, name="bids").with_columns(w=col("v") + 1)
    bids.key_by("k").count().sink(plait.Discard(), name="counts")
    return bids.filter(col("w") > 1).map(same).sink(plait.Discard(), name="high")


def test_a_job_in_total_order() -> None:
    assert shown(parts_of(two_queries())) == [
        "bids rows () counts/high",
        "counts keys (0,) counts",
        "high rows (0,) high",
        "sinks sinks (1, 2) counts/high",
    ]


def test_sinks_by_key_belong_to_what_is_before_them() -> None:
    parts = parts_of(two_queries(), total=False)
    assert shown(parts) == [
        "bids rows () counts/high",
        "counts keys (0,) counts",
        "high rows (0,) high",
    ]
    assert [len(part.stages) for part in parts] == [2, 2, 3]


def test_sources_that_meet_in_a_join_are_apart() -> None:
    job = plait.Job("job")
    left = job.source(ROWS, name="left")
    right = job.source(ROWS, name="right").filter(col("v") > 0)
    both = left.key_by("k").count().map(same).union(right.key_by("k").count().map(same))
    parts = parts_of(both.key_by("k").count().sink(plait.Discard(), name="out"))
    assert shown(parts) == [
        "left rows () out",
        "right rows () out",
        "out keys (0, 1) out",
        "sinks sinks (2,) out",
    ]
    assert [part.sources for part in parts] == [(0,), (1,), (), ()]


def test_sources_that_meet_before_state_are_together() -> None:
    job = plait.Job("job")
    left = job.source(ROWS, name="left")
    right = job.source(ROWS, name="right")
    parts = parts_of(left.union(right).key_by("k").count().sink(plait.Discard(), name="out"))
    assert [part.name for part in parts] == ["left+right", "out", "sinks"]
    assert parts[0].sources == (0, 1)


def test_regions_cut_and_give_names() -> None:
    rows = plait.Job("job").source(ROWS, name="in")
    with plait.region("score", threading="dedicated"):
        scored = rows.map(same)
        counted = scored.key_by("k").count()
    parts = parts_of(counted.map(same).sink(plait.Discard(), name="out"))
    assert shown(parts) == [
        "in rows () out",
        "score rows (0,) out",
        "score-2 keys (1,) out",
        "out rows (2,) out",
        "sinks sinks (3,) out",
    ]
    assert [part.region for part in parts] == ["", "score", "score", "", ""]


def test_a_region_that_is_entered_again_behind_itself_is_two() -> None:
    rows = plait.Job("job").source(ROWS, name="in")
    with plait.region("near", threading="dedicated"):
        near = rows.map(same)
    far = near.map(same)
    with plait.region("near", threading="dedicated"):
        both = near.union(far)
    parts = parts_of(both.sink(plait.Discard(), name="out"))
    assert [(part.name, part.inputs) for part in parts] == [
        ("in", ()),
        ("near", (0,)),
        ("out", (1,)),
        ("near-2", (1, 2)),
        ("sinks", (3,)),
    ]


def test_names_are_unique_and_short() -> None:
    rows = plait.Job("job").source(ROWS, name="a")
    counts = rows.key_by("k").count()
    for name in ("a", "b", "c", "d", "sinks"):
        counts.map(same).sink(plait.Discard(), name=name)
    names = [part.name for part in parts_of(counts)]
    assert names == ["a", "a+b+c+2", "a-2", "b", "c", "d", "sinks", "sinks-2"]


@plait.operator(inputs=("records",))
async def forward(ctx: plait.Context) -> None:
    while await ctx.wait_all(records=1):
        ctx.emit(ctx.pop("records"))


def test_an_operator_with_a_loop_is_pinned() -> None:
    rows = plait.Job("job").source(ROWS, name="in")
    parts = parts_of(forward(records=rows).out.sink(plait.Discard(), name="out"))
    assert [(part.kind, part.pinned) for part in parts] == [
        ("rows", False),
        ("keys", True),
        ("sinks", False),
    ]
