"""What each sub-pipeline of a job uses: plain data, merged from what its nodes report.

Results, handles, `plait status` and `plait top` show it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plait.protocol.messages import PartKind, TaskReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PartUse:
    """A sub-pipeline, on one node or on all of them together."""

    part: int
    name: str
    kind: PartKind
    queries: tuple[str, ...]
    """The labels of the sinks behind it or in it."""
    cpu_s: float = 0.0
    """Processor time so far, that of worker processes included."""
    cores: float = 0.0
    """Processor time a second: now, in a result on average over the run."""
    taken: int = 0
    """Records that it took so far."""
    offered: int = 0
    """Records that came for it so far, waiting or taken, before any was shed."""
    kept: int = 0
    shed: int = 0
    waiting: int = 0
    """Records that wait in it."""
    blocked_s: float = 0.0
    """How long it could not hand on what it had done."""

    @property
    def ns_per_record(self) -> float:
        """Processor time for each record that it took."""
        return self.cpu_s * 1e9 / self.taken if self.taken else 0.0


def with_report(named: PartUse, report: TaskReport) -> PartUse:
    """The sub-pipeline with what a node reports of it."""
    return replace(
        named,
        cpu_s=report.cpu_s,
        taken=report.taken,
        offered=report.offered,
        kept=report.kept,
        shed=report.shed,
        waiting=report.waiting,
        blocked_s=report.blocked_s,
    )


def merge_uses(nodes: Iterable[Iterable[PartUse]]) -> tuple[PartUse, ...]:
    """Each sub-pipeline over all nodes. It is blocked as long as the node that is most."""
    found: dict[int, PartUse] = {}
    for uses in nodes:
        for use in uses:
            known = found.get(use.part)
            found[use.part] = use if known is None else add(known, use)
    return tuple(found[part] for part in sorted(found))


def add(one: PartUse, other: PartUse) -> PartUse:
    return replace(
        one,
        cpu_s=one.cpu_s + other.cpu_s,
        cores=one.cores + other.cores,
        taken=one.taken + other.taken,
        offered=one.offered + other.offered,
        kept=one.kept + other.kept,
        shed=one.shed + other.shed,
        waiting=one.waiting + other.waiting,
        blocked_s=max(one.blocked_s, other.blocked_s),
    )


def average_cores(uses: Iterable[PartUse], seconds: float) -> tuple[PartUse, ...]:
    """With the cores that each used on average over so many seconds."""
    return tuple(replace(use, cores=use.cpu_s / seconds if seconds > 0 else 0.0) for use in uses)


def cores_by_query(parts: Iterable[PartUse]) -> Mapping[str, float]:
    """Processor time a second of each query. What several queries need is shared out equally, so
    that they add up to what all sub-pipelines use.

    >>> shared = PartUse(part=0, name="in", kind="rows", queries=("a", "b"), cores=0.5)
    >>> own = PartUse(part=1, name="b", kind="keys", queries=("b",), cores=1.0)
    >>> cores_by_query((shared, own))
    {'a': 0.25, 'b': 1.25}
    """
    found: dict[str, float] = {}
    for use in parts:
        for query in use.queries:
            found[query] = found.get(query, 0.0) + use.cores / len(use.queries)
    return found
