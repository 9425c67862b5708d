"""Which records a shedder keeps: the hash, thresholds, and ratios by query; pure.

A record is in a sample iff its hash is below the threshold, which is the ratio as a share of
2 ** 64. The hash is of the seed and the place of the row in its source, or of the seed and the
canonical hash of a key; so whoever has seed, place and threshold knows what is kept, and the sample
of a lower ratio is a part of that of a higher one. `sample_hash.hpp` is the native twin, and golden
values in the tests of both keep them from ever changing.

    >>> threshold(0.5) == 2**63, threshold(0.0), threshold(1.0) == KEEP_ALL
    (True, 0, True)
    >>> is_kept(row_sample(SEED, source=0, row=0), threshold(0.5))
    True
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from plait.errors import JobError
from plait.protocol.keeps import KEEP_ALL, ratio_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
KEYS_SEED = 0x7368656462796B79
SEED = 0
"""Of all jobs: runs are compared, and queries of several jobs on one topic see the same sample."""

KEEP_NONE = 0


def mix64(z: int) -> int:
    """A bijection of 64 bits in which every bit of the result depends on all."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def row_sample(seed: int, source: int, row: int) -> int:
    """The hash of a row of a source."""
    own = mix64((mix64(seed) + (source + 1) * GOLDEN) & MASK)
    return mix64((own + row * GOLDEN) & MASK)


def key_sample(seed: int, key_hash: int) -> int:
    """The hash of a key, from its canonical hash (`plait.model.key_hash`)."""
    return mix64((mix64(seed ^ KEYS_SEED) + key_hash) & MASK)


def is_kept(sample: int, threshold: int) -> bool:
    return threshold == KEEP_ALL or sample < threshold


def threshold(ratio: float) -> int:
    """The threshold of a keep ratio from 0 to 1; only 1 keeps everything."""
    if not 0 <= ratio <= 1:
        raise JobError(f"a keep ratio is from 0 to 1, not {ratio!r}")
    if ratio == 1:
        return KEEP_ALL
    return min(math.floor(math.ldexp(ratio, 64)), KEEP_ALL - 1)


def thresholds(ratios: Mapping[int, float], queries: int) -> tuple[int, ...]:
    """The thresholds of all queries, from the ratios of those that are to be shed, by their number;
    none if nothing is. This is what a layout carries.

    >>> thresholds({}, queries=2), [t == KEEP_ALL for t in thresholds({1: 0.5}, queries=2)]
    ((), [True, False])
    """
    found = tuple(threshold(ratios.get(query, 1.0)) for query in range(queries))
    return () if all(one == KEEP_ALL for one in found) else found


def ratios_of(plans: Sequence[tuple[int, Sequence[int]]]) -> dict[int, float]:
    """The ratios below 1 of the last of some plans, by query."""
    last = plans[-1][1] if plans else ()
    return {query: ratio_of(one) for query, one in enumerate(last) if one != KEEP_ALL}


def most(keep: Sequence[int], queries: Sequence[int]) -> int:
    """What the greediest of some queries wants: the threshold of a sample for all of them."""
    return max((keep[query] for query in queries), default=KEEP_NONE) if keep else KEEP_ALL
