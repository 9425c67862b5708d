"""From a plan to a native engine: lowers expressions, wraps user functions, and puts the stages
together.

Pure decisions are in `plait.graph.stages` and, for a job on several nodes, in
`lowering.exchanges`; this module turns them into calls of the native builder. What is
outside the engine (readers, writers) comes in as functions, so that nothing here opens or closes
anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.graph.operators import (
    AggregateOp,
    CallOp,
    FilterOp,
    FoldOp,
    ProjectOp,
    SinkOp,
    SourceOp,
    StatefulOp,
    TimedOp,
    UnionOp,
)
from plait.graph.stages import Pipeline, PipelineStage, source_numbers
from plait.graph.temporal import OperatorSpec, ProcessSpec
from plait.model.schema import Type
from plait.model.settings import THREADINGS
from plait.node_runtime.assembly.engine_parts import (
    Built,
    ElsewhereEnd,
    RateEnd,
    Seat,
    SinkEnd,
    SourceEnd,
    TableEnd,
)
from plait.node_runtime.lowering.exchanges import Exchange, ExchangePlan, paced_rows, plan_exchanges
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.lowering.temporal import lowered
from plait.node_runtime.native._engine import NativeEngine
from plait.node_runtime.native._kernels import NativeProgram
from plait.node_runtime.native._timed import NativeTimedPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.expr.tree import Expr
    from plait.graph.operators import Graph, Op
    from plait.model.schema import Schema
    from plait.model.settings import Settings
    from plait.node_runtime.pool.stages import Pools
    from plait.node_runtime.state.loop_operators import OperatorPython

ON_ERROR = {"fail": 0, "skip": 1, "dead_letter": 2}
BEAT_US = 20_000
"""So often units come in jobs with timers by the wall clock."""
QUEUES = {"lanes": 0, "hybrid": 1, "partitioned": 2, "shared": 3}


def lane_bits_of(settings: Settings) -> int:
    wanted = settings.lanes if settings.lanes is not None else settings.threads
    return min((wanted - 1).bit_length(), settings.bin_bits)


def build(
    plan: Pipeline,
    settings: Settings,
    sources: Mapping[int, SourceEnd],
    sinks: Mapping[int, SinkEnd],
    seat: Seat | None = None,
) -> Built:
    """An engine for `plan`; `sources` and `sinks` are the ends by operator of the graph; `seat`:
    the job runs on several nodes, and this is one of them."""
    graph = plan.graph
    engine = NativeEngine(
        len(graph.operators),
        len(source_numbers(graph)),
        settings.threads,
        settings.scheduler if isinstance(settings.scheduler, str) else "ct",
        settings.slice_us * 1e3,
        settings.queue_batches,
        settings.queue_records,
        settings.queue_bytes,
        settings.reorder == "locked",
        settings.epoch_records,
        -1 if settings.limit is None else settings.limit,
        seat.cluster if seat else None,
    )
    exchanges = plan_exchanges(plan, settings.order == "total") if seat else ExchangePlan()
    built = Built(engine, seat, exchanges)
    regions = {one: i for i, one in enumerate(dict.fromkeys(s.region for s in plan.stages), 1)}
    before_state = plan.before_state
    engine.scheduler_seed(settings.scheduler_seed)
    for number, stage in enumerate(plan.stages):
        model = settings.threading if stage.region is None else stage.region.threading
        ordered = settings.order != "none" or number in before_state
        engine.place(THREADINGS.index(model), regions[stage.region], ordered)
        add_stage(plan, number, settings, built, sources, sinks)
        for position, before in enumerate(stage.inputs):
            engine.connect(built.tails[before], built.heads[number], position)
    if any(stage.kind in ("timed", "process") for stage in plan.stages):
        for source, op in enumerate(graph.sources):
            add_event_time(engine, source, graph.operators[op])
    if any(goes_by_the_clock(op) for op in graph.operators):
        engine.beat(BEAT_US)
    if seat:
        ends = {source: sources[op] for source, op in enumerate(graph.sources)}
        rates = {i: e.rate_per_s for i, e in ends.items() if isinstance(e, TableEnd | RateEnd)}
        for source, rows in paced_rows(rates, settings.epoch_records).items():
            engine.pace(source, rows)
        for source, own in enumerate(one.epoch_records for one in sources_of(graph)):
            if own is not None and not rates.get(source):
                engine.pace(source, own)
    if not isinstance(settings.scheduler, str):
        engine.use_scheduler(settings.scheduler)
    return built


def add_stage(
    plan: Pipeline,
    number: int,
    settings: Settings,
    built: Built,
    sources: Mapping[int, SourceEnd],
    sinks: Mapping[int, SinkEnd],
) -> None:
    stage = plan.stages[number]
    engine, op = built.engine, plan.graph.operators[stage.operators[0]]
    name = stage_name(plan, stage)
    exchanged: Exchanged | None = None
    head = tail = -1
    if isinstance(op, SourceOp):
        tail = add_source(engine, plan, stage, op, sources[stage.operators[0]], settings)
    elif isinstance(op, SinkOp):
        exchanged = add_exchange(built, plan, number, settings, [])
        if stage.operators[0] in sinks:
            end = sinks[stage.operators[0]]
            tail = engine.sink_stage(name, stage.operators[0], end.write, end.keep, end.most)
            built.sink_stages[stage.operators[0]] = tail
    elif isinstance(op, UnionOp):
        carries = [list(plan.sources_of(before)) for before in stage.inputs]
        bits = built.exchanges.union_bits.get(number, -1)
        tail = engine.union_stage(name, stage.operators[0], carries, bits)
    elif isinstance(op, FoldOp | StatefulOp):
        given = schema_in(plan, op)
        keys = [(given.index(key), given[key].type) for key in op.keys]
        exchanged = add_exchange(built, plan, number, settings, keys)
        tail = add_state(built, plan, stage, op, settings)
    elif stage.kind in ("timed", "process"):
        exchanged, tail = add_timed_stage(built, plan, number, settings)
    elif stage.kind == "async":
        tail = add_async_stage(built, plan, stage)
    elif stage.kind == "python":
        head, tail = pools_of(built, settings).add(plan, stage)
    else:
        for operator in stage.operators:
            add_operator(engine, plan, operator, settings)
        if stage.kind == "keyed":
            keyed = keyed_op(plan, stage)
            given = schema_in(plan, keyed)
            keys = [(i, given[key].type) for i, key in enumerate(keyed.keys)]
            exchanged = add_exchange(built, plan, number, settings, keys)
            lanes = 1 << (lane_bits_of(settings) if keyed.keys else 0)
            tail = engine.keyed_stage(name, lanes, QUEUES[settings.queue])
        else:
            tail = engine.parallel_stage(name, False)
    if exchanged is None:
        built.heads.append(tail if head < 0 else head)
    else:
        built.heads.append(exchanged.route)
        if exchanged.gather >= 0 and stage.kind not in ("timed", "process"):
            engine.connect(exchanged.gather, tail, 0)
    built.tails.append(tail)
    if tail >= 0:
        engine.last_operator(tail, stage.last)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The two sides of an exchange among the engine's stages; gather -1: no part comes here."""

    route: int
    gather: int


