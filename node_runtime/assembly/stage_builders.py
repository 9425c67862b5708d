"""One function for each kind of stage: it adds the stage to the engine and gives its ends.

Event-time operators and processes are in `temporal_builders`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from plait.graph.operators import AggregateOp, CallOp, FoldOp, SourceOp, StatefulOp
from plait.graph.stages import source_numbers
from plait.node_runtime.assembly.engine_parts import ElsewhereEnd, RateEnd, ReaderEnd, TableEnd
from plait.node_runtime.assembly.exchange_builders import add_exchange_before, connect_after
from plait.node_runtime.assembly.row_operators import aggregate_inputs, row_operators
from plait.node_runtime.assembly.stage_context import StageEnds
from plait.node_runtime.assembly.temporal_builders import add_process_stage, add_timed_stage
from plait.node_runtime.native.stage_specs import (
    CallSpec,
    KeyedStageSpec,
    ParallelStageSpec,
    PoolLanesSpec,
    SinkStageSpec,
    SourceStageSpec,
    StateStageSpec,
    TrayStageSpec,
    UnionStageSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph.stages import StageKind
    from plait.node_runtime.assembly.stage_context import StageContext
    from plait.node_runtime.pool.stages import MeasuredState

MOST_IN_FLIGHT = 4096
"""Batches of one operator that are awaited at a time."""


def add_source_stage(context: StageContext) -> StageEnds:
    op, engine, settings = context.first_op, context.engine, context.settings
    assert isinstance(op, SourceOp)
    spec = SourceStageSpec(
        stage=context.spec(op.label),
        op=context.first,
        source=source_numbers(context.graph)[context.first],
        schema=op.schema,
        epoch_records=op.epoch_records or settings.epoch_records,
        limit=-1 if settings.limit is None else settings.limit,
        on_error=op.on_error,
    )
    end = context.sources[context.first]
    match end:
        case ElsewhereEnd():
            stage = engine.no_source(spec)
        case TableEnd():
            stage = engine.table_source(
                spec, chunks=list(end.chunks), rate_per_s=end.rate_per_s, first=end.first
            )
        case RateEnd():
            stage = engine.rate_source(
                spec,
                rate_per_s=end.rate_per_s,
                total=end.total,
                start_us=end.start_us,
                first=end.first,
            )
        case ReaderEnd():
            stage = engine.reader_source(spec, poll=end.poll, position=end.position)
        case _:
            assert_never(end)
    return StageEnds(stage, stage)


def add_sink_stage(context: StageContext) -> StageEnds:
    exchange = add_exchange_before(context, [])
    end = context.sinks.get(context.first)
    if end is None:  # another node has it
        assert exchange is not None
        return StageEnds(exchange.route, -1)
    spec = SinkStageSpec(
        stage=context.spec(),
        op=context.first,
        write=end.write,
        mark=end.mark,
        keep=end.keep,
        limit=end.most,
        last_source=max(context.pipeline.sources_of(context.number)) if end.commits else -1,
        delivered_before=end.delivered_before,
    )
    stage = context.parts.sink_stages[context.first] = context.engine.sink_stage(spec)
    return connect_after(context, exchange, stage)


def add_union_stage(context: StageContext) -> StageEnds:
    spec = UnionStageSpec(
        stage=context.spec(),
        op=context.first,
        carries=[context.pipeline.sources_of(before) for before in context.stage.inputs],
        sub_bits=context.parts.exchanges.union_bits.get(context.number, -1),
    )
    stage = context.engine.union_stage(spec)
    return StageEnds(stage, stage)


def add_native_stage(context: StageContext) -> StageEnds:
    operators = row_operators(context, context.stage.operators)
    spec = ParallelStageSpec(stage=context.spec(), operators=operators)
    stage = context.engine.parallel_stage(spec)
    return StageEnds(stage, stage)


def add_python_stage(context: StageContext) -> StageEnds:
    return StageEnds(*context.pools.add(context.pipeline, context.stage, context.spec()))


def add_async_stage(context: StageContext) -> StageEnds:
    """A function that is awaited, in the one event loop of the engine."""
    from plait.node_runtime.functions.awaited import AsyncCall
    from plait.node_runtime.functions.event_loop import AsyncLoop

    op, parts = context.first_op, context.parts
    assert isinstance(op, CallOp)
    assert op.awaiting is not None
    if parts.loop is None:
        parts.loop = AsyncLoop()
        parts.helpers.append(parts.loop)
    call = AsyncCall(op, context.input_schema(op))
    parts.loop.add(call)
    spec = TrayStageSpec(
        stage=context.spec(),
        op=context.first,
        on_error=op.on_error,
        schema=op.schema,
        tray=call.tray,
        # A batch may have one row only, and then as many batches must be out to keep it busy.
        in_flight=min(op.awaiting.concurrency, MOST_IN_FLIGHT),
    )
    stage = context.engine.tray_stage(spec)
    return StageEnds(stage, stage)


def add_keyed_stage(context: StageContext) -> StageEnds:
    """A running aggregate, with the native operators before and after it."""
    ops, numbers = context.graph.operators, context.stage.operators
    at = next(i for i, number in enumerate(numbers) if isinstance(ops[number], AggregateOp))
    op = ops[numbers[at]]
    assert isinstance(op, AggregateOp)
    schema = context.input_schema(op)
    inputs, aggregates, errors = aggregate_inputs(context, numbers[at], op)
    before = [*row_operators(context, numbers[:at]), *inputs]
    keys = [(i, schema[key].type) for i, key in enumerate(op.keys)]
    exchange = add_exchange_before(context, keys, before)
    spec = KeyedStageSpec(
        stage=context.spec(),
        op=numbers[at],
        keys=keys,
        aggregates=aggregates,
        bin_bits=context.settings.bin_bits,
        lane_bits=context.lane_bits if op.keys else 0,
        queue=context.settings.queue,
        errors=errors,
        before=before if exchange is None else (),
        after=row_operators(context, numbers[at + 1 :]),
    )
    return connect_after(context, exchange, context.engine.keyed_stage(spec))


def add_state_stage(context: StageContext) -> StageEnds:
    """A fold or a stateful function: state in Python, here or in worker processes."""
    from plait.node_runtime.state.folds import KeyedPython

    op, number, bin_bits = context.first_op, context.first, context.settings.bin_bits
    assert isinstance(op, FoldOp | StatefulOp)
    schema = context.input_schema(op)
    keys = [(schema.index(key), schema[key].type) for key in op.keys]
    exchange = add_exchange_before(context, keys)
    here = KeyedPython(op, schema, bin_bits=bin_bits, number=number)
    here.opener = context.parts.opened.opener(op)
    lanes = context.pools.lanes(context.pipeline, number, here)
    state: KeyedPython | MeasuredState = here
    pool = None
    if lanes is not None:
        state = lanes.state
        pool = PoolLanesSpec(lanes=lanes.native, keys=keys, bin_bits=bin_bits)
    spec = StateStageSpec(
        stage=context.spec(),
        call=CallSpec(op=number, on_error=op.on_error, function=state, schema=op.schema),
        keyless=not op.keys,
        pool=pool,
    )
    return connect_after(context, exchange, context.engine.state_stage(spec))


BUILDERS: dict[StageKind, Callable[[StageContext], StageEnds]] = {
    "source": add_source_stage,
    "sink": add_sink_stage,
    "union": add_union_stage,
    "native": add_native_stage,
    "python": add_python_stage,
    "async": add_async_stage,
    "keyed": add_keyed_stage,
    "state": add_state_stage,
    "timed": add_timed_stage,
    "process": add_process_stage,
}


def add_stage(context: StageContext) -> StageEnds:
    """Adds the stage, with its exchange if it has one."""
    return BUILDERS[context.stage.kind](context)
