"""From the graph of operators to stages: what is fused, and which route every operator takes.

Pure: a graph in, a pipeline out. A stage is operators that run together on a batch, with
one worklist in front. Rules of fusion: native operators (filter, projections) that follow each
other run in one stage; a running aggregate, a window and a join take the native operators before
and after them into their own stage (they run on all workers, outside the lanes); Python functions
that follow each other share a stage, apart from native ones, so that native work never waits for
the interpreter. A function that is awaited is its own stage. A fan-out ends a stage, and so
does the border of a region (`plait.graph.regions`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from plait.graph import temporal
from plait.graph.delays import is_arrival
from plait.graph.operators import (
    AggregateOp,
    AnyOp,
    CallOp,
    EventTimeOp,
    FilterOp,
    FoldOp,
    Graph,
    ProjectOp,
    ShedOp,
    SinkOp,
    SourceOp,
    StatefulOp,
    TimedOp,
    UnionOp,
)

if TYPE_CHECKING:
    from plait.graph.regions import Region

StageKind = Literal[
    "source", "native", "python", "async", "keyed", "timed", "state", "process", "union", "sink"
]
STATELESS: tuple[StageKind, ...] = ("source", "native", "python", "async", "sink")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStage:
    """Operators that run together. `inputs` are stages; a union has several, a source none."""

    kind: StageKind
    operators: tuple[int, ...]
    inputs: tuple[int, ...]
    region: Region | None = None

    @property
    def last(self) -> int:
        return self.operators[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The stages of a job, inputs before their users."""

    graph: Graph
    stages: tuple[PipelineStage, ...]

    def sources_of(self, stage: int) -> tuple[int, ...]:
        """The numbers (in the order of source operators) of the sources whose records reach a
        stage."""
        found: set[int] = set()
        seen = {stage}
        waiting = [stage]
        order = source_numbers(self.graph)
        while waiting:
            reached = self.stages[waiting.pop()]
            if reached.kind == "source":
                found.add(order[reached.operators[0]])
            waiting.extend(set(reached.inputs) - seen)
            seen.update(reached.inputs)
        return tuple(sorted(found))

    @property
    def before_state(self) -> frozenset[int]:
        """The stages from which records go on to state, which is updated in their order."""
        found: set[int] = set()
        for number in reversed(range(len(self.stages))):
            stage = self.stages[number]
            if stage.kind not in STATELESS or number in found:
                found.update(stage.inputs)
        return frozenset(found)


def source_numbers(graph: Graph) -> dict[int, int]:
    """The number of each source operator: its place among the sources."""
    return {op: number for number, op in enumerate(graph.sources)}


def origin_numbers(graph: Graph) -> dict[int, int]:
    """The number of each origin of time: the sources first, whether they have an event time or not,
    and then the operators that name one or go by arrival."""
    operators = enumerate(graph.operators)
    named = [i for i, op in operators if isinstance(op, EventTimeOp) or is_arrival(op)]
    return {op: number for number, op in enumerate((*graph.sources, *named))}


def kind_of(op: AnyOp) -> StageKind:
    match op:
        case SourceOp():
            return "source"
        case FilterOp() | ProjectOp() | EventTimeOp() | ShedOp():
            return "native"
        case CallOp(mode="async"):
            return "async"
        case CallOp():
            return "python"
        case AggregateOp():
            return "keyed"
        case FoldOp() | StatefulOp():
            return "state"
        case TimedOp():
            python = isinstance(op.spec, temporal.ProcessSpec | temporal.OperatorSpec)
            return "process" if python else "timed"
        case UnionOp():
            return "union"
        case SinkOp():
            return "sink"


def has_loop(op: AnyOp) -> bool:
    """Whether it is an operator with its own loop, which stays where it is."""
    return isinstance(op, TimedOp) and isinstance(op.spec, temporal.OperatorSpec)


FUSES: dict[tuple[StageKind, StageKind], StageKind] = {
    ("native", "native"): "native",
    ("native", "keyed"): "keyed",
    ("keyed", "native"): "keyed",
    ("native", "timed"): "timed",
    ("timed", "native"): "timed",
    ("python", "python"): "python",
}
"""What a stage becomes when an operator of the second kind joins it; pairs that are not here do
not fuse."""


def make_pipeline(graph: Graph, fuse: bool = True) -> Pipeline:
    """The stages of `graph`; without `fuse` every operator is its own stage."""
    stages: list[PipelineStage] = []
    home: dict[int, int] = {}
    readers = Counter(given for op in graph.operators for given in op.inputs)
    for number, op in enumerate(graph.operators):
        kind = kind_of(op)
        before = [home[i] for i in op.inputs]
        if fuse and len(before) == 1 and readers[op.inputs[0]] == 1:
            stage = stages[before[0]]
            joined = FUSES.get((stage.kind, kind))
            if joined and stage.last == op.inputs[0] and stage.region == op.region:
                stages[before[0]] = replace(
                    stage, kind=joined, operators=(*stage.operators, number)
                )
                home[number] = before[0]
                continue
        home[number] = len(stages)
        made = PipelineStage(kind=kind, operators=(number,), inputs=tuple(before), region=op.region)
        stages.append(made)
    return Pipeline(graph=graph, stages=tuple(stages))
