"""Algorithm 3: the CPU beyond the floors is shared evenly, by priority.

`fill` is its heart: on each host the least need comes first, and what one does not need is left to
the others. `share` goes through the priorities, highest first. The text orders hosts by slack, so
that CPU is not given where another host sets the limit; here all hosts are filled at once, and
rounds give back what could not be used, which also pays what a text without rounds leaves over:
behind a prefix that turned out to need less, or beside a sibling that is held back elsewhere.

A prefix is paid in slices: at a priority only up to what its queries of that priority or a higher
one use, so that no low query rides on the priority of a high one. Line 7 of the text adds accuracy
from extra CPU to the floor; here it is the accuracy of all that was paid, at most 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait.shedding.quality import least, max_ac, total

if TYPE_CHECKING:
    from plait.shedding.view import Bools, Floats, Ints, Pairs

ROUNDS = 12
LEAST_GAIN = 1e-4
"""Of accuracy: a query that gained less in a round is held by something."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Needs:
    """What tasks need, in cores: `base + slope * accuracy`, at most `most`; nothing for 0."""

    base: Floats
    slope: Floats
    most: Floats

    def cpu(self, accuracy: Floats) -> Floats:
        """Eq. 8, 9 and 10 with the cost that was learnt."""
        return np.minimum(self.beyond(accuracy), self.most)

    def beyond(self, accuracy: Floats) -> Floats:
        """Without the cap."""
        return np.where(accuracy > 0.0, self.base + self.slope * accuracy, 0.0)

    def accuracy(self, cores: Floats) -> Floats:
        """Eq. 11: the accuracy that some CPU pays for, 0 to 1."""
        paid = np.minimum(cores, self.most) - self.base
        some = self.slope > 0.0
        return np.where(
            some,
            np.clip(paid / np.where(some, self.slope, 1.0), 0.0, 1.0),
            np.where(paid >= 0.0, 1.0, 0.0),
        )

    def reach(self) -> Floats:
        """The accuracy a task gets to with all the cores it can use."""
        return self.accuracy(self.most)

    def of(self, rows: Ints | Bools) -> Needs:
        return Needs(base=self.base[rows], slope=self.slope[rows], most=self.most[rows])


def fill(want: Floats, host: Ints, left: Floats) -> Floats:
    """Lines 3 to 13 on all hosts at once: everyone gets what it wants or, where that is not there,
    as much as the others that do not get it either."""
    count = len(want)
    if not count:
        return want
    order = np.lexsort((want, host))
    by_need, there = want[order], host[order]
    first = np.flatnonzero(np.concatenate(([True], there[1:] != there[:-1])))
    sizes = np.diff(np.concatenate((first, [count])))
    segment = np.repeat(np.arange(len(first)), sizes)
    places = np.arange(count)
    before = np.cumsum(by_need) - by_need
    before -= before[first][segment]
    even = (np.maximum(left[there], 0.0) - before) / (sizes[segment] - (places - first[segment]))
    short = np.minimum.reduceat(np.where(by_need > even, places, count), first)
    level = np.where(short < count, even[np.minimum(short, count - 1)], np.inf)
    given = np.empty(count)
    given[order] = np.minimum(by_need, np.maximum(level, 0.0)[segment])
    return given


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    accuracy: Floats
    """Of each query: desired(q)."""
    left: Floats
    """Of each host: cores nobody needs; below 0 where not even the floors fit."""
    paid: Floats
    """Of each task: the cores it was given."""


def share(
    needs: Needs,
    part: Ints,
    host: Ints,
    behind: Pairs,
    priority: Ints,
    floor: Floats,
    bound: Floats,
    available: Floats,
) -> Shares:
    """What accuracy every query gets, between its floor and its bound.

    `needs`, `part` and `host` are of tasks; `behind` pairs parts with queries; `priority`, `floor`
    and `bound` are of queries, `available` of hosts.
    """
    parts = int(max(part.max(initial=-1), behind.left.max(initial=-1))) + 1
    accuracy = np.minimum(floor, bound)
    passes = max_ac(accuracy, behind, parts)
    paid = needs.cpu(passes[part])
    left = available - total(paid, host, len(available))
    reach = least(least(needs.reach(), part, parts, 1.0)[behind.left], behind.right, len(floor), 1)
    cap = np.maximum(np.minimum(bound, reach), accuracy)
    top = max_ac(cap, behind, parts)
    all_of_it = needs.cpu(top[part])
    rest = available - total(all_of_it, host, len(available))
    if (rest >= 0.0).all():
        return Shares(accuracy=cap, left=rest, paid=all_of_it)
    for level in np.unique(priority)[::-1]:
        active = (priority == level) & (cap > accuracy)
        for _ in range(ROUNDS):
            if not active.any():
                break
            pairs = active[behind.right]
            rows, queries = behind.left[pairs], behind.right[pairs]
            goal = passes.copy()
            np.maximum.at(goal, rows, cap[queries])
            mine = np.flatnonzero(goal[part] > passes[part])
            some = needs.of(mine)
            want = some.cpu(goal[part[mine]]) - paid[mine]
            given = fill(want, host[mine], left)
            # All it wants gives it all of the goal, whatever rounding says.
            reached = np.where(given >= want, goal[part[mine]], some.accuracy(paid[mine] + given))
            by_part = np.minimum(least(reached, part[mine], parts, 1.0), goal)
            got = least(by_part[rows], queries, len(floor), 1.0)
            better = np.where(active, np.clip(got, accuracy, cap), accuracy)
            active &= (better - accuracy >= LEAST_GAIN) & (better < cap)
            accuracy = better
            np.maximum.at(passes, rows, accuracy[queries])
            now = needs.of(mine).cpu(passes[part[mine]])
            left -= total(now - paid[mine], host[mine], len(left))
            paid[mine] = now
    return Shares(accuracy=accuracy, left=left, paid=paid)
