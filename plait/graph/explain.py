"""Explains a job: its stages, what was fused, and the route that every function took, with the
reason.

stage 2  keyed   filter at carts.py:14 + count at carts.py:16
                 filter (col("price") > 100)        kernel: native, all workers, no interpreter
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.expr.text import text
from plait.functions.pickling import why_not
from plait.graph.checkpoint_rules import several_decide
from plait.graph.operators import (
    AggregateOp,
    AnyOp,
    Awaiting,
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
from plait.graph.routes import functions_of, processes_of, route_of_call
from plait.graph.source_order import order_text
from plait.graph.stages import Pipeline, PipelineStage, kind_of, make_pipeline
from plait.graph.state_types import describe, state_type
from plait.graph.temporal import OperatorSpec
from plait.graph.temporal_text import kept_lines, length, results_text, spec_text
from plait.model.schedulers import name_of as name_of_scheduler
from plait.model.settings import Settings, unknown_setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.expr.tree import Expr
    from plait.graph.routes import StateNode

KINDS = {
    "source": "one worker at a time",
    "native": "any number of workers, output put back in order",
    "python": "one worker at a time holds the interpreter, or worker processes, output in order",
    "async": "an event loop beside the workers, output put back in order",
    "keyed": "workers share the lanes of the key space, output put back in order",
    "timed": "workers share the lanes of the key space and of time, output put back in order",
    "state": "one worker at a time, or worker processes by key, output put back in order",
    "process": "one worker at a time, or worker processes by key, output put back in order",
    "union": "one worker at a time, by order tag",
    "sink": "one worker at a time, in order",
}


def explain(graph: Graph, settings: Settings | None = None, *, checkpoint: bool = False) -> str:
    """The plan of a job as text. `checkpoint`: with what its sources and sinks do in a job with
    checkpoints."""
    chosen = settings or Settings()
    pipeline = make_pipeline(graph, chosen.fuse)
    lines = [f"job {graph.name}: {head(graph, chosen)}"]
    for number, stage in enumerate(pipeline.stages):
        lines += stage_lines(pipeline, number, stage, chosen, checkpoint)
    if checkpoint and graph.dead_letters is not None:
        name = type(graph.dead_letters).__name__
        lines.append(
            f"dead letters: {name}: {delivery_text(graph.dead_letters, several_decide(graph))}"
        )
    return "\n".join(lines)


def explain_text(graph: Graph, settings: dict[str, Any]) -> str:
    """The plan as text, with settings as a user gives them; `checkpoint=` is one of them."""
    plain = {name: value for name, value in settings.items() if name != "checkpoint"}
    try:
        chosen = Settings(**plain)
    except TypeError as error:
        raise JobError(f"explain: {unknown_setting(plain) or error}") from None
    return explain(graph, chosen, checkpoint=settings.get("checkpoint") is not None)


def head(graph: Graph, settings: Settings) -> str:
    order = order_text(graph, settings.order)
    return (
        f"{threads_text(settings)}, {order}, epochs of at most {settings.epoch_records:,} records"
    )


def threads_text(settings: Settings) -> str:
    match settings.threading:
        case "manual":
            return "one thread"
        case "dedicated":
            return "a thread for each stage"
        case _:
            return f"{workers_text(settings)}, scheduler {name_of_scheduler(settings.scheduler)}"


def workers_text(settings: Settings) -> str:
    count = f"{settings.workers} workers"
    if settings.workers == "elastic":
        by = "throughput" if settings.elastic_rule == "trend" else "utilisation"
        count = f"{settings.min_workers} to {settings.threads} workers by {by}"
    if settings.stage_parallelism == "elastic":
        count += ", those of each stage by its worklist"
    elif settings.stage_parallelism != "free":
        count += f", at most {settings.stage_parallelism} in a stage"
    return count


def stage_lines(
    pipeline: Pipeline, number: int, stage: PipelineStage, settings: Settings, checkpoint: bool
) -> Iterator[str]:
    came = f" from {', '.join(f'stage {i}' for i in stage.inputs)}" if stage.inputs else ""
    fused = f" ({len(stage.operators)} operators fused)" if len(stage.operators) > 1 else ""
    yield f"stage {number}: {stage.kind}{fused}{came}: {KINDS[stage.kind]}"
    if stage.region is not None:
        yield f"  region {stage.region.name}: {stage.region.threading}"
    for i in stage.operators:
        op = pipeline.graph.operators[i]
        route, why = route_of(op, pipeline.graph, settings)
        yield f"  {op}: {what_of(op, pipeline.graph)}"
        yield f"    {route}: {why}"
        if isinstance(op, TimedOp):
            yield from (f"    {line}" for line in kept_lines(op.spec))
        if isinstance(op, CallOp) and op.retrying is not None:
            pause = length(op.retrying.backoff_us)
            yield f"    tries: {op.retrying.retries + 1}, the second after {pause}"
        if op.on_error != "fail":
            yield f"    bad records: {op.on_error}"
        if checkpoint and isinstance(op, SourceOp):
            yield f"    after a crash: {replay_text(op.source)}"
        if checkpoint and isinstance(op, FoldOp | StatefulOp):
            yield f"    saved: {saved_text(op)}"
        if checkpoint and isinstance(op, SinkOp):
            yield f"    delivery: {delivery_text(op.sink, several_decide(pipeline.graph))}"


def replay_text(source: Any) -> str:
    """What a source does in a job with checkpoints."""
    if source.replayable:
        return "read again from the last checkpoint"
    return "cannot be read again, so checkpoint= is refused"


def saved_text(op: FoldOp | StatefulOp) -> str:
    """How a checkpoint keeps the state of a function."""
    kind = state_type(op)
    if describe(kind) is None:
        return "as a pickle; declare the type of the state to have plain data"
    return f"as plain data, {kind.__name__ if isinstance(kind, type) else kind}"


def delivery_text(sink: Any, several: bool = False) -> str:
    """What a sink does in a job with checkpoints; `several`: others decide, too."""
    match sink.kind:
        case "decider" if sink.commit is not None:
            return (
                f"exactly once, visible after {sink.commit}; functions before it must give the same"
                " again"
            )
        case "decider" if several:
            return (
                "exactly once, the sinks commit one after the other; after a crash between them"
                " functions must give the same again"
            )
        case "follower":
            return "exactly once, visible when the checkpoint is safe"
        case "decider":
            return "exactly once, the sink decides which checkpoint counts"
        case _:
            return "at least once, records since the last checkpoint may come again"


def what_of(op: AnyOp, graph: Graph) -> str:
    """What the user asked for, in a line."""
    match op:
        case SourceOp():
            words = f"{type(op.source).__name__} {op.label} ({op.schema})"
            return words + source_time_text(op)
        case FilterOp():
            return text(op.predicate)
        case EventTimeOp():
            return text(op.time) + how_late(op)
        case ProjectOp():
            return ", ".join(f"{name}={text(expr)}" for name, expr in op.columns)
        case CallOp():
            if op.columns:
                return ", ".join(f"{name}={name_of(function)}" for name, function in op.columns)
            return name_of(op.function)
        case AggregateOp():
            return f"{by(op.keys)}: {results_text(op.aggregates)}"
        case TimedOp():
            return f"{by(op.keys)}, {spec_text(op.spec)}"
        case FoldOp() | StatefulOp():
            return f"{by(op.keys)}: {name_of(op.step)}"
        case UnionOp():
            return f"{len(op.inputs)} streams"
        case ShedOp():
            return samples_text(op, graph)
        case SinkOp():
            return f"{type(op.sink).__name__} {op.label}"


def samples_text(op: ShedOp, graph: Graph) -> str:
    """Which records it lets through, and for whom."""
    labels = [sink.label for sink in graph.operators if isinstance(sink, SinkOp)]
    parts = []
    for sample in op.samples:
        how = f"whole keys of {', '.join(sample.columns)}" if sample.columns else "records"
        parts.append(f"{how} for {', '.join(labels[query] for query in sample.queries)}")
    told = f", told as {op.ratio}" if op.ratio else ""
    return " or ".join(parts) + told


def source_time_text(op: SourceOp) -> str:
    """What the source says of event time."""
    if op.event_time is None:
        return ""
    parts = " by partition" if op.clock is not None else ""
    return f"; event time {op.event_time}{parts}{how_late(op)}"


def how_late(op: SourceOp | EventTimeOp) -> str:
    idle = f", idle after {length(op.idle_us)}" if op.idle_us else ""
    return f", out of order by {length(op.out_of_order_us)}{idle}"


def by(keys: tuple[str, ...]) -> str:
    return f"by {', '.join(keys)}" if keys else "one state for all records"


def name_of(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def route_of(op: AnyOp, graph: Graph, settings: Settings) -> tuple[str, str]:
    """The route of an operator, and why it got it."""
    match op:
        case SourceOp():
            native = type(op.source).__name__ in ("Table", "Rate")
            if native:
                return "native", "sliced in memory, without the interpreter"
            return "python", "the reader is asked in the interpreter, a batch at a time"
        case FilterOp() | ProjectOp() | EventTimeOp():
            return expression_route(expressions(op))
        case CallOp(awaiting=Awaiting() as awaiting):
            return "async", f"awaited in the engine's event loop, {awaiting_text(awaiting)}"
        case CallOp():
            return call_route(op, graph, settings)
        case AggregateOp():
            bins = f"{1 << settings.bin_bits} bins" if op.keys else "one state"
            return "native", f"typed state in flat tables, {bins}, queue {settings.queue}"
        case TimedOp(spec=OperatorSpec()):
            return (
                "inline",
                "a coroutine in Python with its own loop: one core; it stays on its node",
            )
        case TimedOp() if kind_of(op) == "process":
            return state_route(op, graph, settings)
        case TimedOp():
            bins = f"{1 << settings.bin_bits} bins" if op.keys else "one state"
            return "native", f"typed state by key and time, {bins}; no interpreter"
        case FoldOp() | StatefulOp():
            return state_route(op, graph, settings)
        case UnionOp():
            return "native", "merged by order tag"
        case ShedOp():
            return "native", f"before anything else of its stage; {op.why}"
        case SinkOp():
            native = type(op.sink).__name__ in ("Collect", "Discard")
            if native:
                return "native", "batches are kept or let go without the interpreter"
            return "python", "the writer gets a batch at a time in the interpreter"


def awaiting_text(awaiting: Awaiting) -> str:
    limit = "no limit" if awaiting.timeout_us is None else f"at most {length(awaiting.timeout_us)}"
    tries = f", {awaiting.retries + 1} tries" if awaiting.retries else ""
    return f"up to {awaiting.concurrency:,} records at a time, {limit} each{tries}"


def call_route(op: CallOp, graph: Graph, settings: Settings) -> tuple[str, str]:
    """Of a function, before a run: what is decided, and by what rule the rest will be."""
    whole = op.mode == "batches"
    called = (
        "a function of Arrow batches, called" if whole else "plain Python: called for each record"
    )
    name = "batch" if whole else "inline"
    here = f"{called} in the interpreter, one core"
    routed = route_of_call(op, graph, settings)
    there = f"{processes_of(settings)} worker processes, in order"
    if routed.route == "pool":
        return "pool", f"{called} in {there} ({routed.why})"
    if routed.route == "auto" and (said := why_not(op.functions)) is not None:
        return name, f"{here} (it cannot be sent to worker processes: {said})"
    if routed.route == "auto":
        return name, f"{here}; when it has cost 50 ms, and 20 us a batch, in {there}"
    better = "" if whole else "; an expression or @plait.compiled would use all"
    return name, f"{here} ({routed.why}){better}"


def state_route(op: StateNode, graph: Graph, settings: Settings) -> tuple[str, str]:
    """The same of an operator with keyed state in Python."""
    what = "state and function are Python objects"
    routed = route_of_call(op, graph, settings)
    processes = processes_of(settings) if op.keys else 1
    there = f"in {processes} worker processes, each with a part of the keys, in order"
    if routed.route == "pool":
        return "pool", f"{what}: {there} ({routed.why})"
    if routed.route == "auto" and (said := why_not(functions_of(op))) is not None:
        return "inline", f"{what}: one core (it cannot be sent to worker processes: {said})"
    if routed.route == "auto":
        return "inline", f"{what}: one core; when it has cost 50 ms, and 20 us a batch, {there}"
    return "inline", f"{what}: one core ({routed.why})"


def expressions(op: FilterOp | ProjectOp | EventTimeOp) -> list[Expr]:
    match op:
        case FilterOp():
            return [op.predicate]
        case EventTimeOp():
            return [op.time]
        case ProjectOp():
            return [expr for _, expr in op.columns]


def expression_route(found: list[Expr]) -> tuple[str, str]:
    called = sorted({name_of(e.value) for one in found for e in walk(one) if e.op == "call"})
    if called:
        return "compiled", f"{', '.join(called)} by numba, the rest by kernels; no interpreter"
    if all(one.op == "col" for one in found):
        return "kernel", "columns are passed on, nothing is computed"
    return "kernel", "vectorised native code over columns; no interpreter"


def walk(expr: Expr) -> Iterator[Expr]:
    yield expr
    for arg in expr.args:
        yield from walk(arg)
