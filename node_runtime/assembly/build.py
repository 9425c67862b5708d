"""From a pipeline to a native engine: lowers expressions, wraps user functions, and puts the stages
together.

Pure decisions are in `plait.graph.stages` and, for a job on several nodes, in
`lowering.exchanges`; this folder turns them into calls of the native builder. What is
outside the engine (readers, writers) comes in as functions, so that nothing here opens or closes
anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.delays import is_arrival, origins_read
from plait.graph.operators import EventTimeOp, SourceOp, TimedOp
from plait.graph.source_order import is_in_time
from plait.graph.stages import source_numbers
from plait.graph.temporal import ProcessSpec
from plait.node_runtime.assembly.engine_parts import ElsewhereEnd, EngineParts, RateEnd, TableEnd
from plait.node_runtime.assembly.row_operators import project_item
from plait.node_runtime.assembly.stage_builders import add_stage
from plait.node_runtime.assembly.stage_context import StageContext, sources_of
from plait.node_runtime.lowering.exchanges import ExchangePlan, paced_rows, plan_exchanges
from plait.node_runtime.native._engine import NativeEngine
from plait.node_runtime.native.stage_specs import EngineSpec, SliceTimeSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import AnyOp, Graph
    from plait.graph.stages import Pipeline
    from plait.model.settings import Settings
    from plait.node_runtime.assembly.engine_parts import Seat, SinkEnd, SourceEnd

BEAT_US = 20_000
"""Time between two units in jobs with timers on the wall clock."""


def build(
    pipeline: Pipeline,
    settings: Settings,
    sources: Mapping[int, SourceEnd],
    sinks: Mapping[int, SinkEnd],
    seat: Seat | None = None,
) -> EngineParts:
    """An engine for `pipeline`; `sources` and `sinks` are the ends by operator of the graph;
    `seat`: the job runs on several nodes, and this is one of them."""
    engine = make_engine(pipeline.graph, settings, seat)
    exchanges = plan_exchanges(pipeline, settings.order != "key") if seat else ExchangePlan()
    parts = EngineParts(engine, seat, exchanges)
    regions = {
        region: i for i, region in enumerate(dict.fromkeys(s.region for s in pipeline.stages), 1)
    }
    before_state = pipeline.before_state
    for number, stage in enumerate(pipeline.stages):
        context = StageContext(
            pipeline=pipeline,
            number=number,
            settings=settings,
            parts=parts,
            region=regions[stage.region],
            ordered=settings.order != "none" or number in before_state,
            sources=sources,
            sinks=sinks,
        )
        ends = add_stage(context)
        parts.heads.append(ends.head)
        parts.tails.append(ends.tail)
        if ends.tail >= 0:
            engine.last_operator(ends.tail, stage.last)
        for position, before in enumerate(stage.inputs):
            engine.connect(parts.tails[before], ends.head, position)
    set_times(engine, pipeline)
    if is_in_time(pipeline.graph, settings.order):
        set_order(engine, pipeline.graph, sources)
    if seat:
        set_pace(engine, pipeline.graph, settings, sources)
    if not isinstance(settings.scheduler, str):
        engine.use_scheduler(settings.scheduler)
    return parts


def make_engine(graph: Graph, settings: Settings, seat: Seat | None) -> NativeEngine:
    spec = EngineSpec(
        operators=len(graph.operators),
        sources=len(graph.sources),
        workers=settings.threads,
        scheduler=settings.scheduler if isinstance(settings.scheduler, str) else "ct",
        scheduler_seed=settings.scheduler_seed,
        slice_ns=settings.slice_us * 1e3,
        queue_batches=settings.queue_batches,
        queue_records=settings.queue_records,
        queue_bytes=settings.queue_bytes,
        locked_reorder=settings.reorder == "locked",
        cluster=seat.cluster if seat else None,
    )
    return NativeEngine(spec)


def set_times(engine: NativeEngine, pipeline: Pipeline) -> None:
    """Event time of the sources and the beat of the wall clock, where an operator uses them."""
    if any(stage.kind in ("timed", "process") for stage in pipeline.stages):
        read = origins_read(pipeline.graph.operators)
        for number, source in source_numbers(pipeline.graph).items():
            op = pipeline.graph.operators[number]
            if isinstance(op, SourceOp) and op.event_time is not None and number in read:
                column = op.schema.index(op.clock or op.event_time)
                engine.event_time(source, column, op.idle_us)
    if any(looks_at_clock(op) for op in pipeline.graph.operators):
        engine.beat(BEAT_US)


def set_order(engine: NativeEngine, graph: Graph, sources: Mapping[int, SourceEnd]) -> None:
    """The order is that of event time; a node that reads no source follows the one that does."""
    if any(isinstance(sources[op], ElsewhereEnd) for op in graph.sources):
        return
    engine.order_by_time([slice_time(op) for op in sources_of(graph)])


def slice_time(op: SourceOp) -> SliceTimeSpec:
    if op.event_time is None:
        assert op.computed_time is not None
        time = project_item(op.computed_time, op.schema)
        return SliceTimeSpec(time=time, computed=True, max_jump_us=op.max_jump_us)
    column = op.schema.index(op.event_time)
    return SliceTimeSpec(time=column, computed=False, max_jump_us=op.max_jump_us)


def looks_at_clock(op: AnyOp) -> bool:
    """Whether the operator has timers or windows by the wall clock, or is idle by it."""
    if is_arrival(op):
        return True
    if isinstance(op, EventTimeOp):
        return op.idle_us > 0
    if not isinstance(op, TimedOp) or not isinstance(op.spec, ProcessSpec):
        return False
    return hasattr(op.spec.process, "on_timeout")


def set_pace(
    engine: NativeEngine, graph: Graph, settings: Settings, sources: Mapping[int, SourceEnd]
) -> None:
    """Rows in an epoch of sources that have a rate, or a number of records set by the user."""
    ends = {source: sources[op] for source, op in enumerate(graph.sources)}
    rates = {i: e.rate_per_s for i, e in ends.items() if isinstance(e, TableEnd | RateEnd)}
    for source, rows in paced_rows(rates, settings.epoch_records).items():
        engine.pace(source, rows)
    for source, op in enumerate(sources_of(graph)):
        if op.epoch_records is not None and not rates.get(source):
            engine.pace(source, op.epoch_records)
