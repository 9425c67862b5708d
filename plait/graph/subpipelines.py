"""Cuts a pipeline into sub-pipelines: the parts of a job that are measured, placed and shed apart.

Pure. Two connected stages are in one sub-pipeline if the same queries (sinks) are behind both, they
are in the same region, and both or neither are before the first exchange: the first state on the
way, or the sinks of a job in total order, which are one sub-pipeline of their own. Sub-pipelines
are numbered inputs first, and none is behind itself.

    >>> import plait
    >>> from plait.graph.stages import make_pipeline
    >>> counts = plait.stream([{"word": "a"}]).key_by("word").count()
    >>> job = counts.sink(plait.Discard(), name="counts").job
    >>> [f"{part.name}: {part.kind}" for part in cut(make_pipeline(job.graph()))]
    ['source-1: rows', 'counts: keys', 'sinks: sinks']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.graph.labels import unique
from plait.graph.operators import SinkOp, SourceOp
from plait.graph.stages import has_loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.graph.stages import Pipeline, StageKind
    from plait.protocol.messages import PartKind

STATEFUL: tuple[StageKind, ...] = ("keyed", "timed", "state", "process")
"""In front of these, and of the sinks in total order, rows change nodes."""

SHOWN = 3
"""A name is made of so many labels at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubPipeline:
    """Stages that are measured, placed and shed together."""

    number: int
    name: str
    """Unique in the job, and the same whenever the same job is built."""
    kind: PartKind
    stages: tuple[int, ...]
    """Of the pipeline, ascending: each before those that read from it."""
    inputs: tuple[int, ...]
    """The sub-pipelines that it reads from; all have smaller numbers."""
    sources: tuple[int, ...]
    """The sources in it, by their place among the sources of the job."""
    queries: tuple[str, ...]
    """The labels of the sinks behind it or in it."""
    region: str = ""
    pinned: bool = False
    """It has an operator with a loop of its own, which stays at the home node."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What all stages of a sub-pipeline have in common."""

    sinks: frozenset[int]
    """The sinks behind; of the sinks in total order: all of them."""
    region: str
    exchanged: bool
    """An exchange is in front of it, or in front of something before it."""
    gathers: bool
    """It is a sink in total order."""


def cut(pipeline: Pipeline, total: bool = True) -> tuple[SubPipeline, ...]:
    """The sub-pipelines of a job. `total`: its sinks are on one node, in one order."""
    traits = traits_of(pipeline, total)
    parts = group(pipeline, traits)
    number_of = {stage: number for number, stages in enumerate(parts) for stage in stages}
    taken: set[str] = set()
    found: list[SubPipeline] = []
    for number, stages in enumerate(parts):
        shared = traits[stages[0]]
        operators = [op for stage in stages for op in pipeline.stages[stage].operators]
        sources = tuple(i for i, op in enumerate(pipeline.graph.sources) if op in operators)
        name = unique(name_of(pipeline, shared, sources), taken)
        taken.add(name)
        givers = {number_of[given] for stage in stages for given in pipeline.stages[stage].inputs}
        found.append(
            SubPipeline(
                number=number,
                name=name,
                kind=kind_of_part(pipeline, stages, shared),
                stages=stages,
                inputs=tuple(sorted(givers - {number})),
                sources=sources,
                queries=labels_of(pipeline, shared.sinks),
                region=shared.region,
                pinned=any(has_loop(pipeline.graph.operators[op]) for op in operators),
            )
        )
    return tuple(found)


def traits_of(pipeline: Pipeline, total: bool) -> tuple[Traits, ...]:
    """Of every stage."""
    stages = pipeline.stages
    behind: list[set[int]] = [set() for _ in stages]
    for number in reversed(range(len(stages))):
        stage = stages[number]
        if stage.kind == "sink":
            behind[number].add(stage.operators[0])
        for given in stage.inputs:
            behind[given] |= behind[number]
    exchanged: list[bool] = []
    found: list[Traits] = []
    for number, stage in enumerate(stages):
        gathers = total and stage.kind == "sink"
        arrives = gathers or stage.kind in STATEFUL
        exchanged.append(arrives or any(exchanged[i] for i in stage.inputs))
        found.append(
            Traits(
                sinks=frozenset(pipeline.graph.sinks if gathers else behind[number]),
                region="" if stage.region is None or gathers else stage.region.name,
                exchanged=exchanged[number],
                gathers=gathers,
            )
        )
    return tuple(found)


def group(pipeline: Pipeline, traits: Sequence[Traits]) -> tuple[tuple[int, ...], ...]:
    """The stages of each sub-pipeline, inputs first: connected ones with the same traits, and all
    sinks in total order."""
    sinks = [number for number, its in enumerate(traits) if its.gathers]
    part = [sinks[0] if its.gathers else number for number, its in enumerate(traits)]
    with_regions = any(its.region for its in traits)
    for number, stage in enumerate(pipeline.stages):
        for given in stage.inputs:
            if traits[given] != traits[number] or part[given] == part[number]:
                continue
            joined = [part[given] if its == part[number] else its for its in part]
            # Stages of one region stay apart if there is a way from one to the other outside of it.
            if not with_regions or sort_parts(pipeline, joined):
                part = joined
    return sort_parts(pipeline, part)


def sort_parts(pipeline: Pipeline, part: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The stages of each part, inputs first; nothing if a part is behind itself."""
    members: dict[int, list[int]] = {}
    givers: dict[int, set[int]] = {}
    for number, stage in enumerate(pipeline.stages):
        members.setdefault(part[number], []).append(number)
        given = givers.setdefault(part[number], set())
        given.update(part[i] for i in stage.inputs if part[i] != part[number])
    found: list[tuple[int, ...]] = []
    done: set[int] = set()
    while len(done) < len(members):
        ready = [one for one in members if one not in done and givers[one] <= done]
        if not ready:
            return ()
        found += (tuple(members[one]) for one in ready)
        done.update(ready)
    return tuple(found)


def name_of(pipeline: Pipeline, shared: Traits, sources: Iterable[int]) -> str:
    """The region, the sources in it, or the queries behind it; not unique yet."""
    if shared.gathers:
        return "sinks"
    labels = labels_of(pipeline, (pipeline.graph.sources[i] for i in sources))
    names = (shared.region,) if shared.region else labels or labels_of(pipeline, shared.sinks)
    more = len(names) - SHOWN
    return "+".join(names[:SHOWN]) + (f"+{more}" if more > 0 else "")


def kind_of_part(pipeline: Pipeline, stages: Iterable[int], shared: Traits) -> PartKind:
    if shared.gathers:
        return "sinks"
    has_state = any(pipeline.stages[stage].kind in STATEFUL for stage in stages)
    return "keys" if has_state else "rows"


def labels_of(pipeline: Pipeline, operators: Iterable[int]) -> tuple[str, ...]:
    """The labels of these sources or sinks, in the order of the job."""
    ends = [pipeline.graph.operators[op] for op in sorted(operators)]
    return tuple(op.label for op in ends if isinstance(op, SourceOp | SinkOp))
