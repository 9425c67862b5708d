"""How many cores each sub-pipeline of a node uses: differences of what the node reports, pure.

A rate is over two reports that are at least half a second apart, because processor time is told in
pieces; of the last three the one in the middle counts, so that a single hiccup shows nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.protocol.messages import NodeReport

RATE_S = 0.5
KEPT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuWatch:
    """What is known of the processor time of a node."""

    report: NodeReport
    """The one that the next rate is taken from, and when it came."""
    at: float
    rates: tuple[tuple[float, ...], ...] = ()
    """The last ones: cores of the process, then of each sub-pipeline."""

    @property
    def cores(self) -> tuple[float, ...]:
        """Of the process, then of each sub-pipeline; empty until it is known."""
        return tuple(map(median, zip(*self.rates, strict=True)))


def note_cpu(known: CpuWatch | None, report: NodeReport, at: float) -> CpuWatch:
    """A report has come."""
    if known is None or is_new(known.report, report):
        return CpuWatch(report=report, at=at)
    passed = at - known.at
    if passed < RATE_S:
        return known
    used = zip(counters(known.report), counters(report), strict=True)
    rate = tuple(max(0.0, after - before) / passed for before, after in used)
    return CpuWatch(report=report, at=at, rates=(*known.rates[1 - KEPT :], rate))


def is_new(before: NodeReport, after: NodeReport) -> bool:
    """Whether the engine was built anew since."""
    return before.attempt != after.attempt or len(before.tasks) != len(after.tasks)


def counters(report: NodeReport) -> tuple[float, ...]:
    return (report.process_cpu_s, *(task.cpu_s for task in report.tasks))
