"""What a row costs in each sub-pipeline and how many rows come, learnt from cycle to cycle; pure.

Cost and selectivity belong to a sub-pipeline, with the measurements of all its tasks in one pot, so
that a task that has just moved needs no new cost. Each cycle adds a point (rows a second, cores)
with a weight that halves in about 40 s. Where the rate has varied enough, least squares tell what
an epoch costs without rows (`base`) from what a row costs (`each`); else all of it is by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from plait.shedding.quality import least, most, ratio, total
from plait.shedding.share import Needs
from plait.shedding.view import Learnt, carry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.shedding.view import Bools, Floats, Ints, View
    from plait.shedding.words import QualityPolicy

FEWEST = 2
"""Cycles with rows before a cost is known."""
VARIED = 0.1
"""The deviation of a rate, relative to its mean, from which least squares are believed."""
FEWEST_POINTS = 8.0
MOST_BASE = 0.5
"""Of what a sub-pipeline uses: the part that may be taken to be independent of its rows."""
UNMEASURED_CORES = 1.0
LEAST_DRAIN_S = 2.0
MOST_DRAINED = 1.0
"""Rows that wait ask for at most as much again as those that come in."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """What everything needs now."""

    needs: Needs
    """Of tasks, by the accuracy of their part."""
    steady: Needs
    """The same with less haste for what waits: what is worth a move or a host."""
    rate: Floats
    """Of parts: R(t), rows a second at full accuracy."""
    known: Bools
    """Of parts: whether their cost was measured."""
    greedy: Bools
    """Of parts: fed by a source that is read as fast as its rows are taken, so that no rate is
    asked of them."""


def learn(learnt: Learnt | None, view: View, policy: QualityPolicy, seconds: float) -> Learnt:
    """With the measurements of one more cycle."""
    tasks, parts = view.tasks, view.parts
    count = len(parts.key)
    if learnt is None:
        zeros = np.zeros(count)
        learnt = Learnt(
            key=parts.key,
            weight=zeros,
            x=zeros,
            y=zeros,
            xx=zeros,
            xy=zeros,
            fed=zeros,
            came=zeros,
            seen=np.zeros(count, dtype=np.int64),
        )
    old, new = learnt.key, parts.key
    stays = math.exp(-seconds / policy.memory_s)
    rate = total(tasks.taken, tasks.part, count)
    used = total(tasks.cpu, tasks.part, count)
    came = total(tasks.offered, tasks.part, count)
    some = rate > 0.0
    fed = feeding(rate, view)

    def grow(column: Floats, more: Floats, where: Bools) -> Floats:
        return carry(old, new, column, 0.0) * np.where(where, stays, 1.0) + np.where(
            where, more, 0.0
        )

    return Learnt(
        key=new,
        weight=grow(learnt.weight, np.ones(count), some),
        x=grow(learnt.x, rate, some),
        y=grow(learnt.y, used, some),
        xx=grow(learnt.xx, rate * rate, some),
        xy=grow(learnt.xy, rate * used, some),
        fed=grow(learnt.fed, fed, fed > 0.0),
        came=grow(learnt.came, came, fed > 0.0),
        seen=carry(old, new, learnt.seen, 0) + some,
    )


def feeding(rate: Floats, view: View) -> Floats:
    """The rows a second that the parts before each one take."""
    return total(rate[view.edges.left], view.edges.right, len(view.parts.key))


def costs(learnt: Learnt) -> tuple[Floats, Floats]:
    """The cores of a part without rows, and those for each row a second."""
    some = learnt.x > 0.0
    x = np.where(some, learnt.x, 1.0)
    weight = np.where(some, learnt.weight, 1.0)
    by_row = np.where(some, learnt.y / x, 0.0)
    mean = x / weight
    spread = learnt.xx / weight - mean * mean
    fits = some & (learnt.weight >= FEWEST_POINTS) & (spread > (VARIED * mean) ** 2)
    slope = (learnt.xy / weight - mean * learnt.y / weight) / np.where(fits, spread, 1.0)
    each = np.where(fits, np.clip(slope, (1.0 - MOST_BASE) * by_row, by_row), by_row)
    base = np.where(some, np.maximum(learnt.y - each * learnt.x, 0.0) / weight, 0.0)
    return base, each


def drain_times(view: View, policy: QualityPolicy) -> Floats:
    """Of every part: the time in which rows that wait are to be worked off. There is no haste until
    a query of its job is half as old as it may become."""
    queries = view.queries
    half = queries.freshness_s / 2.0
    wanted = np.where(queries.lag_s > half, half, policy.drain_s)
    soonest = least(wanted, queries.job, len(view.jobs), policy.drain_s)
    return np.clip(soonest, LEAST_DRAIN_S, policy.drain_s)[view.parts.job]


def rates(learnt: Learnt, view: View, depth: Ints, drain_s: Floats | float) -> tuple[Floats, Bools]:
    """R(t): the rows a second that would come to each part if none was shed, with what waits worked
    off in `drain_s`; and which parts depend on a source without a rate."""
    parts, edges = view.parts, view.edges
    taken = total(view.tasks.taken, view.tasks.part, len(parts.key))
    offered = total(view.tasks.offered, view.tasks.part, len(parts.key))
    greedy = parts.reads & np.isnan(parts.injected)
    came = np.nan_to_num(parts.injected)
    extra = np.minimum(parts.backlog / drain_s, MOST_DRAINED * np.maximum(came, taken))
    asked = np.where(greedy, taken, came + extra)
    passes = np.where(learnt.fed > 0.0, learnt.came / np.where(learnt.fed > 0, learnt.fed, 1), 0.0)
    rate = np.where(parts.reads, asked, 0.0)
    queued = total(view.tasks.waiting, view.tasks.part, len(parts.key)) / drain_s
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = depth[edges.right] == level
        left, right = edges.left[here], edges.right[here]
        fed = total(rate[left], right, len(rate))
        rows = np.unique(right)
        came = fed[rows] * passes[rows]
        rate[rows] += came + np.minimum(queued[rows], MOST_DRAINED * came)
        live = np.zeros(len(rate), dtype=bool)
        np.logical_or.at(live, right, ~greedy[left])
        greedy[rows] = ~live[rows]
    unfed = ~parts.reads & (depth == 0)
    rate[unfed] = offered[unfed]
    return rate, greedy


def with_queues(view: View, learnt: Learnt, depth: Ints) -> View:
    """The view in which the lag of a query has the time that rows wait on their way, too: what
    waits in a part, at the rate at which it comes."""
    count = len(view.parts.key)
    waiting = total(view.tasks.waiting, view.tasks.part, count)
    if not waiting.any():
        return view
    rate, _ = rates(learnt, view, depth, np.inf)
    late = np.where(rate > 0.0, waiting / np.where(rate > 0.0, rate, 1.0), 0.0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = depth[view.edges.right] == level
        left, right = view.edges.left[here], view.edges.right[here]
        before = most(late[left], right, count, 0.0)
        rows = np.unique(right)
        late[rows] += before[rows]
    queries = view.queries
    longest = most(late[view.behind.left], view.behind.right, len(queries.key), 0.0)
    return replace(view, queries=replace(queries, lag_s=queries.lag_s + longest))


def price(
    learnt: Learnt, view: View, depth: Ints, policy: QualityPolicy, bias: Mapping[str, float]
) -> Prices:
    """The needs of all tasks. Of a part whose cost is not known: in proportion to what it uses now
    (Eq. 8 as printed)."""
    tasks = view.tasks
    base, each = costs(learnt)
    rate, greedy = rates(learnt, view, depth, drain_times(view, policy))
    steady, _ = rates(learnt, view, depth, policy.drain_s)
    known = learnt.seen >= FEWEST
    part = tasks.part
    now = ratio(tasks.taken, tasks.offered)
    printed = np.where(now > 0.0, tasks.cpu / np.where(now > 0.0, now, 1.0), 0.0)
    # What is read as fast as it is taken needs what it uses.
    measured = known[part] & ~greedy[part]
    if bias:
        factor = np.array([bias.get(job, 1.0) for job in view.jobs])[view.parts.job]
        base, each = base * factor, each * factor

    def needs(rows: Floats) -> Needs:
        return Needs(
            base=np.where(measured, tasks.share * base[part], 0.0),
            slope=np.where(measured, tasks.share * each[part] * rows[part], printed),
            most=tasks.most,
        )

    return Prices(needs=needs(rate), steady=needs(steady), rate=rate, known=known, greedy=greedy)
