"""What must hold after every cycle of the controller, judged by the truth of the model."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from plait.shedding.controller import decide
from tests.sim.loads.draw import CALM, END, GONE, RUSH

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.shedding.view import Decision, Memory, View
    from plait.shedding.words import QualityPolicy
    from tests.sim.loads.cluster import Cluster

    Decide = Callable[[View, QualityPolicy, Memory, float], tuple[Decision, Memory]]

PATIENCE = 15
"""Cycles in which lag may grow before something is wrong."""
STEP = 0.1
NEAR = 0.08


class Unlawful(AssertionError):
    """An invariant does not hold."""


@dataclass(kw_only=True)
class Judge:
    cluster: Cluster
    growing: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    whole: int = 0
    """Cycles since the load was gone and nothing waited."""
    changes: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def judge(self, view: View, decision: Decision, waiting: list[float]) -> None:
        self.floors(decision, waiting)
        self.grants(view, decision)
        self.priorities(decision)
        self.calm(decision)

    def fail(self, text: str) -> None:
        raise Unlawful(f"cycle {self.cluster.cycle}: {text}")

    def floors(self, decision: Decision, waiting: list[float]) -> None:
        """(1) Floors are kept or an alert is open, and lag grows only if one is."""
        alerts = {int(one.query.split("-")[1]) for one in decision.alerts}
        for at, query in enumerate(self.cluster.queries):
            if decision.keep[at] < query.floor - 1e-9 and not (query.suspends and at in alerts):
                self.fail(f"query {at} keeps {decision.keep[at]} with a floor of {query.floor}")
        for job, (before, waits) in enumerate(zip(waiting, self.cluster.waiting(), strict=True)):
            patient = max(q.freshness_s for q in self.cluster.queries if q.job == job)
            worse = waits > before + 1e-6 and self.cluster.lag_s[job] > patient
            self.growing[job] = self.growing[job] + 1 if worse else 0
            ours = {at for at, query in enumerate(self.cluster.queries) if query.job == job}
            if self.growing[job] > PATIENCE and not ours & alerts:
                self.fail(
                    f"job {job} is {waits:,.0f} rows behind, more and more, and no alert is open"
                )

    def grants(self, view: View, decision: Decision) -> None:
        """(2) What is granted is there."""
        granted = [0.0] * len(self.cluster.hosts)
        ranks: dict[tuple[str, int], set[int]] = defaultdict(set)
        for task in self.cluster.tasks:
            ranks[f"job-{self.cluster.parts[task.part].job}", task.rank].add(task.host)
        grants = decision.grants
        for job, rank, cores in zip(grants.job, grants.rank, grants.cores, strict=True):
            on = ranks[view.jobs[job], int(rank)]
            if len(on) == 1:
                granted[min(on)] += float(cores)
        for amount, there in zip(granted, self.cluster.hosts, strict=True):
            if amount > there.cores + 1e-6:
                self.fail(f"{amount:.2f} cores granted of {there.cores}")

    def priorities(self, decision: Decision) -> None:
        """(3) A query that is short could not have more of what lower ones have above their floors,
        or of what nobody uses."""
        cluster = self.cluster
        floors = [query.floor for query in cluster.queries]
        alerts = {int(one.query.split("-")[1]) for one in decision.alerts}
        if alerts or any(part.waiting > 0.0 for part in cluster.parts) or cluster.under_way:
            return  # what waits needs CPU, too
        if any(cluster.cycle - task.since < PATIENCE for task in cluster.tasks):
            return  # what was measured is of another place
        if cluster.cycle - max(c for c in (0, CALM, RUSH, GONE) if c <= cluster.cycle) < PATIENCE:
            return  # the rates are not measured yet
        wanted = np.maximum(decision.wanted, decision.keep).tolist()
        for at, query in enumerate(cluster.queries):
            if wanted[at] > 1.0 - STEP:
                continue
            trial = [
                want if other.priority >= query.priority else floor
                for want, other, floor in zip(wanted, cluster.queries, floors, strict=True)
            ]
            trial[at] += STEP
            needs = cluster.needs_at(trial)
            mine = {task.host for task in cluster.tasks if at in cluster.parts[task.part].queries}
            if all(
                needs[host] < (0.9 - NEAR) * cluster.hosts[host].cores - cluster.hosts[host].others
                for host in mine
            ) and not self.capped(at, trial):
                self.fail(f"query {at} could have {trial[at]:.2f} and gets {wanted[at]:.2f}")

    def capped(self, query: int, trial: list[float]) -> bool:
        """Whether a task of the query cannot use more cores."""
        _, cores = self.cluster.demand(trial, self.cluster.injected())
        return any(
            task.share * cores[task.part] > 0.9 * self.cluster.parts[task.part].most
            for task in self.cluster.tasks
            if query in self.cluster.parts[task.part].queries
        )

    def calm(self, decision: Decision) -> None:
        """(6) Few changes under constant load, and no job moved twice in half a minute; (7) when
        the load is gone, everything is whole again."""
        cycle = self.cluster.cycle
        for at in decision.changed:
            self.changes[at].append(cycle)
        for began in self.cluster.moved.values():
            for one, two in itertools.pairwise(began):
                if two - one < self.cluster.policy.move_gap_s:
                    self.fail(f"moves of one job in cycles {one} and {two}")
        calm = not any(part.waiting for part in self.cluster.parts)
        self.whole = self.whole + 1 if calm and self.easy() else 0
        if self.whole > 10:
            for at, keep in enumerate(decision.keep.tolist()):
                if keep < 1.0:
                    self.fail(f"query {at} still keeps {keep} of a small load")

    def easy(self) -> bool:
        """Whether every host has room for everything, by far."""
        cluster = self.cluster
        needs = cluster.needs_at([1.0] * len(cluster.queries))
        most = [part.most for part in cluster.parts]
        _, cores = cluster.demand([1.0] * len(cluster.queries), cluster.injected())
        return all(
            need < 0.7 * (host.cores - host.others)
            for need, host in zip(needs, cluster.hosts, strict=True)
        ) and all(0.7 * cap > one for cap, one in zip(most, cores, strict=True))

    def settled(self, since: int, until: int, most: int) -> None:
        """At most so many changes of each query in a span."""
        for at, cycles in self.changes.items():
            inside = [cycle for cycle in cycles if since <= cycle < until]
            if len(inside) > most:
                self.fail(f"query {at} changed in cycles {inside} of a constant load")


def live(cluster: Cluster, *, by: Decide = decide, cycles: int = END) -> Judge:
    """A whole life, judged cycle by cycle."""
    judge = Judge(cluster=cluster)
    for cluster.cycle in range(cycles):
        waiting = cluster.waiting()
        cluster.settle()
        cluster.run()
        view = cluster.view()
        decision, cluster.memory = by(view, cluster.policy, cluster.memory, view.at)
        cluster.apply(decision)
        judge.judge(view, decision, waiting)
    return judge
