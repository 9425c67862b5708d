"""Which operators run together: the rules of fusion, and which sources reach a stage."""

from __future__ import annotations

from typing import Any

import plait
from plait import col
from plait.graph.stages import Pipeline, make_pipeline

ROWS = [{"k": 1, "v": 2}]


def pipeline_of(stream: plait.Stream) -> Pipeline:
    stream.sink(plait.Discard())
    return make_pipeline(stream.job.graph())


def kinds(pipeline: Pipeline) -> list[str]:
    return [f"{stage.kind}:{len(stage.operators)}" for stage in pipeline.stages]


def same(record: Any) -> Any:
    return record


def test_native_operators_share_a_stage() -> None:
    pipeline = pipeline_of(
        plait.stream(ROWS).filter(col("v") > 1).with_columns(w=col("v") + 1).select("w")
    )
    assert kinds(pipeline) == ["source:1", "native:3", "sink:1"]


def test_an_aggregate_takes_its_native_neighbours() -> None:
    counts = plait.stream(ROWS).filter(col("v") > 1).key_by("k").count().filter(col("count") > 1)
    assert kinds(pipeline_of(counts)) == ["source:1", "keyed:3", "sink:1"]


def test_two_aggregates_do_not_share_a_stage() -> None:
    twice = plait.stream(ROWS).key_by("k").count().filter(col("count") > 0).key_by("k").max("count")
    assert kinds(pipeline_of(twice)) == ["source:1", "keyed:2", "keyed:1", "sink:1"]


def test_python_functions_share_a_stage_apart_from_native_ones() -> None:
    stream = plait.stream(ROWS).map(same).filter(same).filter(col("v") > 1).map(same)
    assert kinds(pipeline_of(stream)) == ["source:1", "python:2", "native:1", "python:1", "sink:1"]


def test_python_state_stands_alone() -> None:
    stream = plait.stream(ROWS).map(same).key_by("k").fold(0, lambda n, r: n + 1)
    assert kinds(pipeline_of(stream)) == ["source:1", "python:1", "state:1", "sink:1"]


def test_what_goes_on_to_state_is_before_it() -> None:
    common = plait.stream(ROWS).map(same)
    common.filter(col("v") > 2).sink(plait.Discard())
    pipeline = pipeline_of(common.filter(col("v") > 3).map(same).key_by("k").count().map(same))
    before = [f"{pipeline.stages[i].kind}" for i in sorted(pipeline.before_state)]
    assert before == ["source", "python", "native", "python"]


def test_a_fan_out_ends_a_stage() -> None:
    common = plait.stream(ROWS).filter(col("v") > 1)
    common.filter(col("v") > 2).sink(plait.Discard())
    pipeline = pipeline_of(common.filter(col("v") > 3))
    assert sorted(kinds(pipeline)) == ["native:1"] * 3 + ["sink:1"] * 2 + ["source:1"]


def test_a_union_knows_its_sources() -> None:
    job = plait.Job("two")
    one, other = job.source(ROWS), job.source(ROWS)
    both = plait.union(one.filter(col("v") > 1), other)
    pipeline = pipeline_of(both.filter(col("v") > 0))
    (union,) = (i for i, stage in enumerate(pipeline.stages) if stage.kind == "union")
    assert pipeline.sources_of(union) == (0, 1)
    assert [pipeline.sources_of(i) for i in pipeline.stages[union].inputs] == [(0,), (1,)]
    assert pipeline.sources_of(len(pipeline.stages) - 1) == (0, 1)


def test_every_node_is_in_one_stage_behind_its_inputs() -> None:
    source = plait.stream(ROWS)
    left, right = source.map(same), source.filter(col("v") > 0)
    pipeline = pipeline_of(plait.union(left, right, source).key_by("k").count())
    nodes = [node for stage in pipeline.stages for node in stage.operators]
    assert sorted(nodes) == list(range(len(pipeline.graph.operators)))
    for number, stage in enumerate(pipeline.stages):
        assert all(before < number for before in stage.inputs)
