"""Hysteresis: what is kept falls quickly and rises late, so that noise changes nothing.

A fall that cannot wait for a cycle without results growing too old is made at once, any other if it
is wanted in two cycles. An accuracy rises after three cycles in which the higher one would have
fitted with something to spare: to the top at once if that fits, else by a third of the way. Small
changes are not made, and nothing rises on a host where a task still warms up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from plait.shedding.view import Bools, Floats, Ints
    from plait.shedding.words import QualityPolicy

SLOWLY = 3.0


def hold(
    keep: Floats,
    rising: Ints,
    wanted: Floats,
    wanted_before: Floats,
    spare: Floats,
    floor: Floats,
    bound: Floats,
    waits: Bools,
    hurry: Bools,
    warming: Bools,
    policy: QualityPolicy,
) -> tuple[Floats, Ints]:
    """The next keep ratios, and for how many cycles each could have been higher.

    `wanted` is what there is CPU for, `spare` what there would be CPU for with some left over.
    `hurry`: the query would not be fresh a cycle later. `waits`: a step that relieves the query is
    under way, and it stays fresh until then.
    """
    lowest = np.minimum(floor, bound)
    steps = float(policy.steps)
    sure = np.where(hurry, wanted, np.maximum(wanted, wanted_before))
    down = np.maximum(np.floor(sure * steps + 1e-9) / steps, lowest)
    fall = (down < keep) & ((keep - down >= policy.least_change) | (down == lowest)) & ~waits
    fall |= keep > bound
    top = spare >= bound
    better = np.where(top, bound, spare)
    could = (better > keep) & ((better - keep >= policy.least_change) | top) & ~warming & ~fall
    rising = np.where(could, rising + 1, 0)
    now = rising >= policy.raise_cycles
    third = np.floor((keep + (better - keep) / SLOWLY) * steps) / steps
    up = np.where(top, bound, np.maximum(third, keep + policy.least_change))
    raised = np.where(now, up, keep)
    result = np.where(fall, np.minimum(down, bound), raised)
    return np.clip(result, lowest, bound), np.where(now, 0, rising)
