"""From the state to what a user sees of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.messages.views import (
    CheckpointView,
    JobQuality,
    JobView,
    MigrationPhase,
    MigrationView,
    NodeView,
    RecoveryView,
)
from plait.protocol.keeps import ratio_of
from plait.protocol.messages import TaskReport
from plait.protocol.part_use import PartUse, merge_uses, with_report
from plait.protocol.quality import QueryQuality, state_of
from plait.protocol.rates import merge_rates
from plait.shedding.accuracy import PartCounts, accuracies
from plait.shedding.cpu_rates import CpuWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plait.coordinator.machine.state import JobState, NodeState, Rescaling
    from plait.coordinator.messages.spec import JobSpec
    from plait.protocol.messages import NodeReport
    from plait.protocol.rates import SourceRate, SourceReport

PRESENT = ("starting", "joining", "member", "leaving")


def view_of(job: JobState, now: float) -> JobView:
    """A job as it is known at this moment."""
    bins = Counter(job.layout.owners) if job.layouts else Counter()
    nodes = tuple(node_view(job, node, bins[rank], now) for rank, node in job.nodes.items())
    return JobView(
        name=job.name,
        phase=job.phase,
        nodes=nodes,
        parts=merge_uses(node.tasks for node in nodes),
        home=job.home,
        departed=job.departed,
        past=job.watch.past,
        order=job.spec.order,
        bins=job.spec.bins,
        layout_epoch=job.layout.epoch if job.layouts else 0,
        sources=source_rates(job),
        queries=query_views(job),
        alerts=() if job.over else job.alerts,
        migration=migration_view(job.change) if job.change is not None else None,
        checkpoint=checkpoint_view(job, now),
        error=job.error,
        submitted_at=job.submitted_at,
        began_at=job.began_at,
        ended_at=job.ended_at,
        now=now,
    )


def query_views(job: JobState) -> tuple[QueryQuality, ...]:
    """What the queries of a job with a floor get; nothing if all of them are lossless."""
    if all(query.min_accuracy >= 1.0 for query in job.spec.queries):
        return ()
    record = job.watch.quality
    known = {} if record is None else {one.query: one for one in record.queries}
    overall = accuracies_of(job, whole_reports(job))
    kept = [ratio_of(one) for one in job.keep] or [1.0] * len(job.spec.queries)
    found = []
    for query, asked in zip(job.spec.queries, kept, strict=True):
        share = overall.get(query.label, 1.0)
        plain = QueryQuality(
            query=query.label,
            priority=query.priority,
            asked=asked,
            measured=share,
            freshness_s=query.freshness_s,
            state=state_of(asked, query.min_accuracy),
        )
        one = known.get(query.label, plain)
        found.append(replace(one, floor=query.min_accuracy, overall=share))
    return tuple(found)


def quality_of(job: JobState) -> JobQuality:
    """What was decided about its queries, and what they got over time."""
    record = job.watch.quality
    return JobQuality(steps=job.steps, points=() if record is None else record.points)


ReportsOfNode = tuple[tuple[TaskReport, ...], tuple[TaskReport, ...]]
"""What the sub-pipelines of a node had done before, if that counts, and then."""


def whole_reports(job: JobState) -> list[ReportsOfNode]:
    """Of all nodes that are not lost: since the job began."""
    return [
        ((), pair.report.tasks)
        for rank, pair in job.watch.reports.items()
        if job.nodes[rank].phase != "lost" and len(pair.report.tasks) == len(job.spec.parts)
    ]


def accuracies_of(job: JobState, nodes: Iterable[ReportsOfNode]) -> dict[str, float]:
    """The accuracy of every query over what its nodes did."""
    pairs = tuple(nodes)
    rows = []
    for number, part in enumerate(job.spec.parts):
        taken = sum(after[number].taken for _, after in pairs)
        shed = sum(after[number].shed for _, after in pairs)
        earlier = [before[number] for before, _ in pairs if before]
        rows.append(
            PartCounts(
                inputs=part.inputs,
                queries=part.queries,
                taken=taken - sum(one.taken for one in earlier),
                shed=shed - sum(one.shed for one in earlier),
                gathers=part.kind == "sinks",
            )
        )
    return accuracies(rows)


def source_rates(job: JobState) -> dict[str, SourceRate]:
    """From the last reports of the nodes; none of a job that is over, nothing comes in any more. Of
    those that left only what they have read counts."""
    if job.over or job.phase == "ending":
        return {}
    phases = {rank: node.phase for rank, node in job.nodes.items()}
    reports = job.watch.reports.items()
    present = [pair.report.sources for rank, pair in reports if phases.get(rank) in PRESENT]
    left = [pair.report.sources for rank, pair in reports if phases.get(rank) == "left"]
    left.append(tuple(job.watch.past_sources.values()))
    return merge_rates([*present, *([of_past(one) for one in each] for each in left)])


def of_past(report: SourceReport) -> SourceReport:
    """A report of a node that reads nothing any more."""
    return replace(report, rate=replace(report.rate, per_s=0.0, trust=0.0))


def checkpoint_view(job: JobState, now: float) -> CheckpointView | None:
    known, settings = job.checkpoints, job.spec.checkpoint
    if known is None or settings is None:
        return None
    last, saving, back = known.last, known.saving, known.recovery
    recovery = None
    if back is not None:
        ends = [at for _, at in back.steps[1:]] + [now if back.ended_at is None else back.ended_at]
        recovery = RecoveryView(
            attempt=back.attempt,
            reason=back.reason,
            number=back.number,
            began_at=back.began_at,
            ended_at=back.ended_at,
            steps=tuple(
                (name, max(end - at, 0.0))
                for (name, at), end in zip(back.steps, ends, strict=False)
            ),
        )
    return CheckpointView(
        url=settings.url,
        every_s=settings.every_s,
        number=last.number if last is not None else 0,
        epoch=last.epoch if last is not None else 0,
        age_s=max(now - last.at, 0.0) if last is not None else None,
        size_bytes=last.size_bytes if last is not None else 0,
        seconds=last.seconds if last is not None else 0.0,
        saving=f"{saving.mark.number}: {saving.step}" if saving is not None else "",
        savepoints=known.savepoints,
        failed=tuple((one.number, one.name, one.reason) for one in known.unsaved),
        attempt=known.attempt,
        restarts=len(known.restarts),
        recovery=recovery,
    )


def node_view(job: JobState, node: NodeState, bins: int, now: float) -> NodeView:
    pair = job.watch.reports.get(node.rank)
    if pair is None:
        return NodeView(
            rank=node.rank,
            host=node.host,
            pid=node.pid,
            phase=node.phase,
            bins=bins,
            error=node.reason,
        )
    report, before, time_s = pair.report, pair.before, pair.at - pair.before_at
    cpu = job.watch.cpu.get(node.rank) or CpuWatch(report=report, at=pair.at)
    if job.over or job.phase == "ending" or node.phase in ("left", "lost"):
        time_s = 0.0  # nothing is read any more
        cpu = replace(cpu, rates=())
    tasks = uses_of(job.spec, cpu, report)
    cores = cpu.cores[0] if cpu.cores else 0.0
    return NodeView(
        rank=node.rank,
        host=node.host,
        pid=node.pid,
        phase=node.phase,
        reported=report.phase,
        age_s=max(now - pair.at, 0.0),
        bins=bins,
        epoch=report.epoch,
        delivered_epoch=report.delivered_epoch,
        read=report.read,
        delivered=report.delivered,
        read_per_s=(report.read - before.read) / time_s if time_s > 0 else 0.0,
        delivered_per_s=(report.delivered - before.delivered) / time_s if time_s > 0 else 0.0,
        state_bytes=report.state_bytes,
        moved_bins=report.moved_bins,
        moved_bytes=report.moved_bytes,
        tasks=tasks,
        cpu_cores=cores,
        other_cpu_cores=max(0.0, cores - sum(task.cores for task in tasks)),
        other_cpu_s=report.other_cpu_s,
        cpu_ratio=report.cpu_ratio,
        host_cores=report.affinity_cores,
        process_cpu_s=report.process_cpu_s,
        rss_bytes=report.rss_bytes,
        workers=report.workers,
        p50_ms=report.p50_ms,
        p99_ms=report.p99_ms,
        max_ms=report.max_ms,
        links_down=report.links_down,
        refused_links=report.refused_links,
        error=report.error or node.reason,
    )


def uses_of(spec: JobSpec, watch: CpuWatch, report: NodeReport) -> tuple[PartUse, ...]:
    """The sub-pipelines on a node as it last reported them, by name."""
    if len(report.tasks) != len(spec.parts):
        return ()
    cores = watch.cores[1:] or (0.0,) * len(report.tasks)
    return tuple(
        replace(
            with_report(
                PartUse(part=task.part, name=part.name, kind=part.kind, queries=part.queries), task
            ),
            cores=used,
        )
        for part, task, used in zip(spec.parts, report.tasks, cores, strict=True)
    )


def migration_view(change: Rescaling) -> MigrationView:
    migration = change.migration
    if migration is None:
        return MigrationView(number=change.number, strategy=change.strategy, phase="preparing")
    phase: MigrationPhase = change.phase
    if phase == "running" and migration.phase in ("paused", "aborting"):
        phase = migration.phase
    return MigrationView(
        number=change.number,
        strategy=change.strategy,
        phase=phase,
        reason=change.reason or migration.reason,
        bins=migration.plan.bins,
        bins_moved=migration.moved_bins,
        size_bytes=migration.plan.size_bytes,
        moved_bytes=migration.moved_bytes,
        steps=len(migration.plan.steps),
        steps_done=migration.next_step,
        began_at=change.began_at,
        ended_at=change.ended_at,
        throttle_bytes_per_s=migration.throttle_bytes_per_s,
    )