def add_exchange(
    built: Built, plan: Pipeline, number: int, settings: Settings, keys: list[tuple[int, Type]]
) -> Exchanged | None:
    """The exchange in front of a stage, if it has one; operators added so far run before it."""
    exchange = built.exchanges.before.get(number)
    return (
        None if exchange is None else exchange_stages(built, plan, number, settings, keys, exchange)
    )


def exchange_stages(
    built: Built,
    plan: Pipeline,
    number: int,
    settings: Settings,
    keys: list[tuple[int, Type]],
    exchange: Exchange,
) -> Exchanged:
    assert built.seat is not None
    stage, engine, seat = plan.stages[number], built.engine, built.seat
    name = stage_name(plan, stage)
    op = next((n for n in stage.operators if is_state(plan.graph.operators[n])), stage.operators[0])
    route = engine.route_stage(
        f"to {name}",
        exchange.channel,
        exchange.by,
        op,
        keys,
        settings.bin_bits,
        seat.home,
        exchange.repeats,
        exchange.tags,
    )
    if exchange.by == "home" and seat.rank != seat.home:
        return Exchanged(route, -1)
    sources = list(plan.sources_of(number))
    gather = engine.gather_stage(
        f"at {name}",
        exchange.channel,
        op,
        sources,
        exchange.unique,
        exchange.tags,
        exchange.index,
    )
    engine.connect(route, gather, 0)
    return Exchanged(route, gather)


