"""Why something was decided, in words; pure.

A reason for a query names the host that is short, what higher priorities use there, and which steps
that would have dropped less were not possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plait.protocol.quality import Reason
from plait.shedding.quality import total

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.protocol.quality import Alert
    from plait.shedding.controller import Goals, Room
    from plait.shedding.view import Floats, Ints, View

MOST = 1000
"""Reasons of one cycle: more tell nobody anything."""


def changes(
    view: View,
    before: Floats,
    keep: Floats,
    changed: Ints,
    room: Room,
    goals: Goals,
    priority: Ints,
    full: Floats,
    infeasible: Sequence[Reason],
) -> tuple[tuple[Reason, ...], tuple[Reason, ...]]:
    """A reason for each changed keep ratio, and what was not possible. The refused moves are told
    in full; a drop quotes the first one about its host."""
    if not len(changed):
        return (), tuple(infeasible)
    queries, tasks, hosts = view.queries, view.tasks, view.hosts
    count = len(hosts.name)
    load = total(full, tasks.host, count)
    short = load - room.available
    tight = tightest(short, view)
    levels, level = np.unique(priority, return_inverse=True)
    cell = tasks.host * len(levels) + level[tasks.part]
    size = count * len(levels)
    used = total(goals.shares.paid, cell, size).reshape(count, len(levels))
    found: list[Reason] = []
    for at in changed.tolist()[:MOST]:
        host = int(tight[at])
        was, now = f"{before[at]:.2f}", f"{keep[at]:.2f}"
        facts: tuple[tuple[str, float], ...] = ()
        if keep[at] > before[at]:
            if keep[at] >= goals.bound[at]:
                because = "what it asks for fits, with some to spare"
            else:
                because = "there is CPU for more"
        elif queries.bound[at] < 1.0 and keep[at] >= queries.bound[at]:
            because = "set by hand"
        elif goals.bound[at] == 0.0:
            because = "its floor cannot be met, so it gets nothing"
        elif host < 0 or short[host] <= 0.0:
            because = "its tasks cannot use more cores than they have"
        else:
            name = hosts.name[host]
            parts = [f"{name} is short of {short[host]:.2f} cores"]
            facts = ((f"{name} short", float(short[host])),)
            above = float(used[host, levels > queries.priority[at]].sum())
            if above > 0.0:
                parts.append(f"higher priorities use {above:.2f} there")
                facts += (("higher priorities", above),)
            refused = next((one for one in infeasible if about(one, name)), None)
            if refused is not None:
                parts.append(refused.because)
            because = "; ".join(parts)
        found.append(
            Reason(
                subject=queries.label[at],
                was=was,
                now=now,
                because=because,
                facts=facts,
                query=queries.label[at],
                job=view.jobs[int(queries.job[at])],
            )
        )
    return tuple(found), tuple(infeasible[:MOST])


def about(reason: Reason, host: str) -> bool:
    return reason.subject == host or reason.was == host


def tightest(short: Floats, view: View) -> Ints:
    """Of each query: the host with tasks of it that is shortest of cores; -1 if it has none."""
    tasks, behind = view.tasks, view.behind
    order = np.lexsort((short[tasks.host], tasks.part))
    last = np.append(np.diff(tasks.part[order]) != 0, True) if len(order) else np.empty(0, bool)
    by_part = np.full(len(view.parts.key), -1, dtype=np.int64)
    by_part[tasks.part[order][last]] = tasks.host[order][last]
    host = by_part[behind.left]
    value = np.where(host >= 0, short[host], -np.inf)
    order = np.lexsort((value, behind.right))
    last = np.append(np.diff(behind.right[order]) != 0, True) if len(order) else np.empty(0, bool)
    out = np.full(len(view.queries.key), -1, dtype=np.int64)
    out[behind.right[order][last]] = host[order][last]
    return out


def alerts(
    view: View, before: Mapping[int, Alert], now: Mapping[int, Alert]
) -> tuple[tuple[Reason, ...], tuple[Reason, ...]]:
    """Reasons for the alerts that opened, and for those that closed."""
    opened = tuple(
        Reason(
            subject=one.query,
            was="",
            now="alert",
            because=one.because,
            facts=(("floor", one.floor), ("attainable", one.attainable)),
            query=one.query,
            job=one.job,
        )
        for key, one in list(now.items())[:MOST]
        if key not in before
    )
    closed = tuple(
        Reason(
            subject=one.query,
            was="alert",
            now="",
            because="its floor can be met again",
            query=one.query,
            job=one.job,
        )
        for key, one in list(before.items())[:MOST]
        if key not in now
    )
    return opened, closed
