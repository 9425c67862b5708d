"""One function for each kind of stage: it adds the stage to the engine and gives its ends.

Event-time operators and processes are in `temporal_builders`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.operators import AggregateOp, CallOp, FoldOp, SinkOp, SourceOp, StatefulOp
from plait.graph.stages import source_numbers
from plait.node_runtime.assembly.engine_parts import ElsewhereEnd, RateEnd, TableEnd
from plait.node_runtime.assembly.exchange_builders import add_exchange_before, connect_after
from plait.node_runtime.assembly.row_operators import add_operators
from plait.node_runtime.assembly.stage_context import StageEnds
from plait.node_runtime.assembly.temporal_builders import add_process_stage, add_timed_stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph.stages import StageKind
    from plait.node_runtime.assembly.stage_context import StageContext

MOST_IN_FLIGHT = 4096
"""Batches of one operator that are awaited at a time."""


def add_source_stage(context: StageContext) -> StageEnds:
    op, number, engine = context.first_op, context.first, context.engine
    assert isinstance(op, SourceOp)
    source = source_numbers(context.graph)[number]
    end = context.sources[number]
    engine.source_records(op.epoch_records or context.settings.epoch_records)
    if isinstance(end, ElsewhereEnd):
        stage = engine.no_source(op.label, number, source, op.schema)
    elif isinstance(end, TableEnd):
        chunks = list(end.chunks)
        stage = engine.table_source(op.label, number, source, chunks, op.schema, end.rate_per_s)
    elif isinstance(end, RateEnd):
        stage = engine.rate_source(
            op.label,
            number,
            source,
            op.schema,
            end.rate_per_s,
            end.total,
            end.start_us,
            end.first,
            True,
        )
    else:
        stage = engine.reader_source(op.label, number, source, op.schema, end.poll, end.position)
    return StageEnds(stage, stage)


def add_sink_stage(context: StageContext) -> StageEnds:
    assert isinstance(context.first_op, SinkOp)
    exchange = add_exchange_before(context, [])
    end = context.sinks.get(context.first)
    if end is None:  # another node has it
        assert exchange is not None
        return StageEnds(exchange.route, -1)
    stage = context.engine.sink_stage(context.name, context.first, end.write, end.keep, end.most)
    context.parts.sink_stages[context.first] = stage
    return connect_after(context, exchange, stage)


def add_union_stage(context: StageContext) -> StageEnds:
    carries = [list(context.pipeline.sources_of(before)) for before in context.stage.inputs]
    bits = context.parts.exchanges.union_bits.get(context.number, -1)
    stage = context.engine.union_stage(context.name, context.first, carries, bits)
    return StageEnds(stage, stage)


def add_native_stage(context: StageContext) -> StageEnds:
    add_operators(context, context.stage.operators)
    stage = context.engine.parallel_stage(context.name, False)
    return StageEnds(stage, stage)


def add_python_stage(context: StageContext) -> StageEnds:
    return StageEnds(*context.pools.add(context.pipeline, context.stage))


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
    # A batch may have one row only, and then as many batches must be out to keep it busy.
    in_flight = min(op.awaiting.concurrency, MOST_IN_FLIGHT)
    stage = context.engine.tray_stage(
        context.name, context.first, op.on_error, op.schema, call.tray, in_flight
    )
    return StageEnds(stage, stage)


def add_keyed_stage(context: StageContext) -> StageEnds:
    """A running aggregate, with the native operators before and after it."""
    add_operators(context, context.stage.operators)
    operators = (context.graph.operators[i] for i in context.stage.operators)
    op = next(op for op in operators if isinstance(op, AggregateOp))
    schema = context.input_schema(op)
    keys = [(i, schema[key].type) for i, key in enumerate(op.keys)]
    exchange = add_exchange_before(context, keys)
    lanes = 1 << (context.lane_bits if op.keys else 0)
    stage = context.engine.keyed_stage(context.name, lanes, context.settings.queue)
    return connect_after(context, exchange, stage)


def add_state_stage(context: StageContext) -> StageEnds:
    """A fold or a stateful function: state in Python, here or in worker processes."""
    from plait.node_runtime.state.folds import KeyedPython

    op, number, engine = context.first_op, context.first, context.engine
    assert isinstance(op, FoldOp | StatefulOp)
    schema, bin_bits = context.input_schema(op), context.settings.bin_bits
    keys = [(schema.index(key), schema[key].type) for key in op.keys]
    exchange = add_exchange_before(context, keys)
    state = KeyedPython(op, schema, bin_bits=bin_bits, number=number)
    lanes = context.pools.lanes(context.pipeline, number, state)
    if lanes is None:
        engine.call(number, op.on_error, state, op.schema, False)
        stage = engine.state_stage(context.name, state, not op.keys)
    else:
        native, measured = lanes
        engine.call(number, op.on_error, measured, op.schema, False)
        stage = engine.pooled_state_stage(
            context.name, measured, not op.keys, native, keys, bin_bits
        )
    return connect_after(context, exchange, stage)


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
