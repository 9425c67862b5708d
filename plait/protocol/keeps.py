"""How much of a query is kept, as it goes to the nodes: a threshold for hashes of 64 bits."""

from __future__ import annotations

import math

KEEP_ALL = 2**64 - 1
"""The threshold below which every hash is taken to be."""


def ratio_of(threshold: int) -> float:
    """The share of the records that a threshold keeps.

    >>> ratio_of(2**63), ratio_of(KEEP_ALL)
    (0.5, 1.0)
    """
    return 1.0 if threshold == KEEP_ALL else math.ldexp(threshold, -64)
