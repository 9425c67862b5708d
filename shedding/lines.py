"""Lines and parabolas through points, by least squares, and what is off them; pure.

Times are taken relative to the last point before anything is squared, so that a clock that began
long ago costs no digits.

    >>> Fit.of([(0.0, 0.0), (1.0, 2.0), (2.0, 4.0)]).first
    2.0
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Point = tuple[float, float]
"""A time and a level."""
FEWEST_CURVED = 8
"""Points below which a bend is not told from noise."""
MIDDLE = 0.826
"""The median distance of a point from the middle of its neighbours, in deviations of each."""


@dataclass(frozen=True, slots=True)
class Fit:
    """level = base + first * t + second * t * t, with t counted from `at`."""

    at: float
    base: float
    first: float
    second: float
    deviation: float
    """Of the points around it."""

    @classmethod
    def of(cls, points: Sequence[Point], *, curved: bool = False) -> Fit:
        """The line of at least two points at different times, or their parabola."""
        at, level = points[-1]
        ts = [t - at for t, _ in points]
        ys = [y - level for _, y in points]
        n = float(len(points))
        t1, t2 = sum(ts), sum(t * t for t in ts)
        y0, y1 = sum(ys), sum(t * y for t, y in zip(ts, ys, strict=True))
        if curved:
            t3, t4 = sum(t**3 for t in ts), sum(t**4 for t in ts)
            y2 = sum(t * t * y for t, y in zip(ts, ys, strict=True))
            base, first, second = solve(((n, t1, t2, y0), (t1, t2, t3, y1), (t2, t3, t4, y2)))
        else:
            first = (n * y1 - t1 * y0) / (n * t2 - t1 * t1)
            base, second = (y0 - first * t1) / n, 0.0
        left = sum(
            (y - base - first * t - second * t * t) ** 2 for t, y in zip(ts, ys, strict=True)
        )
        free = len(points) - (3 if curved else 2)
        deviation = math.sqrt(left / free) if free > 0 else 0.0
        return cls(at, base + level, first, second, deviation)

    def level(self, at: float) -> float:
        t = at - self.at
        return self.base + self.first * t + self.second * t * t


def noise(points: Sequence[Point]) -> float:
    """The deviation of points around any smooth curve: from how far each is from the middle between
    its neighbours, so that a bend or a step hardly adds to it."""
    offs = []
    for (t0, y0), (t1, y1), (t2, y2) in zip(points, points[1:], points[2:], strict=False):
        offs.append(abs(y1 - y0 - (y2 - y0) * (t1 - t0) / (t2 - t0)))
    return statistics.median(offs) / MIDDLE if offs else 0.0


def last_slope(points: Sequence[Point], seconds: float) -> float:
    """The mean slope over the last seconds, or over all points if these are fewer."""
    at, level = points[-1]
    want = max(at - seconds, points[0][0])
    before = points[0]
    for point in points:
        if point[0] > want:
            share = (want - before[0]) / (point[0] - before[0])
            began = before[1] + share * (point[1] - before[1])
            return (level - began) / (at - want)
        before = point
    raise ValueError("all points are at one time")


def leave(points: Sequence[Point], last: Sequence[Point], deviations: float, least: float) -> bool:
    """Whether all the last points are off what the points before them would lead to, on one side,
    by more than so many deviations, of at least `least` records."""
    for curved in (False, True)[: 1 + (len(points) >= FEWEST_CURVED)]:
        fit = Fit.of(points, curved=curved)
        most = deviations * max(fit.deviation, least)
        offs = [y - fit.level(t) for t, y in last]
        if not (all(off > most for off in offs) or all(off < -most for off in offs)):
            return False
    return True


def solve(rows: Sequence[Sequence[float]]) -> list[float]:
    """Three equations with three unknowns, by elimination with pivots."""
    left = [list(row) for row in rows]
    for i in range(3):
        pivot = max(range(i, 3), key=lambda r: abs(left[r][i]))
        left[i], left[pivot] = left[pivot], left[i]
        for r in range(i + 1, 3):
            factor = left[r][i] / left[i][i]
            left[r] = [a - factor * b for a, b in zip(left[r], left[i], strict=True)]
    found = [0.0, 0.0, 0.0]
    for i in (2, 1, 0):
        known = sum(left[i][k] * found[k] for k in range(i + 1, 3))
        found[i] = (left[i][3] - known) / left[i][i]
    return found
