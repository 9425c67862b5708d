"""Processor time of the cores that this process may use, by all processes and by this one.

A process started under `taskset`, as a Ray node may be, sees its own cores only: to it they
are the machine. The kernel counts in ticks of 10 ms, so what is told is over a second, whatever
the time between two looks. Any thread may ask.
"""

from __future__ import annotations

import os
import threading
from collections import deque

import psutil

CPU_WINDOW_S = 1.0


def own_cores() -> frozenset[int]:
    """The cores that this process may use."""
    return frozenset(os.sched_getaffinity(0))


class Processors:
    """Looks at the processors, and says how busy they were over the last second."""

    def __init__(self) -> None:
        self.process = psutil.Process()
        self.own = own_cores()
        self.cores = len(self.own)
        self.lock = threading.Lock()
        self.looks: deque[tuple[float, float, float]] = deque([self.now()])

    def now(self) -> tuple[float, float, float]:
        """Seconds of all these cores in use, without use, and in use by this process."""
        busy = unused = 0.0
        for core, times in enumerate(psutil.cpu_times(percpu=True)):
            if core in self.own:
                idle = times.idle + getattr(times, "iowait", 0.0)
                busy += sum(times[:8]) - idle
                unused += idle
        own = self.process.cpu_times()
        return busy, unused, own.user + own.system

    def ratios(self) -> tuple[float, float]:
        """The part of these cores that is in use, and what of it is not ours; 0 at first."""
        with self.lock:
            self.looks.append(self.now())
            while sum(self.looks[-1][:2]) - sum(self.looks[1][:2]) >= CPU_WINDOW_S * self.cores:
                self.looks.popleft()
            busy, idle, own = (
                after - before for after, before in zip(self.looks[-1], self.looks[0], strict=True)
            )
        total = busy + idle
        if total < CPU_WINDOW_S * self.cores / 4:
            return 0.0, 0.0
        return min(1.0, busy / total), min(1.0, max(0.0, busy - own) / total)
