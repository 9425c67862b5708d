"""One cycle of the quality controller over all jobs: reports in, facts out; pure.

Every job that runs is in the view, also those that are never shed, because they need their cores.
A job gets a fact when what is kept of its queries changes, when an alert opens or closes, and when
the controller cannot decide. A cycle that fails changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.machine.job_view import accuracies_of, source_rates, whole_reports
from plait.coordinator.machine.quality.records import (
    POINTS,
    QualityMemory,
    QualityRecord,
    Sample,
)
from plait.coordinator.machine.state import with_job
from plait.coordinator.messages.events import QualityDecided
from plait.protocol.quality import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.coordinator.machine.state import JobState, State
    from plait.coordinator.messages.spec import Policy
    from plait.protocol.messages import Rank
    from plait.protocol.quality import Alert
    from plait.shedding.observe import SeenHost, SeenJob
    from plait.shedding.view import Decision, Memory, View

WINDOW_S = 2.0
"""What is measured is over so long: rows go through a job in lumps."""
ALERT_STEP = 0.05
"""An alert is told anew when what can be had differs by so much."""
WATCHED = ("running", "rescaling")


def is_due(state: State, at: float) -> bool:
    """Whether there is something to decide about, and it is time."""
    known = state.quality_memory
    if known is not None and at - known.at < period_s(state):
        return False
    return any(is_watched(job) and can_shed(job) for job in state.jobs.values())


def period_s(state: State) -> float:
    """With many nodes their reports come more slowly, and so do decisions."""
    policy: Policy = state.policy
    nodes = sum(len(job.live) for job in state.jobs.values() if not job.over)
    return max(policy.quality_s, 4 * nodes / policy.calls_per_s)


def can_shed(job: JobState) -> bool:
    """Whether the controller may drop anything of it."""
    return job.spec.sheds and any(query.min_accuracy < 1.0 for query in job.spec.queries)


def is_watched(job: JobState) -> bool:
    return job.phase in WATCHED and bool(job.spec.parts) and bool(job.layouts)


def look(state: State, at: float) -> State:
    """One cycle, if it is time for one. One that fails is told once, and tried again."""
    if not is_due(state, at):
        return state
    known = state.quality_memory or QualityMemory()
    try:
        return cycle(state, known, at)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        after = replace(state, quality_memory=replace(known, at=at, failure=failure))
        return after if failure == known.failure else tell_failure(after, failure, at)


def tell_failure(state: State, failure: str, at: float) -> State:
    """What is kept stays as it is, and every job says why."""
    reason = Reason(subject="the controller", was="", now="failed", because=failure)
    for job in state.jobs.values():
        if is_watched(job) and can_shed(job):
            fact = QualityDecided(
                at=at,
                cause="quality",
                job=job.name,
                keeps=job.decided,
                alerts=job.alerts,
                reasons=(reason,),
            )
            state = with_job(state, with_pending(job, fact))
    return state


def with_pending(job: JobState, fact: QualityDecided | None) -> JobState:
    record = replace(job.watch.quality or QualityRecord(), pending=fact)
    return replace(job, watch=replace(job.watch, quality=record))


def take_decision(job: JobState) -> tuple[JobState, tuple[QualityDecided, ...]]:
    """What was decided about a job and is not a fact yet."""
    if job.watch.quality is None or job.watch.quality.pending is None:
        return job, ()
    return with_pending(job, None), (job.watch.quality.pending,)


def cycle(state: State, known: QualityMemory, at: float) -> State:
    """The state after one, with what was decided about each job."""
    from plait.shedding.controller import decide
    from plait.shedding.observe import key_of, make_view
    from plait.shedding.view import Memory, recall
    from plait.shedding.words import ALONE, QualityPolicy

    watched = [note_samples(job, at) for job in state.jobs.values() if is_watched(job)]
    seen = [(job, found) for job in watched if (found := seen_job(job, at)) is not None]
    for job in watched:
        state = with_job(state, job)
    state = replace(state, quality_memory=replace(known, at=at, failure=""))
    if not any(can_shed(job) for job, _ in seen):
        return state
    view = make_view(at, seen_hosts([job for job, _ in seen]), [found for _, found in seen])
    memory: Memory = known.memory or Memory()
    for job, _ in seen:
        kept = {**dict(job.bounds), **dict(job.decided)}
        keys = [key_of(job.name, query.label) for query in job.spec.queries]
        memory = recall(memory, keys, [kept.get(row, 1.0) for row in range(len(keys))])
    policy = QualityPolicy(order=ALONE)
    decision, memory = decide(view, policy, memory, at)
    state = replace(state, quality_memory=QualityMemory(at=at, memory=memory))
    for number, (job, _) in enumerate(seen):
        fact = decided(job, number, view, decision, at) if can_shed(job) else None
        noted = note_queries(job, number, view, decision, at)
        state = with_job(state, with_pending(noted, fact))
    return state


def note_samples(job: JobState, at: float) -> JobState:
    """With what its nodes reported last."""
    before = job.watch.quality or QualityRecord(since=at)
    samples: dict[Rank, tuple[Sample, ...]] = {}
    for rank in job.members:
        pair = job.watch.reports.get(rank)
        if pair is None or len(pair.report.tasks) != len(job.spec.parts):
            continue
        old = before.samples.get(rank, ()) if before.attempt == job.attempt else ()
        if old and old[-1].at == pair.at:
            samples[rank] = old  # nothing new was heard
            continue
        found = (*old, Sample(at=pair.at, tasks=pair.report.tasks))
        while len(found) > 2 and pair.at - found[1].at >= WINDOW_S:
            found = found[1:]
        samples[rank] = found
    same = before.attempt == job.attempt and before.owners == tuple(job.layout.owners)
    record = replace(
        before,
        attempt=job.attempt,
        owners=tuple(job.layout.owners),
        looks=before.looks + 1 if same else 0,
        since=before.since if same else at,
        samples=samples,
    )
    return replace(job, watch=replace(job.watch, quality=record))


def seen_hosts(jobs: Sequence[JobState]) -> list[SeenHost]:
    """The hosts of the members, as the last node on each that reported sees them."""
    from plait.shedding.observe import SeenHost

    found: dict[str, tuple[float, SeenHost]] = {}
    for job in jobs:
        for rank in job.members:
            pair = job.watch.reports.get(rank)
            if pair is None or not pair.report.affinity_cores:
                continue
            name, cores = job.nodes[rank].host, float(pair.report.affinity_cores)
            if name not in found or pair.at > found[name][0]:
                used = pair.report.cpu_ratio * cores
                found[name] = (pair.at, SeenHost(name=name, cores=cores, used=used))
    return [host for _, host in found.values()]


def seen_job(job: JobState, at: float) -> SeenJob | None:
    """The job as the controller sees it; None until all its members were measured."""
    from plait.shedding.observe import (
        SeenJob,
        SeenPart,
        SeenQuery,
        SeenTask,
        is_warm,
        task_rates,
    )

    record = job.watch.quality
    assert record is not None
    if set(record.samples) != set(job.members):
        return None
    warm = is_warm(record.looks, at - record.since) and job.changing is None
    tasks: list[SeenTask] = []
    for rank, samples in record.samples.items():
        first, last = samples[0], samples[-1]
        rates = task_rates(first.tasks, last.tasks, last.at - first.at)
        report = job.watch.reports[rank].report
        if not rates or not report.affinity_cores:
            return None
        most = report.most_cores or float(report.affinity_cores)
        tasks += [
            SeenTask(rates=one, rank=rank, host=job.nodes[rank].host, most=most, warm=warm)
            for one in rates
        ]
    taken: dict[int, float] = {}
    for task in tasks:
        taken[task.rates.part] = taken.get(task.rates.part, 0.0) + task.rates.taken
    even = 1.0 / len(job.members)
    sheds, bounds = can_shed(job), dict(job.bounds)
    labels = [source.label for source in job.spec.sources]
    return SeenJob(
        name=job.name,
        queries=tuple(
            SeenQuery(
                label=query.label,
                priority=query.priority,
                floor=query.min_accuracy if sheds else 1.0,
                bound=bounds.get(number, 1.0),
                freshness_s=query.freshness_s,
                suspends=query.below_floor == "suspend",
            )
            for number, query in enumerate(job.spec.queries)
        ),
        parts=tuple(
            SeenPart(
                label=part.name,
                inputs=part.inputs,
                queries=part.queries,
                sources=tuple(labels[source] for source in part.sources),
            )
            for part in job.spec.parts
        ),
        tasks=tuple(
            replace(
                task,
                share=task.rates.taken / taken[task.rates.part]
                if taken[task.rates.part] > 0.0
                else even,
            )
            for task in tasks
        ),
        sources=source_rates(job),
        changing=job.changing is not None,
    )


def note_queries(job: JobState, number: int, view: View, decision: Decision, at: float) -> JobState:
    """With what its queries get."""
    from plait.shedding.queries import points_of, query_qualities

    record = job.watch.quality
    assert record is not None
    queries = query_qualities(
        view,
        decision,
        number,
        measured=accuracies_of(
            job, ((found[0].tasks, found[-1].tasks) for found in record.samples.values())
        ),
        overall=accuracies_of(job, whole_reports(job)),
        before={one.query: one for one in record.queries},
    )
    began = at if job.began_at is None else job.began_at
    points = (*record.points, *points_of(at - began, queries))[-POINTS * max(len(queries), 1) :]
    record = replace(record, queries=queries, points=points)
    return replace(job, watch=replace(job.watch, quality=record))


def decided(
    job: JobState, number: int, view: View, decision: Decision, at: float
) -> QualityDecided | None:
    """The fact that something changes for a job, if so."""
    rows = [row for row, owner in enumerate(view.queries.job.tolist()) if owner == number]
    keeps = tuple(
        (query, float(decision.keep[row]))
        for query, row in enumerate(rows)
        if job.spec.queries[query].min_accuracy < 1.0 and decision.keep[row] < 1.0
    )
    alerts = tuple(one for one in decision.alerts if one.job == job.name)
    reasons = tuple(one for one in decision.reasons if one.job == job.name)
    if keeps == job.decided and not reasons and same_alerts(job.alerts, alerts):
        return None
    return QualityDecided(
        at=at, cause="quality", job=job.name, keeps=keeps, alerts=alerts, reasons=reasons
    )


def same_alerts(before: tuple[Alert, ...], now: tuple[Alert, ...]) -> bool:
    """Whether they are about the same queries, and about as bad."""
    old = {one.query: one.attainable for one in before}
    new = {one.query: one.attainable for one in now}
    return old.keys() == new.keys() and all(
        abs(new[query] - old[query]) < ALERT_STEP for query in old
    )
