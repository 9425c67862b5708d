"""Laws of sub-pipelines, over pipelines of any shape with any regions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.graph.regions import Region
from plait.graph.stages import Pipeline, PipelineStage, StageKind
from plait.graph.subpipelines import STATEFUL, cut, traits_of

REGIONS = (None, *(Region(name=name, threading="dynamic") for name in ("near", "far")))
KINDS: tuple[StageKind, ...] = ("native", "keyed", "union", "python")


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Any shape: the graph only lends its sources and sinks, whose number is what counts."""
    sources, sinks = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    job = plait.Job("drawn")
    heads = [job.source([{"a": 1}]) for _ in range(sources)]
    for number in range(sinks):
        heads[0].union(*heads[1:]).sink(plait.Discard(), name=f"out-{number}")
    graph = job.graph()
    stages: list[PipelineStage] = []
    for op in graph.sources:
        stages.append(stage_of("source", op, (), draw(st.sampled_from(REGIONS))))
    for _ in range(draw(st.integers(0, 8))):
        inputs = draw(st.sets(st.integers(0, len(stages) - 1), min_size=1, max_size=3))
        kind = draw(st.sampled_from(KINDS))
        stages.append(stage_of(kind, -1, sorted(inputs), draw(st.sampled_from(REGIONS))))
    ends = len(stages) - 1
    for op in graph.sinks:
        given = draw(st.integers(0, ends))
        stages.append(stage_of("sink", op, (given,), draw(st.sampled_from(REGIONS))))
    return Pipeline(graph=graph, stages=tuple(stages))


def stage_of(
    kind: StageKind, op: int, inputs: tuple[int, ...] | list[int], region: Region | None
) -> PipelineStage:
    operators = () if op < 0 else (op,)
    return PipelineStage(kind=kind, operators=operators, inputs=tuple(inputs), region=region)


@given(pipelines(), st.booleans())
def test_every_stage_is_in_one_part_with_its_like(pipeline: Pipeline, total: bool) -> None:
    parts = cut(pipeline, total)
    assert sorted(stage for part in parts for stage in part.stages) == list(
        range(len(pipeline.stages))
    )
    traits = traits_of(pipeline, total)
    for number, part in enumerate(parts):
        assert part.number == number
        assert all(given < number for given in part.inputs)
        assert len({traits[stage] for stage in part.stages}) == 1
    assert len({part.name for part in parts}) == len(parts)
    assert [part.kind for part in parts].count("sinks") == (1 if total else 0)


@given(pipelines(), st.booleans())
def test_like_neighbours_are_apart_only_if_there_is_a_way_around(
    pipeline: Pipeline, total: bool
) -> None:
    parts = cut(pipeline, total)
    part_of = {stage: part.number for part in parts for stage in part.stages}
    traits = traits_of(pipeline, total)
    for number, stage in enumerate(pipeline.stages):
        for giver in stage.inputs:
            if traits[giver] == traits[number] and part_of[giver] != part_of[number]:
                assert traits[number].region, "only leaving a region makes a way around"


@given(pipelines())
def test_state_is_never_before_the_first_exchange(pipeline: Pipeline) -> None:
    for part in cut(pipeline):
        kinds = {pipeline.stages[stage].kind for stage in part.stages}
        assert not (kinds & {"source"} and kinds & {*STATEFUL, "sink"})
