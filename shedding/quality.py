"""Equations 1 to 15 of the model, each a function with the name of its symbol.

The model is that of Alves and Veiga (Stream-Economics), with a task for their task instance and a
sub-pipeline ("part") for their task. Where the text slips, the function does the right thing and
its docstring says what that is. Every function works on columns, for all rows at once.

    >>> import numpy as np
    >>> float(r_cpu(np.array([1.0]), np.array([0.3]), np.array([0.5]), np.array([1.0]))[0])
    0.6
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from plait.shedding.view import Bools, Floats, Ints, Pairs


def most(values: Floats, into: Ints, rows: int, default: float) -> Floats:
    """The greatest value of each row that values belong to."""
    out = np.full(rows, -np.inf)
    np.maximum.at(out, into, values)
    return np.where(np.isneginf(out), default, out)


def least(values: Floats, into: Ints, rows: int, default: float) -> Floats:
    out = np.full(rows, np.inf)
    np.minimum.at(out, into, values)
    return np.where(np.isposinf(out), default, out)


def total(values: Floats | Bools, into: Ints, rows: int) -> Floats:
    """The sum of the values of each row."""
    found: Floats = np.bincount(into, weights=values, minlength=rows).astype(np.float64, copy=False)
    return found


def depths(edges: Pairs, parts: int) -> Ints:
    """How many parts are before each, on the longest way from a source."""
    found = np.zeros(parts, dtype=np.int64)
    while True:
        deeper = found.copy()
        np.maximum.at(deeper, edges.right, found[edges.left] + 1)
        if np.array_equal(deeper, found):
            return found
        found = deeper


def p(priority: Ints, behind: Pairs, parts: int) -> Ints:
    """Eq. 1: the priority of a part is that of the best query behind it."""
    found = np.full(parts, np.iinfo(np.int64).min)
    np.maximum.at(found, behind.left, priority[behind.right])
    return found


def min_ac(floor: Floats, behind: Pairs, parts: int) -> Floats:
    """Eq. 2: the floor of a part is the highest of the queries behind it."""
    return most(floor[behind.right], behind.left, parts, 0.0)


def c_ac(local: Floats, edges: Pairs, depth: Ints) -> Floats:
    """Eq. 3: the accuracy of a part now is its own times the least of those that feed it."""
    out = local.copy()
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = depth[edges.right] == level
        left, right = edges.left[here], edges.right[here]
        before = least(out[left], right, len(out), 1.0)
        rows = np.unique(right)
        out[rows] = local[rows] * before[rows]
    return out


def ratio(taken: Floats, offered: Floats) -> Floats:
    """What a task takes of what it is offered, at most all; all of nothing."""
    some = offered > 0.0
    return np.where(some, np.minimum(taken / np.where(some, offered, 1.0), 1.0), 1.0)


def l_ac(taken: Floats, offered: Floats, part: Ints, parts: int) -> Floats:
    """Eq. 4: the accuracy of a part by itself, that of its worst task. A task is measured against
    the rows that were routed to it: keys are skewed, and nobody gets the fair share."""
    return least(ratio(taken, offered), part, parts, 1.0)


def max_ac(desired: Floats, behind: Pairs, parts: int) -> Floats:
    """Eq. 5: the highest accuracy that the queries behind a part ask of it."""
    return most(desired[behind.right], behind.left, parts, 0.0)


def cpu(used: Floats, taken: Floats, offered: Floats, part: Ints, parts: int) -> Floats:
    """Eq. 6: the CPU of a part is that of its worst task; of equally bad ones, the greatest."""
    order = np.lexsort((-used, ratio(taken, offered), part))
    first = np.unique(part[order], return_index=True)
    out = np.zeros(parts)
    out[first[0]] = used[order][first[1]]
    return out


def m_obt_cpu(available: Floats, host: Ints, priority: Ints) -> Floats:
    """Eq. 7: what a task gets at least is an even share among those of its priority there."""
    order = np.lexsort((priority, host))
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.diff(host[order]).astype(bool) | np.diff(priority[order]).astype(bool)
    group = np.cumsum(new) - 1
    mates = np.empty(len(order))
    mates[order] = np.bincount(group)[group]
    return np.maximum(available[host], 0.0) / mates


def r_cpu(ac: Floats, used: Floats, now: Floats, full: Floats) -> Floats:
    """Eq. 8: what an accuracy needs, if CPU grows in proportion. `used` and `now`: the CPU and the
    accuracy measured. The text caps at one core; the cap is what the task can use, and
    `uncapped` tells what it would need, so that a floor beyond the cap is not taken as met."""
    return np.minimum(uncapped(ac, used, now, full), full)


def uncapped(ac: Floats, used: Floats, now: Floats, full: Floats) -> Floats:
    """Eq. 8 without the cap."""
    some = now > 0.0
    return np.where(some, ac * used / np.where(some, now, 1.0), np.where(ac > 0.0, full, 0.0))


def min_req_cpu(floor: Floats, used: Floats, now: Floats, full: Floats) -> Floats:
    """Eq. 9: what the floor needs."""
    return r_cpu(floor, used, now, full)


def max_req_cpu(highest: Floats, used: Floats, now: Floats, full: Floats) -> Floats:
    """Eq. 10: what the highest accuracy that is asked for needs."""
    return r_cpu(highest, used, now, full)


def obt_ac(given: Floats, used: Floats, now: Floats) -> Floats:
    """Eq. 11: the accuracy that some CPU gives, at most 1."""
    by_rule = np.minimum(now * given / np.where(used > 0.0, used, 1.0), 1.0)
    idle = np.where(given > 0.0, 1.0, now)
    unknown = np.where(given > 0.0, 1.0, 0.0)
    return np.where(now > 0.0, np.where(used > 0.0, by_rule, idle), unknown)


def diff_req(highest: Floats, lowest: Floats) -> Floats:
    """Eq. 12: what a task needs beyond its floor."""
    return highest - lowest


def slack(difference: Floats, obtained: Floats, host: Ints, hosts: int) -> Floats:
    """Eq. 13: how short a host is, over its tasks of one priority (or of all, if these are handed
    in). The text takes the obtained CPU of a part, which is defined for a task: so here."""
    return total(difference - obtained, host, hosts)


def desired(query: Floats, behind: Pairs, edges: Pairs, depth: Ints) -> Floats:
    """Eq. 14: what a part should pass is the most that anything it feeds wants. The queries at its
    end want what was decided for them."""
    parts = len(depth)
    feeds = np.zeros(parts, dtype=bool)
    feeds[edges.left] = True
    own = most(query[behind.right], behind.left, parts, 0.0)
    out = np.where(feeds, 0.0, own)
    for level in range(int(depth.max(initial=0)), -1, -1):
        here = depth[edges.left] == level
        np.maximum.at(out, edges.left[here], out[edges.right[here]])
    return out


def d(wanted: Floats, edges: Pairs) -> Floats:
    """Eq. 15: of what a part passes, the share that the part it feeds keeps, for each edge. Into a
    source's part it is what that part wants itself."""
    above = wanted[edges.left]
    return np.where(above > 0.0, wanted[edges.right] / np.where(above > 0.0, above, 1.0), 1.0)
