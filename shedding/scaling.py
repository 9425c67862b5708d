"""How many hosts the jobs need; pure.

The demand is what all tasks would use at full accuracy, from their measured costs (the idea of DS2,
with CPU for busy time). Hosts are asked for when they were missing for two cycles in a row, and
given back when fewer did for five minutes, one at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait.protocol.quality import Reason
from plait.shedding.quality import total

if TYPE_CHECKING:
    from plait.shedding.view import Bools, Floats, View

UP_CYCLES = 2
DOWN_S = 300.0
DOWN_RATIO = 0.6
REST_RATIO = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many hosts to ask for; None: as many as there are."""

    wanted: int | None = None
    drain: str = ""
    short: int = 0
    idle_since: float | None = None
    reason: Reason | None = None
    infeasible: Reason | None = None


def hosts_needed(needs: Floats, divisible: Bools, cores: float, headroom: float) -> int:
    """The fewest equal hosts on which tasks fit: what is in one piece by first fit, the largest
    first; the rest is cut as needed. A piece larger than a host takes one for itself."""
    each = cores * (1.0 - headroom)
    if each <= 0.0:
        return 0
    free: list[float] = []
    for need in sorted(needs[~divisible & (needs > 0.0)].tolist(), reverse=True):
        at = next((i for i, room in enumerate(free) if room >= need), None)
        if at is None:
            free.append(max(each - need, 0.0))
        else:
            free[at] -= need
    rest = float(needs[divisible].sum()) - sum(free)
    return len(free) + max(math.ceil(rest / each - 1e-9), 0)


def scale(
    view: View,
    needs: Floats,
    available: Floats,
    warming: Bools,
    short: int,
    idle_since: float | None,
    headroom: float,
    now: float,
) -> Scale:
    """`needs`: of all tasks, at full accuracy. `available`: of all hosts."""
    fewest, most = view.limits
    hosts = view.hosts
    count = len(hosts.name)
    demand, there = float(needs.sum()), float(np.maximum(available, 0.0).sum())
    if most <= 0 or not count:
        missing = demand > there
        why = "nodes: the cluster has no autoscaler (autoscale=True asks for one)"
        said = Reason(subject="hosts", was=str(count), now=str(count), because=why)
        return Scale(infeasible=said if missing else None)
    cores = float(np.median(hosts.cores))
    wanted = hosts_needed(needs, view.tasks.moves, cores, headroom)
    bounded = min(max(wanted, fewest, 1), most)
    planned = count + view.coming
    if bounded > planned:
        if short + 1 < UP_CYCLES:
            return Scale(short=short + 1)
        return Scale(
            wanted=bounded,
            short=short + 1,
            reason=Reason(
                subject="hosts",
                was=str(planned),
                now=str(bounded),
                because=f"all jobs need {demand:.2f} cores and {there:.2f} are free for them",
            ),
        )
    if wanted > most:
        said = Reason(
            subject="hosts",
            was=str(planned),
            now=str(planned),
            because=f"nodes: {wanted} would be needed and at most {most} are allowed",
        )
        return Scale(infeasible=said)
    if view.coming or planned <= max(fewest, 1) or demand >= DOWN_RATIO * there:
        return Scale()
    since = now if idle_since is None else idle_since
    target = emptiest(view, available, warming, demand)
    if now - since < DOWN_S or target is None:
        return Scale(idle_since=since)
    return Scale(
        wanted=planned - 1,
        drain=hosts.name[target],
        reason=Reason(
            subject="hosts",
            was=str(planned),
            now=str(planned - 1),
            because=f"{demand:.2f} of {there:.2f} cores are used for {DOWN_S:.0f} s;"
            f" {hosts.name[target]} has the least to move",
        ),
    )


def emptiest(view: View, available: Floats, warming: Bools, demand: float) -> int | None:
    """The host whose tasks have the fewest bytes, of those all of whose tasks can move and without
    which the others are not too full."""
    tasks = view.tasks
    count = len(view.hosts.name)
    fixed = total(~tasks.moves, tasks.host, count) > 0
    rest = np.maximum(available, 0.0).sum() - np.maximum(available, 0.0)
    able = ~fixed & ~warming & (demand < REST_RATIO * rest)
    if not able.any():
        return None
    size = total(tasks.state_bytes, tasks.host, count)
    return int(np.argmin(np.where(able, size, np.inf)))
