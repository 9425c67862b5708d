"""What a node measures of itself for its reports: latencies, pace, how crowded its machine is."""

from __future__ import annotations

import os
import time
from pathlib import Path

from plait.results.outcomes import percentile_ns


def crowd_here() -> float:
    """Threads that want to run, for each core: now, or on average over the last minute."""
    try:
        average, _, _, now, _ = Path("/proc/loadavg").read_text(encoding="ascii").split()
        running = float(now.partition("/")[0]) - 1.0
        return max(float(average), running) / (os.cpu_count() or 1)
    except (OSError, ValueError):
        return 0.0


class Latencies:
    """Of the records delivered since the last report that had any, in milliseconds."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.shown = (0.0, 0.0, 0.0)

    def since_last(self, counts: dict[int, int]) -> tuple[float, float, float]:
        """p50, p99 and the greatest; `counts` are of all records so far, by upper edge in ns."""
        fresh = {
            edge: count - self.seen.get(edge, 0)
            for edge, count in counts.items()
            if count > self.seen.get(edge, 0)
        }
        if fresh:
            self.seen = counts
            most = max(fresh)
            p50, p99 = (percentile_ns(fresh, most, percent) for percent in (50.0, 99.0))
            self.shown = (p50 / 1e6, p99 / 1e6, most / 1e6)
        return self.shown


class Pace:
    """How many epochs a second the sources emit: the lower of the last two measurements, because a
    node that joins goes from nothing to the epoch of the others at once."""

    def __init__(self) -> None:
        self.at = time.monotonic()
        self.epoch = 0
        self.rates = (0.0, 0.0)

    def note(self, epoch: int) -> None:
        now = time.monotonic()
        if now - self.at >= 0.05:
            self.rates = (self.rates[1], (epoch - self.epoch) / (now - self.at))
            self.at, self.epoch = now, epoch

    def epochs_per_s(self, epoch: int) -> float:
        self.note(epoch)
        return max(min(self.rates), 0.0)
