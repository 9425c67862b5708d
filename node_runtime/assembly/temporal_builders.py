"""Stages of event-time operators (windows, joins, spans), of processes with timers, and of
operators with their own loop.

On several nodes their rows meet at one of them, and the operators after them run there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.operators import TimedOp
from plait.graph.temporal import OperatorSpec
from plait.node_runtime.assembly.exchange_builders import add_exchange
from plait.node_runtime.assembly.row_operators import add_operators, float_keys, project_item
from plait.node_runtime.assembly.stage_context import StageEnds, sources_of
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.lowering.temporal import lower_timed
from plait.node_runtime.native._timed import NativeTimedPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.model.schema import Type
    from plait.node_runtime.assembly.stage_context import StageContext
    from plait.node_runtime.state.loop_operators import OperatorPython


def add_timed_stage(context: StageContext) -> StageEnds:
    """An event-time operator, with the native operators before and after it."""
    number = timed_number(context)
    at = context.stage.operators.index(number)
    after = context.stage.operators[at + 1 :]
    add_operators(context, context.stage.operators[:at])
    keys = add_timed(context, number)

    def add_the_stage() -> int:
        stage: int = context.engine.timed_stage(context.name, context.settings.queue)
        return stage

    if context.parts.seat is None:
        add_operators(context, after)
        stage = add_the_stage()
        return StageEnds(stage, stage)
    ends = add_between_exchanges(context, keys, add_the_stage)
    if not after:
        return ends
    add_operators(context, after)
    rest: int = context.engine.parallel_stage(context.name, False)
    context.engine.connect(ends.tail, rest, 0)
    return StageEnds(ends.head, rest)


def add_process_stage(context: StageContext) -> StageEnds:
    """A process with timers, or an operator with its own loop: it takes its rows as they come."""
    if context.parts.seat is None:
        stage = add_process(context)
        return StageEnds(stage, stage)
    return add_between_exchanges(context, process_keys(context), lambda: add_process(context))


def add_between_exchanges(
    context: StageContext, keys: list[tuple[int, Type]], add_the_stage: Callable[[], int]
) -> StageEnds:
    """The stage between the exchange by key and the one where its rows are put in order; before
    both, if tags do not tell its rows apart, one by which they are indexed."""
    engine, exchanges, number = context.engine, context.parts.exchanges, context.number
    first = None
    if number in exchanges.first:
        first = add_exchange(context, [], exchanges.first[number])
    by_key = add_exchange(context, keys, exchanges.before[number])
    if first is not None:
        engine.connect(first.gather, by_key.route, 0)
    tail = add_the_stage()
    engine.connect(by_key.gather, tail, 0)
    if number in exchanges.behind:
        last = add_exchange(context, [], exchanges.behind[number])
        engine.connect(tail, last.route, 0)
        tail = last.gather
    return StageEnds(by_key.route if first is None else first.route, tail)


def timed_number(context: StageContext) -> int:
    operators = context.graph.operators
    return next(i for i in context.stage.operators if isinstance(operators[i], TimedOp))


def timed_sources(context: StageContext) -> list[tuple[bool, bool, int, int]]:
    """Of each source of the job: whether it reaches the stage, and what is known of its time."""
    reach = context.pipeline.sources_of(context.number)
    return [
        (i in reach, source.event_time is not None, source.out_of_order_us, source.max_jump_us)
        for i, source in enumerate(sources_of(context.graph))
    ]


def add_timed(context: StageContext, number: int) -> list[tuple[int, Type]]:
    """The operator's plan; its input is projected first. Gives its key columns."""
    engine, op = context.engine, context.graph.operators[number]
    assert isinstance(op, TimedOp)
    schema = context.input_schema(op)
    timed = lower_timed(op, schema)
    types = [
        schema.fields[i].type if isinstance(i, int) else lower(i, schema).type for i in timed.items
    ]
    native = NativeTimedPlan(
        types,
        [field.type for field in op.schema],
        timed.keys,
        timed.aggregates,
        timed_sources(context),
        timed.numbers,
        context.settings.bin_bits,
        context.lane_bits if op.keys else 0,
        context.parts.exchanges.place_bits.get(context.number, 0),
    )
    engine.key_guard(number, op.on_error, float_keys(op.keys, schema))
    if not timed.whole_row:
        items = [i if isinstance(i, int) else project_item(i, schema) for i in timed.items]
        engine.project(number, op.on_error, items, True)
    engine.timed(number, native)
    return timed.keys


def process_keys(context: StageContext) -> list[tuple[int, Type]]:
    """The key columns of a process."""
    op = context.first_op
    assert isinstance(op, TimedOp)
    schema = context.input_schema(op)
    return [(schema.index(key), schema[key].type) for key in op.keys]


def add_process(context: StageContext) -> int:
    from plait.node_runtime.state.processes import ProcessPython

    engine, name, number, op = context.engine, context.name, context.first, context.first_op
    assert isinstance(op, TimedOp)
    bin_bits = context.settings.bin_bits
    # Of the plan only what it says of time and order counts.
    sub_bits = context.parts.exchanges.place_bits.get(context.number, 0)
    sources = timed_sources(context)
    native = NativeTimedPlan([], [], [], [], sources, {"kind": "Window"}, 0, 0, sub_bits)
    stage: int
    if isinstance(op.spec, OperatorSpec):
        loop = add_loop(context, op)
        stage = engine.process_stage(
            name, number, op.on_error, native, loop, op.schema, not op.keys, True
        )
        return stage
    state = ProcessPython(op, context.input_schema(op), bin_bits, number)
    lanes = context.pools.lanes(context.pipeline, number, state)
    if lanes is None:
        stage = engine.process_stage(
            name, number, op.on_error, native, state, op.schema, not op.keys
        )
        return stage
    stage = engine.pooled_process_stage(
        name,
        number,
        op.on_error,
        native,
        lanes[1],
        op.schema,
        not op.keys,
        lanes[0],
        process_keys(context),
        bin_bits,
    )
    return stage


def add_loop(context: StageContext, op: TimedOp) -> OperatorPython:
    """An operator with its own loop; its ports end when the sources that reach them do."""
    from plait.node_runtime.state.loop_operators import OperatorPython

    pipeline, seat = context.pipeline, context.parts.seat
    inputs = context.stage.inputs
    assert isinstance(op.spec, OperatorSpec)
    if len(op.spec.inputs) > 1:  # its streams are one, the union of them
        inputs = pipeline.stages[inputs[0]].inputs
    here = seat is None or seat.rank == seat.home
    reaching = [pipeline.sources_of(before) for before in inputs]
    state = OperatorPython(op, context.input_schema(op), reaching, context.first, here)
    context.parts.operators.append(state)
    return state
