"""A chart of latencies on a terminal: time to the right, milliseconds upwards on a log scale.

Two marks for each column: the longest latency in its time, and the one half of the records stayed
below. An interval, such as a rescale, may be marked under the axis. Pure: samples in, text out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST, HALF = "▪", "·"
LEGENDS = (f"{LONGEST} longest  {HALF} half below", f"{LONGEST} max  {HALF} p50")
LABEL = 8
"""Columns of the labels of the axis."""
LOWEST = -3
"""The axis begins at 10 to this power, one microsecond, or higher."""
LEAST_WIDTH, LEAST_HEIGHT = 30, 6

Sample = tuple[float, float, float]
"""Seconds, and of the records delivered around then the median and the longest latency in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Where a time and a latency are on the chart."""

    columns: int
    rows: int
    from_s: float
    to_s: float
    low: int
    """The powers of ten at the bottom and at the top."""
    high: int

    def column(self, at_s: float) -> int:
        span = self.to_s - self.from_s
        place = (at_s - self.from_s) / span if span > 0 else 0.0
        return min(max(int(place * self.columns), 0), self.columns - 1)

    def row(self, value_ms: float) -> int:
        """Counted from the bottom."""
        place = (math.log10(value_ms) - self.low) / (self.high - self.low)
        return min(max(round(place * (self.rows - 1)), 0), self.rows - 1)


def latency_chart(
    samples: Sequence[Sample],
    width: int = 80,
    height: int = 16,
    *,
    marked: tuple[float, float] | None = None,
    label: str = "rescale",
) -> str:
    """The samples in `width` columns and `height` lines; `marked` is an interval in seconds."""
    values = [ms for _, half, longest in samples for ms in (half, longest) if ms > 0]
    if not values:
        return "no latency measured yet"
    low = max(math.floor(math.log10(min(values))), LOWEST)
    axes = Axes(
        columns=max(width, LEAST_WIDTH) - LABEL - 2,
        rows=max(height, LEAST_HEIGHT) - (2 if marked is None else 3),
        from_s=min(at_s for at_s, _, _ in samples),
        to_s=max(at_s for at_s, _, _ in samples),
        low=low,
        high=max(math.ceil(math.log10(max(values))), low + 1),
    )
    lines = plot(samples, axes)
    lines.append(f"{'':{LABEL}} └{'─' * axes.columns}")
    if marked is not None:
        under = interval(axes.column(marked[0]), axes.column(marked[1]), label, axes.columns)
        lines.append(f"{'':{LABEL}}  {under}")
    first, last = (f"{f'{at:,.1f}'.removesuffix('.0')} s" for at in (axes.from_s, axes.to_s))
    room = axes.columns - len(first) - len(last)
    legend = next((text for text in LEGENDS if len(text) + 2 <= room), "")
    lines.append(f"{'':{LABEL}}  {first}{legend.center(room)}{last}")
    return "\n".join(line.rstrip() for line in lines)


def plot(samples: Sequence[Sample], axes: Axes) -> list[str]:
    """The lines above the axis, with the powers of ten at their left."""
    cells = [[" "] * axes.columns for _ in range(axes.rows)]
    halves: dict[int, list[float]] = {}
    longest: dict[int, float] = {}
    for at_s, half, most in samples:
        column = axes.column(at_s)
        if half > 0:
            halves.setdefault(column, []).append(half)
        if most > 0:
            longest[column] = max(longest.get(column, 0.0), most)
    for column, found in halves.items():
        cells[axes.row(sorted(found)[len(found) // 2])][column] = HALF
    for column, most in longest.items():  # last: the longest is what one looks for
        cells[axes.row(most)][column] = LONGEST
    labels: dict[int, str] = {}
    for power in range(axes.low, axes.high + 1):
        labels.setdefault(axes.row(10.0**power), power_text(power))
    return [
        f"{labels.get(row, ''):>{LABEL}} {'┤' if row in labels else '│'}{''.join(cells[row])}"
        for row in reversed(range(axes.rows))
    ]


def power_text(power: int) -> str:
    """A power of ten of milliseconds, in a unit in which it is a whole number."""
    if power >= 3:
        return f"{10 ** (power - 3)} s"
    return f"{10**power} ms" if power >= 0 else f"{10 ** (power + 3)} us"


def interval(first: int, last: int, label: str, columns: int) -> str:
    """A bracket from one column to another with its label inside, or beside it if it is short."""
    wide = last - first + 1
    if wide >= len(label) + 2:
        return " " * first + f"├{label.center(wide - 2, '─')}┤"
    bracket = f"├{'─' * (wide - 2)}┤" if wide > 1 else "│"
    right = f"{' ' * first}{bracket} {label}"
    return right if len(right) <= columns else f"{label} {bracket}".rjust(last + 1)
