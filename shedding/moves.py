"""Which tasks go where, when a host cannot hold what it has; pure.

`release` says what leaves; a target is the host with the lowest use that has room, and what was
moved in the same decision counts there. Every refusal is a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from plait.protocol.quality import Reason
from plait.shedding.costs import UNMEASURED_CORES
from plait.shedding.release import release
from plait.shedding.words import TaskMove

if TYPE_CHECKING:
    from plait.shedding.view import Bools, Floats, Ints, View
    from plait.shedding.words import QualityPolicy

MOST = 64
"""Moves in one decision: the next cycle sees what they gave."""
WORTH = 0.1
"""Of a task: a smaller share is not moved."""
REFUSED = 4
"""Tasks of a host that found no room, after which it is left as it is."""
LEAST_ROOM = 0.01
NAMED = 4
"""Hosts that a reason names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """What moves would do."""

    moves: tuple[TaskMove, ...] = ()
    seconds: dict[int, float] = field(default_factory=dict)
    """By job: how long its moves take, from now."""
    relieved: dict[int, float] = field(default_factory=dict)
    """By host: the same, for the last task that leaves it."""
    reasons: tuple[Reason, ...] = ()
    infeasible: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Short:
    """A host that cannot hold what it has."""

    host: int
    cores: float
    """To be released."""
    needs: Floats
    """Of all tasks, that are to be counted."""
    in_s: float
    """When moving may begin."""


def plan_moves(
    shorts: list[Short],
    load: Floats,
    available: Floats,
    priority: Ints,
    known: Bools,
    warming: Bools,
    resting: frozenset[int],
    view: View,
    policy: QualityPolicy,
) -> Relief:
    """Moves that relieve the hosts, in the order in which these are given.

    `load` is what the tasks of each host need, `resting` are jobs that must not be changed now.
    """
    tasks, hosts = view.tasks, view.hosts
    load = load.copy()
    room = np.where(warming, 0.0, available - load)
    job = view.parts.job[tasks.part]
    free = tasks.moves.copy()
    if resting:
        free &= ~np.isin(job, list(resting))
    moves: list[TaskMove] = []
    seconds: dict[int, float] = {}
    relieved: dict[int, float] = {}
    reasons: list[Reason] = []
    infeasible: list[Reason] = []
    order = np.argsort(tasks.host, kind="stable")
    begins = np.searchsorted(tasks.host[order], np.arange(len(hosts.name) + 1))
    for short in shorts:
        rows = order[begins[short.host] : begins[short.host + 1]]
        rows = rows[free[rows]]
        name = hosts.name[short.host]
        others = np.delete(room, short.host)
        if len(rows) and not (others > LEAST_ROOM).any():
            where = rooms(room, short.host, view)
            why = f"no host has room for {short.cores:.2f} cores ({where})"
            infeasible.append(Reason(subject=name, was="", now="", because=why))
            continue
        chosen = release(
            short.cores, short.needs[rows], priority[tasks.part[rows]], tasks.state_bytes[rows]
        )
        if not chosen:
            why = "none of its tasks can move now"
            infeasible.append(Reason(subject=name, was="", now="", because=f"move: {why}"))
            continue
        refused = 0
        for at, share in chosen:
            if len(moves) >= MOST or refused >= REFUSED:
                break
            row = int(rows[at])
            part = int(tasks.part[row])
            subject = f"{view.parts.label[part]} on {name}"
            need = float(short.needs[row]) * share
            asks = need if known[part] else max(need, UNMEASURED_CORES)
            target = best(asks, short.host, room, load, hosts.cores)
            fits = share
            if target is None and known[part]:
                target = best(WORTH * need, short.host, room, load, hosts.cores, roomy=True)
                if target is not None:
                    fits = share * min(float(room[target]) / need, 1.0)
                    need *= fits / share
                    asks = need
            if target is None:
                refused += 1
                infeasible.append(
                    Reason(
                        subject=subject,
                        was=name,
                        now=name,
                        because=f"no host has {asks:.2f} cores free"
                        f" ({rooms(room, short.host, view)})",
                        facts=(("cores asked", asks),),
                    )
                )
                continue
            size = float(tasks.state_bytes[row]) * fits
            takes = policy.move_s + size / policy.bandwidth
            gain = need / max(float(load[short.host]), need)
            if gain * policy.gain_s < size / policy.bandwidth:
                infeasible.append(
                    Reason(
                        subject=subject,
                        was=name,
                        now=name,
                        because=f"moving {size / 1e6:,.0f} MB takes longer than it gains",
                    )
                )
                continue
            room[target] -= asks
            load[target] += asks
            room[short.host] += need
            load[short.host] -= need
            when = short.in_s + takes
            seconds[int(job[row])] = max(seconds.get(int(job[row]), 0.0), when)
            relieved[short.host] = max(relieved.get(short.host, 0.0), when)
            moves.append(
                TaskMove(
                    job=view.jobs[int(job[row])],
                    part=view.parts.label[part],
                    from_rank=int(tasks.rank[row]),
                    from_host=name,
                    to_host=hosts.name[target],
                    share=fits,
                )
            )
            whole = "" if fits >= 1.0 else f"{fits:.0%} of its bins, "
            reasons.append(
                Reason(
                    subject=subject,
                    was=name,
                    now=hosts.name[target],
                    because=f"{name} is short of {short.cores:.2f} cores; {whole}"
                    f"{need:.2f} cores go where {float(room[target]) + asks:.2f} were free",
                    facts=(("short", short.cores), ("moved", need)),
                )
            )
    return Relief(
        moves=tuple(moves),
        seconds=seconds,
        relieved=relieved,
        reasons=tuple(reasons),
        infeasible=tuple(infeasible),
    )


def best(
    cores: float, source: int, room: Floats, load: Floats, all_cores: Floats, *, roomy: bool = False
) -> int | None:
    """The host with the lowest use that has room for so many cores; or that with the most room."""
    able = (room >= cores) & (room > 0.0)
    able[source] = False
    if not able.any():
        return None
    if roomy:
        return int(np.argmax(np.where(able, room, -np.inf)))
    return int(np.argmin(np.where(able, load / all_cores, np.inf)))


def rooms(room: Floats, source: int, view: View) -> str:
    """The hosts with the most room, in words."""
    others = [at for at in np.argsort(-room, kind="stable")[: NAMED + 1].tolist() if at != source]
    if not others:
        return "there is no other host"
    return ", ".join(f"{view.hosts.name[at]} {max(room[at], 0.0):.2f}" for at in others[:NAMED])
