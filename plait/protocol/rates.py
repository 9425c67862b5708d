"""How fast records come in at a source, and how far behind its reader is: plain data.

Connectors give samples, `plait.shedding` makes rates of them, nodes report these, and results,
handles and `plait top` show them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a source or at a partition of it, in records or in offsets."""

    at: float
    """On the monotonic clock of the process that looked."""
    position: float
    """What is read is before it."""
    end: float | None = None
    """What is there is before it; None: the source cannot tell, so that only what is read is
    known."""
    oldest_s: float | None = None
    """How long the first record that is not read has waited, of sources that know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRate:
    """The rate of a source or of a partition.

    >>> print(SourceRate(per_s=1200.0, lag=3600.0, lag_s=3.0, trust=1.0))
    1,200/s come in, 3,600 behind (3.0 s)
    """

    per_s: float
    """Records that come in in a second, read or not."""
    lag: float | None
    """Records that are there and not read; None: it is not known."""
    lag_s: float | None
    """How long ago the next record to be read came in; 0 when all is read."""
    trust: float
    """0 to 1: 0 when it was measured too long ago, or too briefly, to mean anything."""
    partitions: tuple[tuple[str, SourceRate], ...] = ()
    """The same for each partition of a source that has some; of very many, those that are furthest
    behind."""

    def __str__(self) -> str:
        if self.lag is None:
            behind = "the lag is not known"
        elif self.lag_s is None:
            behind = f"{self.lag:,.0f} behind"
        else:
            behind = f"{self.lag:,.0f} behind ({self.lag_s:.1f} s)"
        doubt = "" if self.trust >= 0.5 else f", trust {self.trust:.1f}"
        return f"{self.per_s:,.0f}/s come in, {behind}{doubt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """What a node knows of the rate of a source."""

    label: str
    rate: SourceRate
    read: int = 0
    """Of a source that all nodes read a part of: the records this node has read."""
    due: float | None = None
    """Of such a source: the records that are due by the clock, on all nodes together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What a reader with partitions found since it was asked before."""

    samples: Mapping[str, Sample]
    """Of each partition whose end was looked at."""
    positions: Mapping[str, float]
    """How far each is read."""
    passed: float = 0.0
    """Offsets that were passed since it was opened, in all partitions."""
    records: float = 0.0
    """Records that came of them."""
    upstream: bool = False
    """They are of another system, which fills what this reader reads."""


@runtime_checkable
class Looking(Protocol):
    """A reader that knows where what is there ends. `look` is called several times a second by a
    thread that has nothing else to do: never by the one that polls, which must not wait for it."""

    def look(self) -> Looks: ...


def merge_rates(nodes: Iterable[Iterable[SourceReport]]) -> dict[str, SourceRate]:
    """The rate of each source by its label, from what the nodes of a job report.

    Most sources are read by one node. Of one that is due by the clock and read by all, what is due
    is known to the node that began first, and what is read is the sum.
    """
    found: dict[str, list[SourceReport]] = {}
    for reports in nodes:
        for report in reports:
            found.setdefault(report.label, []).append(report)
    return {label: merge_reports(found[label]) for label in sorted(found)}


def merge_reports(reports: Sequence[SourceReport]) -> SourceRate:
    """The rate of one source."""
    clocked = [report.due for report in reports if report.due is not None]
    if not clocked:
        return max((report.rate for report in reports), key=lambda rate: rate.trust)
    rate = reports[0].rate
    lag = max(max(clocked) - sum(report.read for report in reports), 0.0)
    per_s = max(report.rate.per_s for report in reports)
    return replace(rate, per_s=per_s, lag=lag, lag_s=lag / per_s if per_s > 0.0 else 0.0)
