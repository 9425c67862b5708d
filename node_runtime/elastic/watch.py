"""Watches a running engine and sets its level of workers and the degrees of its stages.

One thread with a short period: it reads the engine's counters and the machine's processor time,
asks the pure rules (`elastic`, `elastic_stages`) and does what they say, in some 65 microseconds. A
level takes effect within one slice of the scheduler (0.2 ms by default), so a period of a quarter
of a second, or a fifth of it in the quick round of a search, measures the new level and not the
way to it; the 10 s of the paper are for threads that stay with an operator until its queue is
empty.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

from plait.node_runtime.elastic import stage_degree, worker_level
from plait.node_runtime.elastic.processors import Processors
from plait.node_runtime.elastic.stage_degree import (
    DegreeMemory,
    DegreePolicy,
    DegreesView,
    StageView,
)
from plait.node_runtime.elastic.worker_level import (
    LevelPolicy,
    LevelView,
    TrendPolicy,
    UtilisationPolicy,
)
from plait.results.result import DegreeStep, LevelStep

if TYPE_CHECKING:
    from plait.model.settings import Settings
    from plait.node_runtime.native._engine import NativeEngine

KEPT = 10_000
"""Periods that the log keeps: the last ones."""


def policy_of(settings: Settings) -> LevelPolicy:
    """The rule that the settings ask for."""
    least, most = settings.min_workers, settings.threads
    if settings.elastic_rule == "utilisation":
        return UtilisationPolicy(max_level=most, min_level=least)
    return TrendPolicy(max_level=most, min_level=least)


def start_watch(engine: NativeEngine, settings: Settings) -> ElasticWatch | None:
    """A watch over a running engine, if the settings ask for one. Stop it before the engine is
    let go. Degrees that do not change are set here too."""
    if isinstance(settings.stage_parallelism, int):
        for number in range(len(engine.stage_loads())):
            engine.set_stage_limit(number, settings.stage_parallelism)
    if settings.workers != "elastic" and settings.stage_parallelism != "elastic":
        return None
    return ElasticWatch(engine, settings)


class ElasticWatch:
    """The thread that adapts a running engine."""

    def __init__(self, engine: NativeEngine, settings: Settings) -> None:
        # Weak: an engine that nobody waits for must still go.
        self.engine = weakref.ref(engine)
        self.period_s = settings.elastic_period_ms / 1e3
        self.policy = policy_of(settings) if settings.workers == "elastic" else None
        self.degree_policy = DegreePolicy() if settings.stage_parallelism == "elastic" else None
        self.levels: deque[LevelStep] = deque(maxlen=KEPT)
        self.degrees: deque[DegreeStep] = deque(maxlen=KEPT)
        self.processors = Processors()
        self.began = self.at = time.perf_counter()
        self.records, self.busy_ns, _ = engine.load()
        self.blocked_ns: list[int] = []
        self.memory = worker_level.begin(self.policy or TrendPolicy(max_level=settings.threads))
        self.next_s = self.period_s
        if self.policy is not None:
            self.next_s *= worker_level.period_ratio(self.policy, self.memory)
            engine.set_level(self.memory.level)
        if self.degree_policy is not None:
            self.degree_memory = DegreeMemory()
            for number, stage in enumerate(engine.stage_loads()):
                self.blocked_ns.append(stage[1])
                if stage[3] > 1:
                    engine.set_stage_limit(number, 1)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="plait-elastic", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Ends the thread; the log stays."""
        self.stopped.set()
        self.thread.join()

    def watch(self) -> None:
        warm = False  # the first period fills queues and memory, and says nothing of the next
        while not self.stopped.wait(self.next_s):
            engine = self.engine()
            if engine is None or engine.wait(0.0):
                return
            try:
                if warm:
                    self.look(engine)
                else:
                    self.at, (self.records, self.busy_ns, _) = time.perf_counter(), engine.load()
                    warm = True
            except Exception as error:  # the run goes on at the level it has
                self.note(0.0, self.memory.level, f"stopped: {error!r}")
                return
            del engine

    def look(self, engine: NativeEngine) -> None:
        """One period: what was measured, what is decided, what is done."""
        now = time.perf_counter()
        seconds, self.at = max(now - self.at, 1e-9), now
        records, busy_ns, active = engine.load()
        throughput = (records - self.records) / seconds
        busy = (busy_ns - self.busy_ns) / 1e9 / seconds / max(1, active)
        self.records, self.busy_ns = records, busy_ns
        if self.degree_policy is not None:
            self.adapt_stages(engine, self.degree_policy, throughput, seconds)
        if self.policy is not None:
            self.adapt_level(engine, self.policy, throughput, min(1.0, busy), active)

    def adapt_level(
        self, engine: NativeEngine, policy: LevelPolicy, throughput: float, busy: float, active: int
    ) -> None:
        cpu, others = self.processors.ratios()
        view = LevelView(
            throughput=throughput,
            active=active,
            cpu_ratio=cpu,
            others_cpu_ratio=others,
            busy_ratio=busy,
        )
        level = self.memory.level
        decision, self.memory = worker_level.decide(view, policy, self.memory)
        self.note(throughput, level, decision.reason)
        self.next_s = self.period_s * decision.period_ratio
        if decision.level != level:
            engine.set_level(decision.level)

    def note(self, throughput: float, level: int, reason: str) -> None:
        step = LevelStep(
            at_s=self.at - self.began,
            level=level,
            records_per_s=throughput,
            next_level=self.memory.level,
            reason=reason,
        )
        self.levels.append(step)

    def adapt_stages(
        self, engine: NativeEngine, policy: DegreePolicy, throughput: float, seconds: float
    ) -> None:
        loads = engine.stage_loads()
        stages = tuple(
            StageView(
                stage=number,
                degree=degree,
                most=most,
                blocked_ratio=min(1.0, (blocked - self.blocked_ns[number]) / 1e9 / seconds),
                after=tuple(after),
            )
            for number, (_, blocked, degree, most, after) in enumerate(loads)
        )
        self.blocked_ns = [blocked for _, blocked, _, _, _ in loads]
        view = DegreesView(stages=stages, throughput=throughput)
        decision, self.degree_memory = stage_degree.decide(view, policy, self.degree_memory)
        for stage, degree in decision.changes:
            engine.set_stage_limit(stage, degree)
            step = DegreeStep(
                at_s=self.at - self.began,
                stage=loads[stage][0],
                degree=degree,
                records_per_s=throughput,
                reason=decision.reason,
            )
            self.degrees.append(step)
