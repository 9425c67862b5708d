"""Stages of plain Python functions, with and without state, on the route that each takes.

A stage that starts in the engine's process measures what its functions cost there; when `choose`
says that the pool is worth it, the pool is started in the background, and the stage goes over to it
as soon as the worker processes are ready. What happened is told in words, for the result.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.graph.operators import CallOp, TimedOp
from plait.graph.routes import processes_of, route_of_call, trips
from plait.node_runtime.functions.calls import compile_call
from plait.node_runtime.native.stage_specs import CallSpec, ParallelStageSpec, PoolStageSpec
from plait.node_runtime.pool.choice import Spent, choose
from plait.node_runtime.pool.lanes import LaneSpec
from plait.node_runtime.pool.pool import Pool

if TYPE_CHECKING:
    from plait.graph.operators import Graph
    from plait.graph.routes import Routed, StateNode
    from plait.graph.stages import Pipeline, PipelineStage
    from plait.model.settings import Settings
    from plait.node_runtime.functions.calls import CallResult, Operator
    from plait.node_runtime.functions.opening import Opened
    from plait.node_runtime.native._batch import NativeBatch
    from plait.node_runtime.native._engine import NativeEngine
    from plait.node_runtime.native._pool import NativeLanes, NativeUser
    from plait.node_runtime.native.stage_specs import StageSpec
    from plait.node_runtime.state.folds import KeyedPython
    from plait.node_runtime.state.processes import ProcessPython


def call_spec(number: int, op: CallOp, function: Operator) -> CallSpec:
    return CallSpec(
        op=number,
        on_error=op.on_error,
        function=function,
        schema=op.schema,
        whole=op.mode == "batches",
    )


class StateLanes(NamedTuple):
    """The lanes of an operator with state, and the state while it is in this process."""

    native: NativeLanes
    state: MeasuredState


class Pools:
    """The pool of an engine, if any of its stages may use one, and what became of each stage."""

    def __init__(self, engine: NativeEngine, settings: Settings, opened: Opened) -> None:
        self.engine = engine
        self.opened = opened
        self.settings = settings
        self.pool: Pool | None = None
        self.forced = False
        self.ways: list[Way] = []

    def add(self, pipeline: Pipeline, stage: PipelineStage, spec: StageSpec) -> tuple[int, int]:
        """Adds the stages of these functions: the first, which takes their input, and the last."""
        graph = pipeline.graph
        calls = [op for i in stage.operators if isinstance(op := graph.operators[i], CallOp)]
        routes = [route_of_call(op, graph, self.settings) for op in calls]
        made: list[int] = []
        for routed, operators in trips(stage.operators, routes):
            name = " + ".join(graph.operators[i].name for i in operators)
            made.append(self.trip(graph, operators, routed, replace(spec, name=name)))
        for before, after in itertools.pairwise(made):
            self.engine.connect(before, after, 0)
        return made[0], made[-1]

    def trip(
        self, graph: Graph, operators: tuple[int, ...], routed: Routed, spec: StageSpec
    ) -> int:
        calls: list[tuple[CallOp, Any]] = []
        for i in operators:
            op = graph.operators[i]
            assert isinstance(op, CallOp)
            calls.append((op, graph.operators[op.inputs[0]].schema))
        if routed.route == "inline":
            inline = [
                call_spec(i, op, self.opened.open_first(op, compile_call(op, schema)))
                for i, (op, schema) in zip(operators, calls, strict=True)
            ]
            return self.engine.parallel_stage(
                ParallelStageSpec(stage=spec, operators=inline, python=True)
            )
        outside = self.the_pool().add(calls, here=routed.route == "auto")
        way = self.way(operators, outside, routed)
        measured = []
        for position, (i, (op, schema)) in enumerate(zip(operators, calls, strict=True)):
            run = self.opened.open_first(op, compile_call(op, schema))
            measured.append(call_spec(i, op, Measured(run, way, first=position == 0)))
        return self.engine.pool_stage(PoolStageSpec(stage=spec, calls=measured, way=outside))

    def the_pool(self) -> Pool:
        if self.pool is None:
            processes, hang_s = processes_of(self.settings), self.settings.pool_hang_s
            replay_bytes = self.settings.pool_replay_bytes
            self.pool = Pool(processes, hang_s, self.engine.raised, replay_bytes)
        return self.pool

    def way(self, operators: tuple[int, ...], outside: NativeUser, routed: Routed) -> Way:
        way = Way(self.the_pool(), operators, outside)
        self.forced = self.forced or routed.route == "pool"
        self.ways.append(way)
        return way

    def lanes(
        self, pipeline: Pipeline, number: int, state: KeyedPython | ProcessPython
    ) -> StateLanes | None:
        """The lanes of an operator with state, and the state as long as it is here; None: it
        stays here."""
        graph = pipeline.graph
        op: StateNode = graph.operators[number]  # type: ignore[assignment]
        routed = route_of_call(op, graph, self.settings)
        if routed.route == "inline":
            return None
        given = graph.operators[op.inputs[0]].schema
        bits = self.settings.bin_bits
        spec = LaneSpec(op=op, given=given, bin_bits=bits, number=number)
        made = self.the_pool().add_lanes(
            spec,
            here=routed.route == "auto",
            keyless=not op.keys,
            timers=isinstance(op, TimedOp),
        )
        return StateLanes(made, MeasuredState(state, self.way((number,), made, routed)))

    def start(self) -> None:
        """Starts the worker processes of those who want them from the first record on."""
        if self.pool is not None and self.forced:
            self.pool.start()

    def stop(self) -> bool:
        """Ends all of them."""
        if self.pool is not None:
            self.pool.close()
        return True

    @property
    def broken(self) -> BaseException | None:
        """Why functions that had to go to the pool could not."""
        if self.pool is None or all(way.outside.here for way in self.ways):
            return None
        return self.pool.broken

    def busy_operators(self) -> list[int]:
        """Those whose functions worker processes may be in now."""
        if self.pool is None or not self.pool.is_busy():
            return []
        return [op for way in self.ways if not way.outside.here for op in way.operators]

    def describe(self) -> dict[int, str]:
        """What became of each function that could take the pool."""
        return {op: way.describe() for way in self.ways for op in way.operators}


class Way:
    """The way of one stage: what it has cost here, and whether it has gone over to the pool."""

    def __init__(self, pool: Pool, operators: tuple[int, ...], outside: NativeUser) -> None:
        self.pool = pool
        self.operators = operators
        self.outside = outside
        self.spent = Spent()
        self.chosen: str | None = None

    def note(self, records: int, ns: int, first: bool) -> None:
        """Records cost so much; `first`: in the first function of the stage."""
        if self.chosen is not None:
            return
        self.spent = self.spent.more(records if first else 0, ns, batches=int(first))
        self.chosen = choose(self.spent, self.pool.processes)
        if self.chosen is not None:
            self.pool.when_ready(self.go)

    def go(self) -> None:
        if self.pool.broken is None:
            self.outside.go()

    def describe(self) -> str:
        where = f"pool of {self.pool.processes} worker processes"
        if self.outside.here:
            if self.pool.broken is not None and self.chosen is not None:
                return f"inline: {self.pool.broken}"
            if why := self.outside.why_here:
                return f"inline: {why}"
            return f"inline: {self.spent.records:,} records in {self.spent.ns / 1e6:.1f} ms"
        if self.chosen is None:
            return where
        return f"{where} after {self.spent.records:,} records inline: {self.chosen}"


class Measured:
    """A function's operator in the engine's process, with what it costs."""

    def __init__(self, operator: Operator, way: Way, first: bool) -> None:
        self.operator = operator
        self.way = way
        self.first = first

    def __call__(self, batch: NativeBatch) -> CallResult:
        began = time.perf_counter_ns()
        result = self.operator(batch)
        self.way.note(len(batch), time.perf_counter_ns() - began, self.first)
        return result


class MeasuredState:
    """The state of an operator in the engine's process, with what its records cost."""

    def __init__(self, state: KeyedPython | ProcessPython, way: Way) -> None:
        self.state = state
        self.way = way

    def __call__(self, batch: NativeBatch, *unit: Any) -> Any:
        began = time.perf_counter_ns()
        result = self.state(batch, *unit)
        self.way.note(len(batch), time.perf_counter_ns() - began, True)
        return result

    def __getattr__(self, name: str) -> Any:
        """Its bins."""
        return getattr(self.state, name)
