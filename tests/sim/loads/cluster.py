"""Hosts with cores and jobs with rows, in a fluid model: what the pure controller is tried on.

In each cycle rows come in at the rate of a schedule; the tasks of a host share its cores evenly,
as threads do; a job goes as fast as its slowest task (one order), and what it does not read waits.
What the controller sees has noise. Truth is kept beside it, for the invariants.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from plait.shedding.view import (
    Decision,
    Floats,
    Hosts,
    Ints,
    Memory,
    Pairs,
    Parts,
    Queries,
    Tasks,
    View,
)
from plait.shedding.words import QualityPolicy
from tests.unit.shedding.twins import fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

CYCLE_S = 1.0
JOIN_CYCLES = 8
WARM_CYCLES = 2
PASSES = 8
"""In which what a held back job leaves goes to the others."""
NOISE = 0.05


@dataclass(kw_only=True)
class LoadedPart:
    job: int
    queries: list[int]
    before: list[int]
    each: float
    """Cores for a row a second."""
    base: float
    passes: float
    """Rows that come of a row of the parts before it."""
    most: float
    moves: bool
    size: float
    rate: Callable[[int], float] | None = None
    """Of a source: rows a second, by cycle."""
    waiting: float = 0.0


@dataclass(kw_only=True)
class LoadedQuery:
    job: int
    priority: int
    floor: float
    freshness_s: float
    suspends: bool = False


@dataclass(kw_only=True)
class LoadedTask:
    part: int
    host: int
    share: float
    rank: int
    since: int = -WARM_CYCLES
    cpu: float = 0.0
    taken: float = 0.0
    offered: float = 0.0


@dataclass(kw_only=True)
class LoadedHost:
    key: int
    cores: float
    others: float


@dataclass(kw_only=True)
class Cluster:
    """Truth, and one controller that steers it."""

    hosts: list[LoadedHost]
    parts: list[LoadedPart]
    queries: list[LoadedQuery]
    tasks: list[LoadedTask]
    jobs: int
    random: Random
    policy: QualityPolicy = field(default_factory=QualityPolicy)
    limits: tuple[int, int] = (0, 0)
    cycle: int = 0
    memory: Memory = field(default_factory=Memory)
    keep: list[float] = field(default_factory=list)
    under_way: list[tuple[int, int, int, int, float, int]] = field(default_factory=list)
    """Moves: when done, part, rank, host, share, job."""
    coming: list[int] = field(default_factory=list)
    moved: dict[int, list[int]] = field(default_factory=dict)
    """By job: the cycles in which moves of it began."""
    lag_s: list[float] = field(default_factory=list)
    fraction: list[float] = field(default_factory=list)
    """Of what was there to be read, by job."""

    def __post_init__(self) -> None:
        self.keep = [1.0] * len(self.queries)
        self.lag_s = [0.0] * self.jobs
        self.fraction = [1.0] * self.jobs

    def part_keep(self, part: LoadedPart, keep: list[float]) -> float:
        return max(keep[query] for query in part.queries)

    def demand(self, keep: list[float], rows: list[float]) -> tuple[list[float], list[float]]:
        """Rows that every part takes and the cores it needs, if sources read `rows`."""
        taken, cores = [0.0] * len(self.parts), [0.0] * len(self.parts)
        for at, part in enumerate(self.parts):
            kept = self.part_keep(part, keep)
            if part.rate is not None:
                taken[at] = rows[at] * kept
            else:
                for before in part.before:
                    above = self.part_keep(self.parts[before], keep)
                    taken[at] += taken[before] * part.passes * (kept / above if above else 0.0)
            cores[at] = part.base + part.each * taken[at]
        return taken, cores

    def injected(self) -> list[float]:
        return [0.0 if part.rate is None else part.rate(self.cycle) for part in self.parts]

    def run(self) -> None:
        """One cycle of work."""
        came = self.injected()
        rows = [part.waiting + new * CYCLE_S for part, new in zip(self.parts, came, strict=True)]
        _, cores = self.demand(self.keep, rows)
        free = [host.cores - host.others for host in self.hosts]
        fraction = [0.0] * self.jobs
        host = [task.host for task in self.tasks]
        job = [self.parts[task.part].job for task in self.tasks]
        need = [task.share * cores[task.part] for task in self.tasks]
        for _ in range(PASSES):
            more = [1.0 - part for part in fraction]
            want = [cpu * more[at] for cpu, at in zip(need, job, strict=True)]
            room = [
                max(min(wish, self.parts[task.part].most - cpu * fraction[at]), 0.0)
                for wish, task, cpu, at in zip(want, self.tasks, need, job, strict=True)
            ]
            for wish, have, at in zip(want, fill(room, host, free), job, strict=True):
                if wish > 0.0:
                    more[at] = min(more[at], (1.0 - fraction[at]) * have / wish)
            for at, cpu, there in zip(job, need, host, strict=True):
                free[there] -= cpu * more[at]
            fraction = [part + extra for part, extra in zip(fraction, more, strict=True)]
        self.fraction = fraction
        read = [left * fraction[part.job] for left, part in zip(rows, self.parts, strict=True)]
        taken, cores = self.demand(self.keep, read)
        lag = [0.0] * self.jobs
        for at, part in enumerate(self.parts):
            if part.rate is not None:
                part.waiting = rows[at] - read[at]
                if came[at] > 0.0:
                    lag[part.job] = max(lag[part.job], part.waiting / came[at])
        self.lag_s = lag
        for task in self.tasks:
            part = self.parts[task.part]
            kept = self.part_keep(part, self.keep)
            task.cpu = self.noisy(task.share * cores[task.part])
            task.taken = task.share * taken[task.part] / CYCLE_S
            offered = sum(taken[before] * part.passes for before in part.before)
            offered = read[task.part] if part.rate is not None else offered
            task.offered = task.share * offered / CYCLE_S if kept else task.share * offered

    def waiting(self) -> list[float]:
        """Rows that wait, by job."""
        found = [0.0] * self.jobs
        for part in self.parts:
            found[part.job] += part.waiting
        return found

    def noisy(self, value: float) -> float:
        return max(value * self.random.gauss(1.0, NOISE), 0.0)

    def view(self) -> View:
        """What the reports of this cycle tell."""
        ours = [0.0] * len(self.hosts)
        for task in self.tasks:
            ours[task.host] += task.cpu
        used = [
            min(mine + self.noisy(host.others), host.cores)
            for mine, host in zip(ours, self.hosts, strict=True)
        ]
        came = self.injected()
        rates = [
            self.noisy(new) if part.rate is not None else float("nan")
            for part, new in zip(self.parts, came, strict=True)
        ]
        return View(
            at=self.cycle * CYCLE_S,
            jobs=tuple(f"job-{at}" for at in range(self.jobs)),
            hosts=Hosts(
                key=ints(host.key for host in self.hosts),
                name=tuple(f"host-{host.key}" for host in self.hosts),
                cores=floats(host.cores for host in self.hosts),
                used=floats(used),
                ours=floats(ours),
            ),
            parts=Parts(
                key=ints(range(len(self.parts))),
                label=tuple(f"part-{at}" for at in range(len(self.parts))),
                job=ints(part.job for part in self.parts),
                injected=floats(rates),
                backlog=floats(part.waiting for part in self.parts),
                reads=np.array([part.rate is not None for part in self.parts]),
            ),
            queries=Queries(
                key=ints(range(len(self.queries))),
                label=tuple(f"query-{at}" for at in range(len(self.queries))),
                job=ints(query.job for query in self.queries),
                priority=ints(query.priority for query in self.queries),
                floor=floats(query.floor for query in self.queries),
                bound=np.ones(len(self.queries)),
                sheds=np.array([query.floor < 1.0 for query in self.queries]),
                suspends=np.array([query.suspends for query in self.queries]),
                freshness_s=floats(query.freshness_s for query in self.queries),
                lag_s=floats(self.lag_s[query.job] for query in self.queries),
            ),
            tasks=Tasks(
                part=ints(task.part for task in self.tasks),
                host=ints(task.host for task in self.tasks),
                rank=ints(task.rank for task in self.tasks),
                share=floats(task.share for task in self.tasks),
                cpu=floats(task.cpu for task in self.tasks),
                taken=floats(task.taken for task in self.tasks),
                offered=floats(task.offered for task in self.tasks),
                waiting=np.zeros(len(self.tasks)),
                most=floats(self.parts[task.part].most for task in self.tasks),
                state_bytes=floats(self.parts[task.part].size * task.share for task in self.tasks),
                moves=np.array([self.parts[task.part].moves for task in self.tasks]),
                warm=np.array([self.cycle - task.since >= WARM_CYCLES for task in self.tasks]),
            ),
            behind=pairs(
                (at, query) for at, part in enumerate(self.parts) for query in part.queries
            ),
            edges=pairs(
                (before, at) for at, part in enumerate(self.parts) for before in part.before
            ),
            changing=frozenset(move[5] for move in self.under_way),
            coming=len(self.coming),
            limits=self.limits,
        )

    def apply(self, decision: Decision) -> None:
        """Keep ratios hold from the next cycle on; moves and hosts take their time."""
        self.keep = decision.keep.tolist()
        hosts = {f"host-{host.key}": at for at, host in enumerate(self.hosts)}
        for job in {move.job for move in decision.moves}:
            self.moved.setdefault(int(job.split("-")[1]), []).append(self.cycle)
        for move in decision.moves:
            part = int(move.part.split("-")[1])
            size = self.parts[part].size * move.share
            takes = 1 + int(self.policy.move_s + size / self.policy.bandwidth)
            self.under_way.append(
                (
                    self.cycle + takes,
                    part,
                    move.from_rank,
                    hosts[move.to_host],
                    move.share,
                    self.parts[part].job,
                )
            )
        if decision.hosts_wanted is not None:
            for _ in range(decision.hosts_wanted - len(self.hosts) - len(self.coming)):
                self.coming.append(self.cycle + JOIN_CYCLES)

    def settle(self) -> None:
        """Moves and hosts that are done by now."""
        for move in [one for one in self.under_way if one[0] <= self.cycle]:
            self.under_way.remove(move)
            _, part, rank, host, share, _ = move
            task = next(one for one in self.tasks if (one.part, one.rank) == (part, rank))
            moved = task.share * share
            task.share -= moved
            there = next((o for o in self.tasks if (o.part, o.host) == (part, host)), None)
            if there is None:
                rank = max(one.rank for one in self.tasks) + 1
                there = LoadedTask(part=part, host=host, share=0.0, rank=rank)
                self.tasks.append(there)
            there.share += moved
            there.since = self.cycle
            if task.share < 1e-9:
                self.tasks.remove(task)
                there.share += task.share
        for due in [one for one in self.coming if one <= self.cycle]:
            self.coming.remove(due)
            key = max(host.key for host in self.hosts) + 1
            self.hosts.append(LoadedHost(key=key, cores=self.hosts[0].cores, others=0.0))

    def needs_at(self, wanted: list[float]) -> list[float]:
        """The cores each host would need for the rows that come in now."""
        _, cores = self.demand(wanted, self.injected())
        found = [0.0] * len(self.hosts)
        for task in self.tasks:
            found[task.host] += task.share * cores[task.part]
        return found


def ints(values: object) -> Ints:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]


def floats(values: object) -> Floats:
    return np.array(list(values), dtype=np.float64)  # type: ignore[call-overload]


def pairs(rows: object) -> Pairs:
    listed = list(rows)  # type: ignore[call-overload]
    return Pairs(left=ints(left for left, _ in listed), right=ints(right for _, right in listed))
