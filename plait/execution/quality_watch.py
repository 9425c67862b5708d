"""Watches a run in this process and sheds under overload: the quality controller with one host, and
this job as its only tenant.

One thread: once a second it takes what the sub-pipelines used and how fast rows come in, asks
`plait.shedding.controller.decide` and has the engine keep what was decided. It runs only if a sink
has a floor and a source says how fast its rows come in; any other run is never touched.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from plait.errors import StateError
from plait.graph.operators import SinkOp, SourceOp
from plait.node_runtime.elastic.processors import Processors
from plait.protocol.quality import QualityStep, QueryQuality, Reason, state_of
from plait.shedding.accuracy import PartCounts, accuracies
from plait.shedding.queries import points_of, query_qualities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.execution.local_run import LocalRun
    from plait.graph.operators import Graph
    from plait.graph.subpipelines import SubPipeline
    from plait.protocol.messages import TaskReport
    from plait.protocol.quality import QualityPoint
    from plait.shedding.observe import SeenJob, SeenPart, SeenQuery, TaskRates
    from plait.shedding.view import Decision, Memory, View

KEPT_STEPS = 1000
KEPT_POINTS = 10_000
WINDOW_S = 2.0
"""What is measured is over so long: rows go through a job in lumps."""
HOST = "this process"


def start_watch(run: LocalRun) -> QualityWatch | None:
    """A watch over a running job, if any of it may be shed and its load is known."""
    sinks = [op for op in run.graph.operators if isinstance(op, SinkOp)]
    if run.settings.quality == "off" or all(sink.quality.lossless for sink in sinks):
        return None
    if not run.measured.due and not run.measured.gauges:
        return None  # everything is read as fast as it is taken
    return QualityWatch(run)


class QualityWatch:
    """The thread, and what it noted."""

    def __init__(self, run: LocalRun) -> None:
        # Here, so that no other run loads NumPy for it.
        from plait.shedding.words import ALONE, QualityPolicy

        # Weak: a run that nobody waits for must still go.
        self.run = weakref.ref(run)
        self.period_s = run.settings.quality_period_ms / 1e3
        self.began = time.monotonic()
        self.policy = QualityPolicy(order=ALONE)
        self.sinks = [op for op in run.graph.operators if isinstance(op, SinkOp)]
        self.memory: Memory = remembering(run.graph.name, self.sinks, run.keeping.decided)
        self.processors = Processors()
        self.parts = seen_parts(run.graph, run.task_loads.cut)
        self.at = time.monotonic()
        self.recent: deque[tuple[float, tuple[TaskReport, ...]]] = deque()
        self.recent.append((self.at, run.task_loads.reports()))
        self.looks = 0
        self.steps: deque[QualityStep] = deque(maxlen=KEPT_STEPS)
        self.points: deque[QualityPoint] = deque(maxlen=KEPT_POINTS)
        self.denied: tuple[Reason, ...] = ()
        self.now: dict[str, QueryQuality] = {}
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="plait-quality", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Ends the thread; what was noted stays. The thread itself calls it when it was the last to
        hold a run that nobody waits for."""
        self.stopped.set()
        if threading.current_thread() is not self.thread:
            self.thread.join()

    def watch(self) -> None:
        while not self.stopped.wait(self.period_s):
            run = self.run()
            if run is None or run.engine.wait(0.0):
                return
            try:
                self.look(run)
            except StateError:
                return  # the job is at its end
            except Exception as error:  # the run goes on with what is kept now
                self.note(
                    Reason(subject="the controller", was="", now="stopped", because=repr(error))
                )
                return
            del run

    def look(self, run: LocalRun) -> None:
        """One cycle: what was measured, what is decided, what is done."""
        from plait.shedding.controller import decide
        from plait.shedding.observe import SeenHost, make_view, task_rates

        reports, at = run.task_loads.reports(), time.monotonic()
        self.at = at
        self.recent.append((at, reports))
        while len(self.recent) > 2 and at - self.recent[1][0] >= WINDOW_S:
            self.recent.popleft()
        began, first = self.recent[0]
        rates = task_rates(first, reports, at - began)
        self.looks += 1
        if not rates:
            return
        cores = self.cores(run)
        ours = sum(rate.cpu for rate in rates)
        # What others use of the cores that this job does not use anyway takes nothing from it.
        others = self.processors.ratios()[1] * self.processors.cores
        others = max(others - max(self.processors.cores - cores, 0.0), 0.0)
        host = SeenHost(name=HOST, cores=cores, used=ours + others)
        view = make_view(at, [host], [self.seen_job(run, rates, cores)])
        decision, self.memory = decide(view, self.policy, self.memory, at)
        ratios = {
            number: float(keep)
            for number, keep in enumerate(decision.keep.tolist())
            if not self.sinks[number].quality.lossless and keep < 1.0
        }
        if decision.changed:
            run.keeping.decide(ratios)
        self.record(view, decision, counted(run.task_loads.cut, first, reports))

    def cores(self, run: LocalRun) -> float:
        """What this run can use: a core for each of its threads and worker processes."""
        pools = run.parts.pools
        processes = pools.pool.processes if pools is not None and pools.pool is not None else 0
        return float(min(self.processors.cores, run.settings.threads + processes))

    def seen_job(self, run: LocalRun, rates: Sequence[TaskRates], cores: float) -> SeenJob:
        from plait.shedding.observe import SeenJob, SeenTask, is_warm

        age_s = self.at - self.began
        bounds = run.keeping.in_force()
        return SeenJob(
            name=run.graph.name,
            queries=tuple(self.seen_query(bounds, number) for number in range(len(self.sinks))),
            parts=self.parts,
            tasks=tuple(
                SeenTask(
                    rates=rate,
                    rank=0,
                    host=HOST,
                    most=cores,
                    warm=is_warm(self.looks, age_s),
                )
                for rate in rates
            ),
            sources=run.rates(),
        )

    def seen_query(self, bounds: Mapping[int, float], number: int) -> SeenQuery:
        from plait.shedding.observe import SeenQuery

        sink = self.sinks[number]
        return SeenQuery(
            label=sink.label,
            priority=sink.quality.priority,
            floor=sink.quality.min_accuracy,
            bound=bounds.get(number, 1.0),
            freshness_s=sink.quality.freshness_us / 1e6,
            suspends=sink.quality.below_floor == "suspend",
        )

    def note(self, reason: Reason, *, denied: bool = False) -> None:
        at_s = time.monotonic() - self.began
        self.steps.append(QualityStep(at_s=at_s, reason=reason, denied=denied))

    def record(self, view: View, decision: Decision, measured: Mapping[str, float]) -> None:
        """What was decided, and what every query gets."""
        for reason in decision.reasons:
            self.note(reason)
        for reason in decision.infeasible:
            if reason.because not in {one.because for one in self.denied} and decision.changed:
                self.note(reason, denied=True)
        if decision.changed:
            self.denied = decision.infeasible
        found = query_qualities(view, decision, 0, measured=measured, overall={}, before=self.now)
        self.now = {one.query: one for one in found}
        self.points.extend(points_of(self.at - self.began, found))