def is_state(op: Op) -> bool:
    return isinstance(op, AggregateOp | FoldOp | StatefulOp | TimedOp)


def stage_name(plan: Pipeline, stage: PipelineStage) -> str:
    return " + ".join(plan.graph.operators[n].name for n in stage.operators)


def add_source(
    engine: NativeEngine,
    plan: Pipeline,
    stage: PipelineStage,
    op: SourceOp,
    end: SourceEnd,
    settings: Settings,
) -> int:
    number = stage.operators[0]
    source = source_numbers(plan.graph)[number]
    engine.source_records(op.epoch_records or settings.epoch_records)
    made: int
    if isinstance(end, ElsewhereEnd):
        made = engine.no_source(op.label, number, source, op.schema)
    elif isinstance(end, TableEnd):
        made = engine.table_source(
            op.label, number, source, list(end.chunks), op.schema, end.rate_per_s
        )
    elif isinstance(end, RateEnd):
        made = engine.rate_source(
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
        made = engine.reader_source(op.label, number, source, op.schema, end.poll, end.position)
    return made


def add_event_time(engine: NativeEngine, source: int, op: Op) -> None:
    assert isinstance(op, SourceOp)
    if op.event_time is not None:
        engine.event_time(source, op.schema.index(op.event_time), op.idle_us)


def goes_by_the_clock(op: Op) -> bool:
    """Whether the operator has timers by the wall clock."""
    if not isinstance(op, TimedOp) or not isinstance(op.spec, ProcessSpec):
        return False
    return hasattr(op.spec.process, "on_timeout")


def add_timed_stage(
    built: Built, plan: Pipeline, number: int, settings: Settings
) -> tuple[Exchanged | None, int]:
    """An operator that knows time. On several nodes its rows meet at one of them, and the operators
    behind it run there."""
    stage, engine = plan.stages[number], built.engine
    timed = next(i for i in stage.operators if isinstance(plan.graph.operators[i], TimedOp))
    at = stage.operators.index(timed)
    for operator in stage.operators[:at]:
        add_operator(engine, plan, operator, settings)
    is_process = stage.kind == "process"
    keys = (process_keys if is_process else add_timed)(built, plan, number, timed, settings)
    name = stage_name(plan, stage)
    if built.seat is None:
        for operator in stage.operators[at + 1 :]:
            add_operator(engine, plan, operator, settings)
        if is_process:
            return None, add_process(built, plan, number, settings)
        return None, engine.timed_stage(name, QUEUES[settings.queue])
    exchanges = built.exchanges
    head = -1
    if number in exchanges.first:
        first = exchange_stages(built, plan, number, settings, [], exchanges.first[number])
        head = first.route
    by_key = exchange_stages(built, plan, number, settings, keys, exchanges.before[number])
    if head < 0:
        head = by_key.route
    else:
        engine.connect(first.gather, by_key.route, 0)
    made = (
        add_process(built, plan, number, settings)
        if is_process
        else engine.timed_stage(name, QUEUES[settings.queue])
    )
    engine.connect(by_key.gather, made, 0)
    tail = made
    if number in exchanges.behind:
        met = exchange_stages(built, plan, number, settings, [], exchanges.behind[number])
        engine.connect(made, met.route, 0)
        tail = met.gather
    if stage.operators[at + 1 :]:
        for operator in stage.operators[at + 1 :]:
            add_operator(engine, plan, operator, settings)
        behind = engine.parallel_stage(name, False)
        engine.connect(tail, behind, 0)
        tail = behind
    return Exchanged(head, by_key.gather), tail


def add_timed(
    built: Built, plan: Pipeline, stage: int, number: int, settings: Settings
) -> list[tuple[int, Type]]:
    """The operator's plan; its input is projected first. Gives its key columns."""
    graph, engine = plan.graph, built.engine
    op = graph.operators[number]
    assert isinstance(op, TimedOp)
    given = schema_in(plan, op)
    made = lowered(op, given)
    types = [
        given.fields[i].type if isinstance(i, int) else lower(i, given).type for i in made.items
    ]
    lane_bits = lane_bits_of(settings) if op.keys else 0
    native = NativeTimedPlan(
        types,
        [field.type for field in op.schema],
        made.keys,
        made.aggregates,
        timed_sources(plan, stage),
        made.numbers,
        settings.bin_bits,
        lane_bits,
        built.exchanges.place_bits.get(stage, 0),
    )
    on_error = ON_ERROR[op.on_error]
    float_keys = [given.index(key) for key in op.keys if given[key].type is Type.FLOAT64]
    engine.key_guard(number, on_error, float_keys)
    if not made.whole_row:
        items = [i if isinstance(i, int) else project_item(i, given) for i in made.items]
        engine.project(number, on_error, items, True)
    engine.timed(number, native)
    return made.keys


def process_keys(
    built: Built, plan: Pipeline, stage: int, number: int, settings: Settings
) -> list[tuple[int, Type]]:
    """The key columns of a process, which takes its rows as they come."""
    op = plan.graph.operators[number]
    assert isinstance(op, TimedOp)
    given = schema_in(plan, op)
    return [(given.index(key), given[key].type) for key in op.keys]


def add_process(built: Built, plan: Pipeline, stage: int, settings: Settings) -> int:
    from plait.node_runtime.state.processes import ProcessPython

    number = plan.stages[stage].operators[0]
    op = plan.graph.operators[number]
    assert isinstance(op, TimedOp)
    given = schema_in(plan, op)
    # Only what it says of time and order counts.
    sub_bits = built.exchanges.place_bits.get(stage, 0)
    sources = timed_sources(plan, stage)
    native = NativeTimedPlan([], [], [], [], sources, {"kind": "Window"}, 0, 0, sub_bits)
    name, on_error = stage_name(plan, plan.stages[stage]), ON_ERROR[op.on_error]
    made: int
    if isinstance(op.spec, OperatorSpec):
        loop = add_loop(built, plan, stage, number, op)
        made = built.engine.process_stage(
            name, number, on_error, native, loop, op.schema, not op.keys, True
        )
        return made
    state = ProcessPython(op, given, settings.bin_bits, number)
    lanes = pools_of(built, settings).lanes(plan, number, state)
    if lanes is None:
        made = built.engine.process_stage(
            name, number, on_error, native, state, op.schema, not op.keys
        )
        return made
    keys = process_keys(built, plan, stage, number, settings)
    made = built.engine.pooled_process_stage(
        name,
        number,
        on_error,
        native,
        lanes[1],
        op.schema,
        not op.keys,
        lanes[0],
        keys,
        settings.bin_bits,
    )
    return made


def add_loop(built: Built, plan: Pipeline, stage: int, number: int, op: TimedOp) -> OperatorPython:
    """An operator with its own loop; its ports are over when the sources that reach them are."""
    from plait.node_runtime.state.loop_operators import OperatorPython

    inputs = plan.stages[stage].inputs
    united = plan.stages[inputs[0]]
    assert isinstance(op.spec, OperatorSpec)
    if len(op.spec.inputs) > 1:
        inputs = united.inputs
    here = built.seat is None or built.seat.rank == built.seat.home
    reaching = [plan.sources_of(one) for one in inputs]
    state = OperatorPython(op, schema_in(plan, op), reaching, number, here)
    built.operators.append(state)
    return state


def timed_sources(plan: Pipeline, stage: int) -> list[tuple[bool, bool, int, int]]:
    """Of each source of the job: whether it reaches the stage, and what is known of its time."""
    reach = plan.sources_of(stage)
    return [
        (i in reach, source.event_time is not None, source.out_of_order_us, source.max_jump_us)
        for i, source in enumerate(sources_of(plan.graph))
    ]


def sources_of(graph: Graph) -> list[SourceOp]:
    return [op for op in graph.operators if isinstance(op, SourceOp)]


def schema_in(plan: Pipeline, op: Op) -> Schema:
    return plan.graph.operators[op.inputs[0]].schema


def add_operator(engine: NativeEngine, plan: Pipeline, number: int, settings: Settings) -> None:
    op = plan.graph.operators[number]
    on_error = ON_ERROR[op.on_error]
    given = schema_in(plan, op)
    match op:
        case FilterOp():
            engine.filter(number, on_error, NativeProgram(lower(op.predicate, given)))
        case ProjectOp():
            items = [project_item(expr, given) for _, expr in op.columns]
            engine.project(number, on_error, items)
        case AggregateOp():
            add_aggregate(engine, plan, number, op, settings)
        case _:
            raise AssertionError(f"{op} does not run inside a stage")


MOST_IN_FLIGHT = 4096
"""Batches of one operator that are awaited at a time."""


def add_async_stage(built: Built, plan: Pipeline, stage: PipelineStage) -> int:
    """A function that is awaited, in the one loop of the engine."""
    from plait.node_runtime.functions.awaited import AsyncCall
    from plait.node_runtime.functions.event_loop import AsyncLoop

    number = stage.operators[0]
    op = plan.graph.operators[number]
    assert isinstance(op, CallOp)
    assert op.awaiting is not None
    if built.loop is None:
        built.loop = AsyncLoop()
        built.helpers.append(built.loop)
    call = AsyncCall(op, schema_in(plan, op))
    built.loop.add(call)
    # A batch may have one row only, and then so many batches must be out to keep it busy.
    in_flight = min(op.awaiting.concurrency, MOST_IN_FLIGHT)
    name, on_error = stage_name(plan, stage), ON_ERROR[op.on_error]
    made: int = built.engine.tray_stage(name, number, on_error, op.schema, call.tray, in_flight)
    return made


def project_item(expr: Expr, schema: Schema) -> NativeProgram | int:
    lowered = lower(expr, schema)
    return lowered.passthrough if lowered.passthrough is not None else NativeProgram(lowered)


def keyed_op(plan: Pipeline, stage: PipelineStage) -> AggregateOp:
    return next(n for i in stage.operators if isinstance(n := plan.graph.operators[i], AggregateOp))


def add_aggregate(
    engine: NativeEngine, plan: Pipeline, number: int, op: AggregateOp, settings: Settings
) -> None:
    """Keys and the aggregates' inputs are projected first; the state reads them by position."""
    given = schema_in(plan, op)
    on_error = ON_ERROR[op.on_error]
    items: list[NativeProgram | int] = [given.index(key) for key in op.keys]
    aggregates: list[tuple[str, int, Type, bool]] = []
    for _, aggregate in op.aggregates:
        if aggregate.over is None:
            aggregates.append((aggregate.kind, -1, Type.INT64, False))
            continue
        lowered = lower(aggregate.over, given)
        aggregates.append((aggregate.kind, len(items), lowered.type, lowered.nullable))
        passed = lowered.passthrough
        items.append(passed if passed is not None else NativeProgram(lowered))
    keys = [(i, given[key].type) for i, key in enumerate(op.keys)]
    float_keys = [given.index(key) for key in op.keys if given[key].type is Type.FLOAT64]
    engine.key_guard(number, on_error, float_keys)
    engine.project(number, on_error, items, True)
    lane_bits = lane_bits_of(settings) if op.keys else 0
    engine.keyed(number, keys, aggregates, settings.bin_bits, lane_bits)


def add_state(
    built: Built,
    plan: Pipeline,
    stage: PipelineStage,
    op: FoldOp | StatefulOp,
    settings: Settings,
) -> int:
    from plait.node_runtime.state.folds import KeyedPython

    number, name, bin_bits = stage.operators[0], stage_name(plan, stage), settings.bin_bits
    given = schema_in(plan, op)
    state = KeyedPython(op, given, bin_bits=bin_bits, number=number)
    on_error = ON_ERROR[op.on_error]
    lanes = pools_of(built, settings).lanes(plan, number, state)
    made: int
    if lanes is None:
        built.engine.call(number, on_error, state, op.schema, False)
        made = built.engine.state_stage(name, state, not op.keys)
    else:
        built.engine.call(number, on_error, lanes[1], op.schema, False)
        keys = [(given.index(key), given[key].type) for key in op.keys]
        made = built.engine.pooled_state_stage(
            name, lanes[1], not op.keys, lanes[0], keys, bin_bits
        )
    return made


def pools_of(built: Built, settings: Settings) -> Pools:
    """Where plain Python functions run, made for the first of them."""
    from plait.node_runtime.pool.stages import Pools

    if built.pools is None:
        built.pools = Pools(built.engine, settings)
        built.helpers.append(built.pools)
    return built.pools
