"""The coordinator with nodes that have work: a stream comes in at a rate, rows cost CPU, what does
not fit waits. A job has a source, two queries on branches of their own, and sinks.

The nodes are those of the simulator, so plans reach them by rounds; here each also reports what its
sub-pipelines used. Rows are a fluid: what waits is one number for the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plait.coordinator.messages.spec import PartSpec, QuerySpec
from plait.protocol.keeps import ratio_of
from plait.protocol.messages import NodeReport, TaskReport
from plait.protocol.rates import SourceRate, SourceReport
from tests.sim.nodes import SimNode
from tests.sim.simulator import SIM_POLICY, Simulator, spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from plait.coordinator.messages.commands import StartNode
    from plait.coordinator.messages.spec import JobSpec

POLICY = replace(SIM_POLICY, tick_s=0.25)
CORES = 2
STEP_S = 0.05
NOISE = 0.05
PARTS = (
    PartSpec(name="in", kind="rows", sources=(0,), queries=("high", "low")),
    PartSpec(name="high", kind="rows", inputs=(0,), queries=("high",)),
    PartSpec(name="low", kind="rows", inputs=(0,), queries=("low",)),
    PartSpec(name="sinks", kind="sinks", inputs=(1, 2), queries=("high", "low")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """What comes in, and what it costs."""

    phases: tuple[tuple[float, float], ...]
    """From which second on how many rows a second come in."""
    costs: tuple[float, float]
    """Cores for a row of each query, in seconds; `high` is the first."""
    floors: tuple[float, float]

    def rate(self, at: float) -> float:
        return next((rate for since, rate in reversed(self.phases) if at >= since), 0.0)

    def demand(self, at: float, keep: Sequence[float] = (1.0, 1.0)) -> float:
        """The cores it needs."""
        return self.rate(at) * sum(k * c for k, c in zip(keep, self.costs, strict=True))


@dataclass(slots=True)
class Work:
    """What a job has done so far, on all nodes together."""

    load: Overload
    random: Random
    now: float = 0.0
    waiting: float = 0.0
    use: float = 0.0
    """Of all cores, at last."""
    cpu: list[float] = field(default_factory=lambda: [0.0] * 4)
    taken: list[float] = field(default_factory=lambda: [0.0] * 4)
    shed: list[float] = field(default_factory=lambda: [0.0] * 4)

    def go_on(self, now: float, cores: float, keep: Sequence[float]) -> None:
        """Time passes, with so much kept of each query."""
        while self.now + STEP_S <= now:
            self.now += STEP_S
            self.waiting += self.load.rate(self.now) * STEP_S
            costs = [k * c for k, c in zip(keep, self.load.costs, strict=True)]
            noise = self.random.uniform(1.0 - NOISE, 1.0 + NOISE)
            each = sum(costs) * noise
            rows = min(self.waiting, cores * STEP_S / each) if each else self.waiting
            self.waiting -= rows
            self.use = rows * each / (cores * STEP_S)
            self.taken[0] += rows
            for branch in (0, 1):
                self.cpu[branch + 1] += rows * costs[branch] * noise
                self.taken[branch + 1] += rows
                self.shed[branch + 1] += rows * (1.0 - keep[branch])
                self.taken[3] += rows * keep[branch]

    def report(self, part: int, nodes: int) -> TaskReport:
        """An even part of a sub-pipeline."""
        taken, shed = int(self.taken[part] / nodes), int(self.shed[part] / nodes)
        return TaskReport(
            part=part,
            cpu_s=self.cpu[part] / nodes,
            taken=taken,
            offered=taken,
            kept=taken - shed,
            shed=shed,
        )


@dataclass(slots=True)
class BusyNode(SimNode):
    """A node that does an even part of the work."""

    sim: BusySimulator = field(kw_only=True)

    def report(self, loads: bool) -> NodeReport:
        plain = SimNode.report(self, loads)
        return self.sim.with_work(plain) if self.phase == "running" else plain


@dataclass(slots=True)
class BusySimulator(Simulator):
    """A simulator of nodes that work. Each of them has a host of its own."""

    load: Overload = field(kw_only=True)
    work: Work = field(init=False)
    shown: list[tuple[float, float, float]] = field(default_factory=list)
    """When, and how much of each query was kept."""

    def __post_init__(self) -> None:
        Simulator.__post_init__(self)
        self.work = Work(load=self.load, random=self.random)

    def make(self, command: StartNode) -> SimNode:
        plain = Simulator.make(self, command)
        return BusyNode(
            rank=plain.rank, ledger=plain.ledger, ship=plain.ship, margin=plain.margin, sim=self
        )

    def running(self) -> list[SimNode]:
        return [one for one in self.nodes.values() if one.phase == "running" and not one.stopped]

    def keep(self) -> tuple[float, float]:
        """What the nodes keep of each query now."""
        node = self.running()[0]
        found = node.at(node.epoch).keep
        return (ratio_of(found[0]), ratio_of(found[1])) if found else (1.0, 1.0)

    def with_work(self, plain: NodeReport) -> NodeReport:
        """The report of a node, with its part of all that was done until now."""
        nodes, keep, work, rate = len(self.running()), self.keep(), self.work, self.rate()
        work.go_on(self.now, float(CORES * nodes), keep)
        self.shown.append((self.now, *keep))
        known = SourceRate(
            per_s=rate * self.random.uniform(1.0 - NOISE, 1.0 + NOISE),
            lag=work.waiting,
            lag_s=work.waiting / rate if rate else 0.0,
            trust=1.0,
        )
        return replace(
            plain,
            tasks=tuple(work.report(part, nodes) for part in range(len(PARTS))),
            affinity_cores=CORES,
            cpu_ratio=work.use,
            sources=(SourceReport(label="in", rate=known),) if plain.rank == 0 else (),
        )

    def rate(self) -> float:
        return self.load.rate(self.now)


def job_of(load: Overload, nodes: int, seed: int) -> JobSpec:
    queries = tuple(
        QuerySpec(label=label, priority=priority, min_accuracy=floor)
        for label, priority, floor in zip(("high", "low"), (5, 1), load.floors, strict=True)
    )
    return replace(spec_of(nodes=nodes, seed=seed, queries=queries), parts=PARTS)
