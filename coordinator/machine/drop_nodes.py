"""Telling the members which nodes are gone, and giving up nodes that were to join.

A dropped node owned nothing and read nothing; it may have been a member, or only have been
connected to. Every member gets the Drop before the job goes on with what it waited for, because
members wait for the parts of all nodes they believe to be there.

Of nodes that left or were lost long ago only the ranks of those that left are kept, so that a job
may be rescaled as often as anybody likes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, assert_never

from plait.coordinator.machine.epoch_agreement import joining_ranks
from plait.coordinator.machine.state import (
    JobState,
    Measuring,
    NodeOrder,
    Pacing,
    Passing,
    Quiet,
    Readying,
    Telling,
    with_nodes,
)
from plait.coordinator.machine.turn import Next
from plait.coordinator.machine.wait import enter, release
from plait.coordinator.messages.commands import StopNode
from plait.coordinator.messages.views import PastWork
from plait.protocol.messages import Drop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.coordinator.machine.state import JobWatch
    from plait.coordinator.machine.turn import Turn
    from plait.protocol.messages import Rank
    from plait.protocol.rates import SourceReport

Kind = TypeVar("Kind")
Interruptible = Measuring | Passing | Readying | Pacing | Quiet
"""Waits that a Drop can interrupt."""


def send_drop(job: JobState, then: Interruptible, turn: Turn) -> Next:
    """Tells the members which nodes are gone; then the job goes on with what it waited for."""
    command = Drop(ranks=tuple(sorted(set(job.dropping))))
    members = tuple(r for r in job.live if job.nodes[r].phase in ("member", "leaving"))
    orders = (NodeOrder(ranks=members, command=command),)
    job = replace(job, interrupted=then)
    return enter(job, Telling(aim="drop", act="drop", orders=orders), turn)


def abandon_joining(job: JobState, turn: Turn) -> Next:
    """Stops the nodes that were to join. The members may have connected to them."""
    fresh = joining_ranks(job)
    met = tuple(rank for rank in fresh if job.nodes[rank].phase == "joining")
    stops = tuple(StopNode(job=job.name, rank=rank, cause=turn.cause) for rank in fresh)
    job = with_nodes(
        job, (replace(job.nodes[rank], phase="lost", reason="was given up") for rank in fresh)
    )
    for rank in fresh:
        job = release(job, rank)
    return Next(replace(job, dropping=(*job.dropping, *met)), stops)


def without_lost(job: JobState, then: Interruptible) -> Interruptible:
    """The same wait, for the nodes that are still there."""

    def present(ranks: tuple[Rank, ...]) -> tuple[Rank, ...]:
        return tuple(rank for rank in ranks if job.nodes[rank].phase != "lost")

    match then:
        case Passing():
            return replace(then, ranks=present(then.ranks), leaving=present(then.leaving))
        case Measuring() | Readying():
            return replace(then, ranks=present(then.ranks))
        case Pacing() | Quiet():
            return then
        case _:
            assert_never(then)


def without_gone(job: JobState, most: int) -> JobState:
    """The job with at most so many nodes that left or were lost: the last ones."""
    gone = [
        rank
        for rank, node in job.nodes.items()
        if node.phase in ("left", "lost") and rank not in job.dropping
    ]
    old = sorted(gone)[: max(len(gone) - most, 0)]
    if not old:
        return job
    departed = job.departed
    for rank in old:
        if job.nodes[rank].phase == "left":
            departed = with_rank(departed, rank)
    nodes = {rank: node for rank, node in job.nodes.items() if rank not in old}
    return replace(job, nodes=nodes, departed=departed, watch=without_watched(job, old))


def with_rank(
    stretches: tuple[tuple[Rank, Rank], ...], rank: Rank
) -> tuple[tuple[Rank, Rank], ...]:
    """Stretches of ranks, ascending, with one more that is above most of them."""
    below = [one for one in stretches if one[1] < rank]
    above = [one for one in stretches if one[0] > rank]
    first = last = rank
    if below and below[-1][1] == rank - 1:
        first = below.pop()[0]
    if above and above[0][0] == rank + 1:
        last = above.pop(0)[1]
    return (*below, (first, last), *above)


def without_watched(job: JobState, old: list[Rank]) -> JobWatch:
    """What was heard of the others, and the sum of what these have done."""
    watch = job.watch
    past, sources = watch.past, dict(watch.past_sources)
    for rank in old:
        pair = watch.reports.get(rank)
        if pair is None or job.nodes[rank].phase == "lost":
            continue
        past = PastWork(
            read=past.read + pair.report.read,
            delivered=past.delivered + pair.report.delivered,
            moved_bins=past.moved_bins + pair.report.moved_bins,
            moved_bytes=past.moved_bytes + pair.report.moved_bytes,
        )
        for source in pair.report.sources:
            sources[source.label] = joined(sources.get(source.label), source)

    return replace(
        watch,
        heard=others(watch.heard, old),
        reports=others(watch.reports, old),
        cpu=others(watch.cpu, old),
        parts=others(watch.parts, old),
        ended=watch.ended.difference(old),
        past=past,
        past_sources=sources,
    )


def others(found: Mapping[Rank, Kind], old: list[Rank]) -> dict[Rank, Kind]:
    return {rank: one for rank, one in found.items() if rank not in old}


def joined(before: SourceReport | None, report: SourceReport) -> SourceReport:
    """What two nodes had read of a source."""
    if before is None:
        return report
    dues = [one.due for one in (before, report) if one.due is not None]
    return replace(report, read=before.read + report.read, due=max(dues, default=None))