def qualities(run: LocalRun) -> tuple[QueryQuality, ...]:
    """What each query of a run gets, with its accuracy since the start; nothing if all of them are
    lossless."""
    sinks = [op for op in run.graph.operators if isinstance(op, SinkOp)]
    if all(sink.quality.lossless for sink in sinks):
        return ()
    known = {} if run.quality is None else dict(run.quality.now)
    overall = counted(run.task_loads.cut, None, run.task_loads.reports())
    bounds = run.keeping.in_force()
    found = []
    for number, sink in enumerate(sinks):
        quality, asked = sink.quality, bounds.get(number, 1.0)
        plain = QueryQuality(
            query=sink.label,
            priority=quality.priority,
            floor=quality.min_accuracy,
            asked=asked,
            measured=overall[sink.label],
            freshness_s=quality.freshness_us / 1e6,
            state=state_of(asked, quality.min_accuracy),
        )
        found.append(replace(known.get(sink.label, plain), overall=overall[sink.label]))
    return tuple(found)


def remembering(job: str, sinks: Sequence[SinkOp], decided: Mapping[int, float]) -> Memory:
    """The memory of a run that goes on with what was decided before a checkpoint."""
    from plait.shedding.observe import floats, ints, key_of
    from plait.shedding.view import Memory

    return Memory(
        query_key=ints(key_of(job, sink.label) for sink in sinks),
        keep=floats(decided.get(number, 1.0) for number in range(len(sinks))),
        rising=ints(0 for _ in sinks),
        wanted=floats(1.0 for _ in sinks),
        lag_s=floats(float("inf") for _ in sinks),
    )


def seen_parts(graph: Graph, parts: Sequence[SubPipeline]) -> tuple[SeenPart, ...]:
    from plait.shedding.observe import SeenPart

    labels = [op.label for op in graph.operators if isinstance(op, SourceOp)]
    return tuple(
        SeenPart(
            label=part.name,
            inputs=part.inputs,
            queries=part.queries,
            sources=tuple(labels[source] for source in part.sources),
        )
        for part in parts
    )


def counted(
    parts: Sequence[SubPipeline],
    before: Sequence[TaskReport] | None,
    after: Sequence[TaskReport],
) -> dict[str, float]:
    """The accuracy of every query between two reports, or since the start."""
    earlier = {one.part: one for one in before or ()}
    rows = []
    for part, report in zip(parts, after, strict=True):
        old = earlier.get(report.part)
        rows.append(
            PartCounts(
                inputs=part.inputs,
                queries=part.queries,
                taken=report.taken - (old.taken if old is not None else 0),
                shed=report.shed - (old.shed if old is not None else 0),
                gathers=part.kind == "sinks",
            )
        )
    return accuracies(rows)
