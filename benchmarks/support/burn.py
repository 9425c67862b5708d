"""Work of a known size for the pipelines of the paper: a compiled function that spins.

`burn` is a chain of multiplications in which each needs the one before it, so a round takes the
same time wherever it runs. `rounds_for` measures that time once and says how many rounds a cost
needs.
"""

from __future__ import annotations

import functools

import numpy as np

import plait
from benchmarks.support.common import replayed
from plait import col

TRIED_ROUNDS = 200
TRIED_ROWS = 100_000


@plait.compiled
def burn(value: int, rounds: int) -> int:
    x = value
    for _ in range(rounds):
        x = (x * 6364136223846793005 + 1442695040888963407) ^ (x >> 7)
    return x


def burnt(values: np.ndarray, rounds: int) -> np.ndarray:
    """The same by NumPy, to check results with."""
    x = values.astype(np.int64).copy()
    with np.errstate(over="ignore"):
        for _ in range(rounds):
            x = (x * np.int64(6364136223846793005) + np.int64(1442695040888963407)) ^ (x >> 7)
    return x


@functools.cache
def round_ns() -> float:
    """What one round costs: the best of three, as a disturbance only ever adds."""
    table = replayed({"v": np.arange(TRIED_ROWS)}, TRIED_ROWS)
    best = float("inf")
    for _ in range(3):
        job = plait.stream(plait.Table(table)).select(v=burn(col("v"), TRIED_ROUNDS))
        done = plait.run(job.sink(plait.Discard()), workers=1, progress=False)
        best = min(best, done.seconds * 1e9 / TRIED_ROWS / TRIED_ROUNDS)
    return best


def rounds_for(cost_us: float) -> int:
    return max(1, round(cost_us * 1e3 / round_ns()))
