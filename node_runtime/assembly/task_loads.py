"""What the sub-pipelines of a job use in this process, and in its worker processes.

The engine counts by stage; this sums the stages of each sub-pipeline. A route stage runs where its
rows come from, so it belongs to the sub-pipeline before the exchange, its gather stage to the one
after. What no stage has used (reading the reports, saving, threads of connectors) is `other`: it is
shown, and never spread over the sub-pipelines. Reading costs some microseconds and never waits.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.graph.operators import ShedOp
from plait.graph.subpipelines import cut
from plait.protocol.messages import TaskReport
from plait.protocol.part_use import PartUse, with_report
from plait.results.outcomes import COUNTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.graph.stages import Pipeline
    from plait.model.settings import Settings
    from plait.node_runtime.assembly.engine_parts import EngineParts

SHED = COUNTED.index("shed")
StageTimes = tuple[int, int, int, int, int]
"""Of a stage of the engine: processor time in ns, records in, records out, records that wait, ns in
which its worklist was full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """Processor time since the engine was built, in seconds."""

    total_s: float
    """Of this process and its worker processes."""
    tasks_s: float
    """In the stages of all sub-pipelines."""
    rest_s: float
    """Of the engine's workers outside of stages: looking for work, and links to other nodes."""

    @property
    def other_s(self) -> float:
        """What is not the sub-pipelines'."""
        return max(0.0, self.total_s - self.tasks_s)


class TaskLoads:
    """Sums what the stages of an engine use by sub-pipeline. Any thread may ask."""

    def __init__(
        self,
        pipeline: Pipeline,
        settings: Settings,
        parts: EngineParts,
        end_cpu_s: Callable[[], Mapping[int, float]],
    ) -> None:
        """`end_cpu_s`: processor time of threads beside the engine, by operator."""
        self.pipeline = pipeline
        self.engine_parts = parts
        self.end_cpu_s = end_cpu_s
        self.cut = cut(pipeline, total=settings.order != "key")
        self.part_of = {stage: part.number for part in self.cut for stage in part.stages}
        operators = pipeline.graph.operators
        self.shedders = tuple(
            tuple(
                op
                for stage in part.stages
                for op in pipeline.stages[stage].operators
                if isinstance(operators[op], ShedOp)
            )
            for part in self.cut
        )
        self.began_s = time.process_time()
        self.named = tuple(
            PartUse(part=part.number, name=part.name, kind=part.kind, queries=part.queries)
            for part in self.cut
        )

    def blocks(self, stages: int) -> list[range]:
        """The engine's stages of each stage of the pipeline: the first takes its input."""
        heads = [*self.engine_parts.heads, stages]
        return [range(head, end) for head, end in itertools.pairwise(heads)]

    def owners(self, blocks: Sequence[range]) -> list[int]:
        """The sub-pipeline of each of the engine's stages."""
        exchanges = self.engine_parts.exchanges.before
        found: list[int] = []
        for stage, block in enumerate(blocks):
            own = [self.part_of[stage]] * len(block)
            if stage in exchanges:
                own[0] = self.part_of[self.pipeline.stages[stage].inputs[0]]
            found += own
        return found

    def reports(self) -> tuple[TaskReport, ...]:
        """Of every sub-pipeline, in their order."""
        times: list[StageTimes] = self.engine_parts.engine.stage_times()
        blocks = self.blocks(len(times))
        cpu_ns = [0.0] * len(self.cut)
        waiting = [0] * len(self.cut)
        for owner, (ns, _, _, waits, _) in zip(self.owners(blocks), times, strict=True):
            cpu_ns[owner] += ns
            waiting[owner] += waits
        for op, seconds in self.end_cpu_s().items():
            cpu_ns[self.part_of[self.stage_of(op)]] += 1e9 * seconds
        return tuple(
            self.report(part.number, cpu_ns[part.number] / 1e9, waiting[part.number], times, blocks)
            for part in self.cut
        )

    def stage_of(self, op: int) -> int:
        stages = self.pipeline.stages
        return next(number for number, stage in enumerate(stages) if op in stage.operators)

    def report(
        self,
        part: int,
        cpu_s: float,
        waiting: int,
        times: Sequence[StageTimes],
        blocks: Sequence[range],
    ) -> TaskReport:
        taken = offered = 0
        for stage in self.cut[part].stages:
            outside = [i for i in self.pipeline.stages[stage].inputs if self.part_of[i] != part]
            if outside or not self.pipeline.stages[stage].inputs:
                took, came = self.taken_offered(stage, outside, times, blocks[stage])
                taken, offered = taken + took, offered + came
        behind = (
            times[blocks[number][0]][4]
            for number, stage in enumerate(self.pipeline.stages)
            if self.part_of[number] != part and any(self.part_of[i] == part for i in stage.inputs)
        )
        counts = self.engine_parts.engine.counts
        shed = sum(counts(op)[SHED] for op in self.shedders[part])
        return TaskReport(
            part=part,
            cpu_s=cpu_s,
            taken=taken,
            offered=max(taken, offered),
            kept=max(taken - shed, 0),
            shed=shed,
            waiting=waiting,
            blocked_s=max(behind, default=0) / 1e9,
        )

    def taken_offered(
        self, stage: int, outside: Sequence[int], times: Sequence[StageTimes], block: range
    ) -> tuple[int, int]:
        """Records that a first stage of a sub-pipeline took, and that came for it."""
        exchanges = self.engine_parts.exchanges
        if stage not in exchanges.before:
            tails = self.engine_parts.tails
            came = sum(times[tails[i]][2] for i in outside if tails[i] >= 0)
            return times[block[0]][1], came
        at = 4 if stage in exchanges.first else 2
        if len(block) <= at:
            return 0, 0  # it is on another node
        gathered = times[block[1]]
        return times[block[at]][1], gathered[1] + gathered[3]

    def uses(self) -> tuple[PartUse, ...]:
        """The same by name."""
        return tuple(map(with_report, self.named, self.reports()))

    def cpu(self, tasks: Sequence[TaskReport]) -> CpuUse:
        """The processor time of all. `tasks`: the reports of this moment."""
        parts = self.engine_parts
        pool = parts.pools.pool if parts.pools is not None else None
        used = time.process_time() - self.began_s + (pool.cpu_s() if pool is not None else 0.0)
        return CpuUse(
            total_s=used,
            tasks_s=sum(task.cpu_s for task in tasks),
            rest_s=parts.engine.rest_ns() / 1e9,
        )
