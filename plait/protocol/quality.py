"""What a query asks for under overload and what it gets, and why something was decided: plain data.

`plait.shedding` makes it, nodes and coordinators pass it on, results, handles and the command line
show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

QueryState = Literal["exact", "shed", "at floor", "infeasible", "suspended"]
"""Of a query: all of its input is processed; a part of it, more than its floor; as much as its
floor; its floor cannot be met; it gets nothing until its floor can be met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something changed, or could not.

    >>> print(Reason(subject="tips", was="1.00", now="0.62", because="host-2 is short"))
    tips 1.00 -> 0.62: host-2 is short
    """

    subject: str
    was: str
    now: str
    because: str
    facts: tuple[tuple[str, float], ...] = ()
    """The numbers behind the words."""
    query: str = ""
    """The query it is about, if it is about one."""
    job: str = ""
    """The job of that query."""

    def __str__(self) -> str:
        change = f" {self.was} -> {self.now}" if self.was or self.now else ""
        return f"{self.subject}{change}: {self.because}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A promise that cannot be kept."""

    job: str
    query: str
    since: float
    floor: float
    attainable: float
    """The accuracy there is CPU for, with what waits to be worked off."""
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityStep:
    """Something that was decided, and when.

    >>> print(QualityStep(at_s=2.5, reason=Reason(subject="a", was="", now="", because="so")))
       2.5 s  a: so
    """

    at_s: float
    """Seconds since the job began."""
    reason: Reason
    denied: bool = False
    """It was looked for and could not be done."""

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {'not possible: ' if self.denied else ''}{self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryQuality:
    """What a query asks for and what it gets.

    >>> print(QueryQuality(query="tips", floor=0.1, asked=0.6, measured=0.62, state="shed"))
    tips: shed, 0.62 of its input (asked 0.60, floor 0.10, priority 0), 0.0 s behind
    """

    query: str
    priority: int = 0
    floor: float = 1.0
    asked: float = 1.0
    """The share of its input that is to be kept now."""
    measured: float = 1.0
    """The share that was kept of what was read since the last look."""
    overall: float = 1.0
    """The same since the job began."""
    lag_s: float = 0.0
    freshness_s: float = 0.0
    state: QueryState = "exact"
    reason: str = ""
    """Of its last change."""

    def __str__(self) -> str:
        return (
            f"{self.query}: {self.state}, {self.measured:.2f} of its input (asked {self.asked:.2f},"
            f" floor {self.floor:.2f}, priority {self.priority}), {self.lag_s:.1f} s behind"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityPoint:
    """The accuracy of a query at one time.

    >>> point = QualityPoint(
    ...     at_s=2.0, query="tips", asked=0.6, measured=0.62, lag_s=0.1, state="shed"
    ... )
    >>> point.query, point.measured
    ('tips', 0.62)
    """

    at_s: float
    query: str
    asked: float
    measured: float
    lag_s: float
    state: QueryState


def state_of(
    asked: float, floor: float, *, alert: bool = False, suspended: bool = False
) -> QueryState:
    """
    >>> state_of(1.0, 0.5), state_of(0.7, 0.5), state_of(0.5, 0.5), state_of(0.5, 0.5, alert=True)
    ('exact', 'shed', 'at floor', 'infeasible')
    """
    if alert:
        return "suspended" if suspended and asked == 0.0 else "infeasible"
    if asked >= 1.0:
        return "exact"
    return "shed" if asked > floor + 1e-9 else "at floor"
