"""Stages of event-time operators (windows, joins, spans), of processes with timers, and of
operators with their own loop.

On several nodes their rows meet at one of them, and the operators after them run there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from plait.graph.delays import is_arrival, watermark_delays
from plait.graph.operators import EventTimeOp, SourceOp, TimedOp, upstream
from plait.graph.stages import origin_numbers, source_numbers
from plait.graph.temporal import OperatorSpec
from plait.node_runtime.assembly.exchange_builders import add_exchange
from plait.node_runtime.assembly.row_operators import (
    nan_filter,
    project_item,
    row_operators,
    state_errors,
)
from plait.node_runtime.assembly.stage_context import StageEnds
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.lowering.temporal import lower_timed
from plait.node_runtime.native._timed import NativeTimedPlan
from plait.node_runtime.native.stage_specs import (
    ParallelStageSpec,
    PoolLanesSpec,
    ProcessStageSpec,
    ProjectSpec,
    TimedStageSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.node_runtime.assembly.stage_context import StageContext
    from plait.node_runtime.native.stage_specs import (
        KeyColumns,
        RowOperatorSpec,
        StateErrorsSpec,
    )
    from plait.node_runtime.state.loop_operators import OperatorPython


def add_timed_stage(context: StageContext) -> StageEnds:
    """An event-time operator, with the native operators before and after it."""
    number = timed_number(context)
    at = context.stage.operators.index(number)
    timed = lower_plan(context, number)
    before = [*row_operators(context, context.stage.operators[:at]), *timed.inputs]
    after = row_operators(context, context.stage.operators[at + 1 :])
    alone = context.parts.seat is None
    spec = TimedStageSpec(
        stage=context.spec(),
        op=number,
        plan=timed.plan,
        queue=context.settings.queue,
        errors=timed.errors,
        before=before if alone else (),
        after=after if alone else (),
    )
    if alone:
        stage = context.engine.timed_stage(spec)
        return StageEnds(stage, stage)
    add = partial(context.engine.timed_stage, spec)
    ends = add_between_exchanges(context, timed.keys, add, before)
    if not after:
        return ends
    rest = context.engine.parallel_stage(ParallelStageSpec(stage=context.spec(), operators=after))
    context.engine.connect(ends.tail, rest, 0)
    return StageEnds(ends.head, rest)


def add_process_stage(context: StageContext) -> StageEnds:
    """A process with timers, or an operator with its own loop: it takes its rows as they come."""
    if context.parts.seat is None:
        stage = add_process(context)
        return StageEnds(stage, stage)
    return add_between_exchanges(context, process_keys(context), partial(add_process, context))


def add_between_exchanges(
    context: StageContext,
    keys: KeyColumns,
    add_the_stage: Callable[[], int],
    operators: Sequence[RowOperatorSpec] = (),
) -> StageEnds:
    """The stage between the exchange by key and the one where its rows are put in order; before
    both, if tags do not tell its rows apart, one by which they are indexed. `operators` run before
    the first exchange."""
    engine, exchanges, number = context.engine, context.parts.exchanges, context.number
    first = None
    if number in exchanges.first:
        first = add_exchange(context, [], exchanges.first[number], operators)
        operators = ()
    by_key = add_exchange(context, keys, exchanges.before[number], operators)
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


Origin = tuple[bool, bool, int, int, list[int], int, bool]


def timed_origins(context: StageContext) -> list[Origin]:
    """Of each origin of time of the job: what the stage knows of it, for `NativeTimedPlan`."""
    reaching = context.pipeline.sources_of(context.number)
    operators = context.graph.operators
    sources = source_numbers(context.graph)
    delays = watermark_delays(operators)[timed_number(context)]
    found: list[Origin] = []
    for number, origin in origin_numbers(context.graph).items():
        op = operators[number]
        named = not isinstance(op, SourceOp)
        above = [sources[i] for i in upstream(operators, number) if i in sources] if named else []
        reaches = not named and origin in reaching
        late = delays.get(number, 0)
        idle = op.idle_us if isinstance(op, EventTimeOp) else 0
        jump = op.max_jump_us if isinstance(op, SourceOp | EventTimeOp) else 0
        found.append((reaches, number in delays, late, jump, above, idle, is_arrival(op)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredPlan:
    """The native plan of an event-time operator, its key columns, the operators that prepare its
    rows, and what becomes of rows that do not fit a sum."""

    plan: NativeTimedPlan
    keys: KeyColumns
    inputs: list[RowOperatorSpec]
    errors: StateErrorsSpec


def lower_plan(context: StageContext, number: int) -> LoweredPlan:
    op = context.graph.operators[number]
    assert isinstance(op, TimedOp)
    schema = context.input_schema(op)
    timed = lower_timed(op, schema)
    errors = state_errors(context, op, timed.items, timed.aggregates)
    types = [
        schema.fields[i].type if isinstance(i, int) else lower(i, schema).type for i in timed.items
    ]
    plan = NativeTimedPlan(
        types=types,
        out_types=[field.type for field in op.schema],
        keys=timed.keys,
        aggregates=timed.aggregates,
        origins=timed_origins(context),
        numbers=timed.numbers,
        bin_bits=context.settings.bin_bits,
        lane_bits=context.lane_bits if op.keys else 0,
        sub_bits=context.parts.exchanges.place_bits.get(context.number, 0),
    )
    inputs: list[RowOperatorSpec] = [nan_filter(number, op, schema)]
    if not timed.whole_row:
        items = [i if isinstance(i, int) else project_item(i, schema) for i in timed.items]
        inputs.append(ProjectSpec(op=number, on_error=op.on_error, items=items, hidden=True))
    return LoweredPlan(plan=plan, keys=timed.keys, inputs=inputs, errors=errors)


def process_keys(context: StageContext) -> KeyColumns:
    """The key columns of a process."""
    op = context.first_op
    assert isinstance(op, TimedOp)
    schema = context.input_schema(op)
    return [(schema.index(key), schema[key].type) for key in op.keys]


def time_plan(context: StageContext) -> NativeTimedPlan:
    """Of a stage with state in Python: only what it says of time and order counts."""
    return NativeTimedPlan(
        types=[],
        out_types=[],
        keys=[],
        aggregates=[],
        origins=timed_origins(context),
        numbers={"kind": "Window"},
        bin_bits=0,
        lane_bits=0,
        sub_bits=context.parts.exchanges.place_bits.get(context.number, 0),
    )


def add_process(context: StageContext) -> int:
    from plait.node_runtime.state.processes import ProcessPython

    number, op, bin_bits = context.first, context.first_op, context.settings.bin_bits
    assert isinstance(op, TimedOp)
    state: Any
    pool = None
    pinned = isinstance(op.spec, OperatorSpec)
    if pinned:
        state = add_loop(context, op)
    else:
        state = process = ProcessPython(op, context.input_schema(op), bin_bits, number)
        process.opener = context.parts.opened.opener(op)
        lanes = context.pools.lanes(context.pipeline, number, state)
        there = None if lanes is None else lanes.native
        context.parts.timers[number] = lambda: (
            process.pending_timers() + (0 if there is None else there.timers)
        )
        if lanes is not None:
            state = lanes.state
            keys = process_keys(context)
            pool = PoolLanesSpec(lanes=lanes.native, keys=keys, bin_bits=bin_bits)
    return context.engine.process_stage(
        ProcessStageSpec(
            stage=context.spec(),
            op=number,
            on_error=op.on_error,
            plan=time_plan(context),
            state=state,
            schema=op.schema,
            keyless=not op.keys,
            pool=pool,
            pinned=pinned,
        )
    )


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
