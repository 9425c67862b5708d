"""What the builder of one stage works with, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.graph.operators import SourceOp
from plait.node_runtime.native.stage_specs import StageSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import AnyOp, Graph, Op
    from plait.graph.stages import Pipeline, PipelineStage
    from plait.model.schema import Schema
    from plait.model.settings import Settings
    from plait.node_runtime.assembly.engine_parts import EngineParts, SinkEnd, SourceEnd
    from plait.node_runtime.native._engine import NativeEngine
    from plait.node_runtime.pool.stages import Pools


@dataclass(frozen=True, slots=True)
class StageEnds:
    """Of the engine's stages that one stage of the pipeline became: the one that takes its input,
    and the one that gives its output; -1: on this node it has none."""

    head: int
    tail: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """A stage of the pipeline, and the engine that it becomes part of."""

    pipeline: Pipeline
    number: int
    settings: Settings
    parts: EngineParts
    region: int
    """The number of its region."""
    ordered: bool
    sources: Mapping[int, SourceEnd]
    sinks: Mapping[int, SinkEnd]

    @property
    def stage(self) -> PipelineStage:
        return self.pipeline.stages[self.number]

    @property
    def graph(self) -> Graph:
        return self.pipeline.graph

    @property
    def engine(self) -> NativeEngine:
        return self.parts.engine

    @property
    def first(self) -> int:
        """The number of its first operator."""
        return self.stage.operators[0]

    @property
    def first_op(self) -> AnyOp:
        return self.graph.operators[self.first]

    @property
    def name(self) -> str:
        return " + ".join(self.graph.operators[i].name for i in self.stage.operators)

    def spec(self, name: str = "") -> StageSpec:
        """What all stages that it becomes have in common."""
        region = self.stage.region
        return StageSpec(
            name=name or self.name,
            threading=self.settings.threading if region is None else region.threading,
            region=self.region,
            ordered=self.ordered,
        )

    @property
    def lane_bits(self) -> int:
        """Of state with keys."""
        settings = self.settings
        lanes = settings.lanes if settings.lanes is not None else settings.threads
        return min((lanes - 1).bit_length(), settings.bin_bits)

    @property
    def pools(self) -> Pools:
        """Where plain Python functions run, made for the first of them."""
        from plait.node_runtime.pool.stages import Pools

        parts = self.parts
        if parts.pools is None:
            parts.pools = Pools(parts.engine, self.settings, parts.opened)
            parts.helpers.append(parts.pools)
        return parts.pools

    def input_schema(self, op: Op) -> Schema:
        return self.graph.operators[op.inputs[0]].schema


def sources_of(graph: Graph) -> list[SourceOp]:
    return [op for op in graph.operators if isinstance(op, SourceOp)]
