"""How fast records come in, estimated from looks at a source; pure, no clock.

A look is a `Sample`: how far the reader is and, if the source knows it, how far what is there goes.
The rate is the slope of the end over a window of 3 s, longer where the end moves in few large
steps; where the looks of the window do not lie along a line (a ramp, bursts), that of the last
second. When the last two leave line and parabola of those before by more than 4 deviations, the
rate has changed and the window begins anew at the look before them.

    >>> from plait.protocol.rates import Sample
    >>> found = Estimator()
    >>> for second in range(4):
    ...     found.add(Sample(at=second, position=80 * second, end=100 * second))
    >>> print(found.rate(3.0))
    100/s come in, 60 behind (0.6 s)
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from plait.protocol.rates import SourceRate
from plait.shedding.lines import Fit, Point, last_slope, leave, noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.protocol.rates import Sample

WINDOW_S = 3.0
MOST_WINDOW_S = 60.0
STEPS = 4
"""Of an end that moves in steps: how many of them the window has."""
DEVIATIONS = 4.0
LEAST = 1.0
"""Records: a deviation is never taken to be smaller."""
FEWEST = 5
"""Looks before the last two that can tell whether these leave the line."""
STRAIGHT = 2.0
"""Points whose deviation from their line is at most so many times that between neighbours lie
along it."""
RECENT_S = 1.0
TRUST_S = 1.0
"""A window as long as this is trusted fully."""
SILENCE_S = 3.0
"""Without a look for so long, a rate is not trusted any more."""
GAPS = 16
"""Steps of the end from which their usual distance is taken."""
NOTED_S, NOTED = 1.0, 600
"""For the lag in seconds: how often the end is written down, and how many of these are kept."""
MOST_PARTITIONS = 64


class Estimator:
    """Of one source, or one partition."""

    def __init__(self) -> None:
        self.last: Sample | None = None
        self.position = 0.0
        self.points: deque[Point] = deque()
        """Where the end moved, and where long times without a move ended."""
        self.gaps: deque[float] = deque(maxlen=GAPS)
        self.noted: deque[Point] = deque(maxlen=NOTED)

    def add(self, sample: Sample) -> None:
        """The next look. After a clock or an end that went back it begins anew."""
        last = self.last
        level = level_of(sample)
        if last is not None and (sample.at < last.at or level < level_of(last)):
            self.points.clear()
            self.gaps.clear()
            self.noted.clear()
            last = None
        self.last = sample
        self.position = sample.position
        if last is None:
            self.points.append((sample.at, level))
            self.noted.append((sample.at, level))
            return
        if level > level_of(last):
            if sample.at == last.at:  # the clock stands still
                self.points[-1] = (self.points[-1][0], level)
            else:
                self.move(last, sample.at, level)
        if sample.at - self.noted[-1][0] >= NOTED_S:
            self.noted.append((sample.at, level))

    def read_to(self, position: float) -> None:
        """Reading went on; nobody looked at the end."""
        self.position = max(self.position, position)

    def move(self, last: Sample, at: float, level: float) -> None:
        """The end has moved."""
        began = self.points[-1][0]
        if self.stood(last.at - began) and last.at > began:
            self.points.append((last.at, level_of(last)))
        else:
            self.gaps.append(at - began)
        self.points.append((at, level))
        length = self.length()
        while self.points[1][0] < at - length and len(self.points) > 2:
            self.points.popleft()
        window = self.window(at)
        if len(window) >= FEWEST + 2 and leave(window[:-2], window[-2:], DEVIATIONS, LEAST):
            for _ in range(len(self.points) - 3):
                self.points.popleft()

    def gap(self) -> float:
        """The usual time between two moves of the end."""
        return statistics.median(self.gaps) if self.gaps else 0.0

    def length(self) -> float:
        """Of the window, in seconds."""
        return min(max(WINDOW_S, STEPS * self.gap()), MOST_WINDOW_S)

    def stood(self, seconds: float) -> bool:
        """Whether an end that has not moved for so long has stopped, or is only between steps."""
        return bool(self.gaps) and seconds > 2.0 * self.gap()

    def window(self, at: float) -> list[Point]:
        """The points that count."""
        length = self.length()
        points = [point for point in self.points if point[0] >= at - length]
        before = len(self.points) - len(points)
        if before and len(points) < 2:
            # The end stood since before the window.
            points.insert(0, (at - length, self.points[before - 1][1]))
        return points

    def rate(self, now: float) -> SourceRate:
        """What is known at a time."""
        last = self.last
        if last is None:
            return SourceRate(per_s=0.0, lag=None, lag_s=None, trust=0.0)
        points = self.window(last.at)
        if not points:
            points = [self.points[-1]]
        began, level = self.points[-1]
        if last.at > began and (self.stood(last.at - began) or len(points) < 2):
            still = [(began, level), (last.at, level)]
            # A stop is a change of the rate as any other.
            stopped = len(points) >= FEWEST and leave(points, still[1:], DEVIATIONS, LEAST)
            points = still if stopped else [*points, (last.at, level)]
            points = [point for point in points if point[0] >= last.at - WINDOW_S] or still
        span = points[-1][0] - points[0][0]
        per_s = slope_at_end(points, max(RECENT_S, 2.0 * self.gap())) if span > 0.0 else 0.0
        lag = None if last.end is None else max(last.end - self.position, 0.0)
        return SourceRate(
            per_s=per_s,
            lag=lag,
            lag_s=self.lag_s(last, lag, per_s, now),
            trust=self.trust(span, now - last.at),
        )

    def lag_s(self, last: Sample, lag: float | None, per_s: float, now: float) -> float | None:
        if lag is None or lag == 0.0:
            return lag
        if last.oldest_s is not None:
            return last.oldest_s + max(now - last.at, 0.0)
        return max(now - self.came_in(self.position, per_s), 0.0)

    def came_in(self, position: float, per_s: float) -> float:
        """When the end passed a position."""
        known = [point for point in self.noted if point[0] < self.points[0][0]]
        known += self.points
        first_at, first = known[0]
        if position < first:
            return first_at - ((first - position) / per_s if per_s > 0.0 else 0.0)
        before = first_at, first
        for at, level in known:
            if level > position:
                share = (position - before[1]) / (level - before[1])
                return before[0] + share * (at - before[0])
            before = at, level
        return before[0]

    def trust(self, span: float, age: float) -> float:
        limit = max(SILENCE_S, 3.0 * self.gap())
        fresh = 1.0 if age <= limit / 2.0 else max(0.0, 2.0 * (1.0 - age / limit))
        return min(1.0, span / max(TRUST_S, 2.0 * self.gap())) * fresh


def level_of(sample: Sample) -> float:
    return sample.position if sample.end is None else sample.end


def slope_at_end(points: Sequence[Point], recent_s: float) -> float:
    """The slope of the line through the points; if they do not lie along one, the mean slope of
    the last part. Never below 0, since nothing goes back."""
    line = Fit.of(points)
    straight = line.deviation <= STRAIGHT * max(noise(points), LEAST)
    return max(line.first if straight else last_slope(points, recent_s), 0.0)


class RecordsPerOffset:
    """How many records there are for each offset: marks of transactions and removed records take
    offsets, too. From what was read in the last minute; 1 before anything was."""

    def __init__(self) -> None:
        self.noted: deque[tuple[float, float, float]] = deque()
        self.ratio = 1.0

    def note(self, at: float, offsets: float, records: float) -> None:
        """So far this many offsets were passed, and this many records were read."""
        if self.noted and offsets < self.noted[-1][1]:
            self.noted.clear()
        if len(self.noted) > 1 and at - self.noted[-2][0] < NOTED_S:
            self.noted.pop()
        self.noted.append((at, offsets, records))
        while len(self.noted) > 2 and self.noted[0][0] < at - MOST_WINDOW_S:
            self.noted.popleft()
        passed = offsets - self.noted[0][1]
        if passed > 0.0:
            self.ratio = max((records - self.noted[0][2]) / passed, 0.0)


def scaled(rate: SourceRate, ratio: float) -> SourceRate:
    """A rate in offsets as one in records."""
    lag = None if rate.lag is None else rate.lag * ratio
    return replace(rate, per_s=rate.per_s * ratio, lag=lag)


def summed(partitions: Mapping[str, SourceRate]) -> SourceRate:
    """The rate of a source, from those of its partitions."""
    rates = list(partitions.values())
    if not rates:
        return SourceRate(per_s=0.0, lag=None, lag_s=None, trust=0.0)
    lags = [rate.lag for rate in rates if rate.lag is not None]
    seconds = [rate.lag_s for rate in rates if rate.lag_s is not None]
    shown = list(partitions.items())
    if len(shown) > MOST_PARTITIONS:
        shown = sorted(shown, key=lambda one: -(one[1].lag or 0.0))[:MOST_PARTITIONS]
    return SourceRate(
        per_s=sum(rate.per_s for rate in rates),
        lag=sum(lags) if len(lags) == len(rates) else None,
        lag_s=max(seconds) if len(seconds) == len(rates) else None,
        trust=min(rate.trust for rate in rates),
        partitions=tuple(shown),
    )


def chained(upstream: SourceRate, here: SourceRate) -> SourceRate:
    """The rate of a source that another system fills: what comes in there, and what is not read
    there and here together. Without a trusted rate from there, the one from here."""
    if upstream.trust == 0.0:
        return replace(here, partitions=(("upstream", upstream), ("log", here)))
    known = [rate.lag for rate in (upstream, here) if rate.lag is not None]
    seconds = [rate.lag_s for rate in (upstream, here) if rate.lag_s is not None]
    return SourceRate(
        per_s=upstream.per_s,
        lag=sum(known) if known else None,
        lag_s=max(seconds) if seconds else None,
        trust=upstream.trust,
        partitions=(("upstream", upstream), ("log", here)),
    )


def due_rate(per_s: float, due: float, read: float) -> SourceRate:
    """Of a source whose records are due by the clock: nothing is estimated."""
    lag = max(due - read, 0.0)
    return SourceRate(per_s=per_s, lag=lag, lag_s=lag / per_s if per_s > 0.0 else 0.0, trust=1.0)


def by_lag_metrics(
    *,
    lag_max_before: float,
    lag_max: float,
    seconds: float,
    consumed_per_s: float,
    assigned: int,
    partitions: int,
) -> float:
    """The estimate of Alves and Veiga, from a consumer's own metrics: what the partition that is
    furthest behind gained in lag, plus the share of one partition in what was consumed, times the
    partitions. It takes the load to be spread evenly. Kept to be measured beside ours."""
    return ((lag_max - lag_max_before) / seconds + consumed_per_s / assigned) * partitions
