"""Algorithm 2: which tasks leave a host that cannot hold them all.

The text has four slips, which are mended here: the lowest priorities are considered first, as its
introduction says; what was chosen counts against a fixed amount (its line 14 lets off too many);
it gives back what was chosen; and tasks that left are not given CPU on the host they left, because
their CPU counts at the host they go to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from plait.shedding.view import Floats, Ints


EPSILON = 1e-9


def release(
    amount: float, needs: Floats, priority: Ints, state_bytes: Floats
) -> list[tuple[int, float]]:
    """Tasks to move and the share of each, so that at least `amount` cores become free, if that
    many are used at all: low priorities first, no more than needed. Rows whose needs are 0 release
    nothing and stay. Of the one that was chosen last only a share goes."""
    if amount <= 0.0:
        return []
    levels = np.unique(priority)
    sums = np.cumsum([float(needs[priority == level].sum()) for level in levels])
    enough = int(np.searchsorted(sums, amount, side="left"))
    highest = levels[min(enough, len(levels) - 1)] if len(levels) else 0
    rows = np.flatnonzero((priority <= highest) & (needs > 0.0))
    order = rows[np.lexsort((rows, -state_bytes[rows], -needs[rows], -priority[rows]))]
    released = float(needs[order].sum())
    chosen: list[int] = []
    for row, need in zip(order.tolist(), needs[order].tolist(), strict=True):
        if released - need >= amount - EPSILON:
            released -= need
        else:
            chosen.append(row)
    if not chosen:
        return []
    found = [(row, 1.0) for row in chosen]
    spare = released - amount
    if spare > 0.0:
        last = float(needs[chosen[-1]])
        found[-1] = (chosen[-1], max(last - spare, 0.0) / last)
    return found
