"""What observations amount to: who has answered, who is silent, what is due.

Nothing here is journalled. When answers or reports complete a wait, or show that a node is lost or
the job over, that becomes a fact. Losing all that is known here costs time, not truth: reports come
again, and commands are sent again and answered as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.checkpoints.records import owes_part
from plait.coordinator.machine.checkpoints.reports import (
    due,
    note_saves,
    note_slow_answer,
    save_tick,
)
from plait.coordinator.machine.job_end import release_nodes
from plait.coordinator.machine.quality import cycle as quality
from plait.coordinator.machine.state import (
    JobState,
    Loading,
    Measuring,
    Pacing,
    Passing,
    Placing,
    Quiet,
    Readying,
    ReportPair,
    Starting,
    State,
    Surveying,
    Telling,
    with_job,
)
from plait.coordinator.machine.wait import commands
from plait.coordinator.messages.commands import AskReport, Outgoing, StopNode
from plait.coordinator.messages.events import (
    Answered,
    ChunkDue,
    Expired,
    Fact,
    Heard,
    JobOver,
    LoadsKnown,
    NodeFailed,
    NodeLost,
    NodeNotMade,
    Observation,
    Reported,
    Tick,
    WaitDone,
    WaitRefused,
)
from plait.protocol.checkpoint_messages import SLOW_IDS
from plait.protocol.messages import NodeReport, Refused
from plait.shedding.cpu_rates import note_cpu

if TYPE_CHECKING:
    from plait.coordinator.messages.spec import Policy
    from plait.protocol.messages import Rank

RATE_S = 0.5
"""Rates are taken over at least this long."""
START_AGAIN = 10
"""Making a node takes longer than an answer: it is asked for again after this many resend times."""

ObserveResult = tuple[State, list[Fact], list[Outgoing]]


def observe(state: State, event: Observation) -> ObserveResult:
    """The state with what was observed, the facts that follow, and what to send at once."""
    match event:
        case Tick(at=at, job=name):
            return tick(state, at, [name] if name else list(state.jobs))
        case Heard(at=at, job=name, rank=rank):
            job = state.jobs.get(name)
            return (state if job is None else with_job(state, hear(job, rank, at))), [], []
        case Answered() | Reported():
            job = state.jobs.get(event.job)
            node = job.nodes.get(event.rank) if job is not None else None
            if job is None or node is None or node.phase == "lost":
                # Fenced: what it says does not count, and it has to go.
                return state, [], [StopNode(job=event.job, rank=event.rank, cause="fenced")]
            if isinstance(event, Answered):
                job, facts = note_answer(job, event)
            else:
                job, facts = note_report(job, event)
            return with_job(state, job), facts, []
        case _:
            assert_never(event)


def hear(job: JobState, rank: Rank, at: float) -> JobState:
    """A node was heard from."""
    if rank not in job.nodes or job.watch.heard.get(rank, at) > at:
        return job
    return replace(job, watch=replace(job.watch, heard={**job.watch.heard, rank: at}))


def note_answer(job: JobState, event: Answered) -> tuple[JobState, list[Fact]]:
    job = hear(job, event.rank, event.at)
    kind, watch, rank = job.wait.kind, job.watch, event.rank
    if event.command_id >= SLOW_IDS:
        return note_slow_answer(job, event)
    if event.command_id != job.wait.id or not isinstance(kind, Telling):
        return job, []
    if rank not in watch.missing:
        return job, []
    if isinstance(event.answer, Refused):
        if kind.act in ("prepare", "begin", "promise", "commit", "halt"):
            refusal = WaitRefused(
                at=event.at,
                cause=job.wait.cause,
                job=job.name,
                wait=job.wait.id,
                rank=rank,
                reason=event.answer.reason,
            )
            return job, [refusal]
        fence = watch.fence
    else:
        fence = max(watch.fence, event.answer.epoch)
    watch = replace(watch, missing=watch.missing - {rank}, fence=fence)
    return replace(job, watch=watch), []


def note_report(job: JobState, event: Reported) -> tuple[JobState, list[Fact]]:
    rank, report, watch, at = event.rank, event.report, job.watch, event.at
    if report.attempt not in (0, job.attempt):
        # It was on its way when the job went back to a checkpoint.
        return hear(job, rank, at), []
    before = watch.reports.get(rank)
    last = replace(report, loads=())  # they are the bulk of a report, and no later one has them
    if before is None:
        pair = ReportPair(report=last, at=at, before=last, before_at=at)
    elif at - before.before_at < RATE_S:
        pair = replace(before, report=last, at=at)
    else:
        pair = ReportPair(report=last, at=at, before=before.report, before_at=before.at)
    watch = replace(
        watch,
        reports={**watch.reports, rank: pair},
        cpu={**watch.cpu, rank: note_cpu(watch.cpu.get(rank), report, at)},
        heard={**watch.heard, rank: at},
    )
    if report.phase == "ended" and rank not in watch.ended:
        watch = replace(watch, ended=watch.ended | {rank})
    kind = job.wait.kind
    if rank in watch.missing:
        if (
            (isinstance(kind, Passing) and has_passed(job, kind, rank, report))
            or (isinstance(kind, Readying) and has_room(kind, report))
            or (isinstance(kind, Loading) and report.restored == kind.attempt)
        ):
            watch = replace(watch, missing=watch.missing - {rank})
        elif isinstance(kind, Measuring) and event.loads:
            watch = replace(
                watch, missing=watch.missing - {rank}, loads=(*watch.loads, report.loads)
            )
    job, facts = note_saves(replace(job, watch=watch), event)
    return job, [*facts, *facts_of_report(job, event)]


def has_passed(job: JobState, kind: Passing, rank: int, report: NodeReport) -> bool:
    if rank in kind.leaving and owes_part(job, rank):
        return False  # its process ends when it has left
    if report.phase in ("left", "ended"):
        return True
    return rank not in kind.leaving and report.delivered_epoch >= kind.epoch


def has_room(kind: Readying, report: NodeReport) -> bool:
    return report.phase in ("left", "ended") or report.ready >= kind.number


def facts_of_report(job: JobState, event: Reported) -> list[Fact]:
    """What a single report says about the whole job."""
    report, at, cause = event.report, event.at, f"report of node-{event.rank}"
    if job.over or job.phase == "ending":
        return []
    if report.phase == "failed":
        return [
            NodeFailed(
                at=at,
                cause=cause,
                job=job.name,
                rank=event.rank,
                error=report.error,
                lost_peer=report.lost_peer,
                attempt=job.attempt,
            )
        ]
    if report.satisfied and not (job.checkpoints is not None and job.checkpoints.at_end):
        return [JobOver(at=at, cause=cause, job=job.name, satisfied=True, attempt=job.attempt)]
    if job.checkpoints is not None and job.checkpoints.at_end and not job.checkpoints.complete:
        return []
    if report.phase == "ended" and job.members and job.watch.ended.issuperset(job.members):
        return [JobOver(at=at, cause=cause, job=job.name, attempt=job.attempt)]
    return []


def completion(job: JobState, at: float) -> Fact | None:
    """The fact that the job has all it waits for, if so."""
    wait, watch = job.wait, job.watch
    if (fact := due(job, at)) is not None:
        return fact
    match wait.kind:
        case Telling() | Passing() | Readying() | Loading():
            return None if watch.missing else wait_done(job, at)
        case Measuring():
            return None if watch.missing else loads_known(job, at)
        case Pacing():
            change = job.changing
            if change is None or change.migration is None or change.migration.phase != "running":
                return None
            return ChunkDue(
                at=at,
                cause=wait.cause,
                job=job.name,
                wait=wait.id,
                epochs_per_s=epochs_per_s(job),
            )
        case Placing() | Starting() | Surveying() | Quiet():
            return None
        case _:
            assert_never(wait.kind)


def wait_done(job: JobState, at: float) -> WaitDone:
    wait, fence = job.wait, job.watch.fence
    return WaitDone(at=at, cause=wait.cause, job=job.name, wait=wait.id, epoch=fence)


def loads_known(job: JobState, at: float) -> LoadsKnown:
    loads = sorted((load for part in job.watch.loads for load in part), key=lambda load: load.bin)
    return LoadsKnown(
        at=at,
        cause=job.wait.cause,
        job=job.name,
        wait=job.wait.id,
        bins=tuple(load.bin for load in loads),
        records=tuple(load.records for load in loads),
        sizes=tuple(load.size_bytes for load in loads),
    )


def epochs_per_s(job: JobState) -> float:
    """The pace of the fastest node, from two reports of it. Between two of a node that has just
    joined lies all that the others had done before."""
    paces = [
        (pair.report.epoch - pair.before.epoch) / (pair.at - pair.before_at)
        for rank in job.members
        if (pair := job.watch.reports.get(rank)) is not None
        and pair.at > pair.before_at
        and pair.before.epoch > 0
    ]
    return max(paces, default=0.0)


def tick(state: State, at: float, names: list[str]) -> ObserveResult:
    facts: list[Fact] = []
    out: list[Outgoing] = []
    state = quality.look(state, at)
    for job in [state.jobs[name] for name in names if name in state.jobs]:
        if job.over:
            if job.kept and job.ended_at is not None and at - job.ended_at > state.policy.keep_s:
                facts.append(Expired(at=at, cause="kept long enough", job=job.name))
            continue
        job, decided = quality.take_decision(job)
        job, job_facts, job_commands = job_tick(job, state.policy, at)
        state = with_job(state, job)
        facts += [*decided, *job_facts]
        out += job_commands
    if at - state.swept_at >= state.policy.sweep_s:
        state = replace(state, swept_at=at)
        out += sweep(state, at)
    return state, facts, out


def sweep(state: State, at: float) -> list[Outgoing]:
    """Stops what should be gone once more: stopping is not answered, and lost nodes come back."""
    return [
        *(
            command
            for job in state.jobs.values()
            if not is_swept(job, state.policy, at)
            for command in release_nodes(job, "sweep")
        ),
        *(
            StopNode(job=name, rank=rank, cause="sweep")
            for name, former in state.former.items()
            if at - former.at < state.policy.forgotten_s
            for rank in former.ranks
        ),
    ]


def is_swept(job: JobState, policy: Policy, at: float) -> bool:
    """Whether the nodes of a job that is over were stopped often enough."""
    ended_at = at if job.ended_at is None else job.ended_at
    return job.over and at - ended_at > policy.keep_s + policy.forgotten_s


def job_tick(
    job: JobState, policy: Policy, at: float
) -> tuple[JobState, list[Fact], list[Outgoing]]:
    out: list[Outgoing] = []
    facts: list[Fact] = []
    live = job.live
    every = max(policy.report_s, len(live) / policy.calls_per_s)
    watch = job.watch
    if at - watch.asked_at >= every:
        if at - watch.asked_at > 4 * every:
            # The coordinator was away and did not ask: no node was silent.
            watch = replace(watch, heard={**watch.heard, **dict.fromkeys(live, at)})
        facts += silent_nodes(replace(job, watch=watch), policy, 4 * every, at)
        loads = isinstance(job.wait.kind, Measuring)
        out += [AskReport(job=job.name, rank=r, loads=loads, cause="heartbeat") for r in live]
        watch = replace(watch, asked_at=at)
    again = policy.resend_s
    match job.wait.kind:
        case Starting(ranks=ranks):
            again *= START_AGAIN
            if at - job.wait.since > policy.start_s:
                facts += [
                    NodeNotMade(
                        at=at,
                        cause=job.wait.cause,
                        job=job.name,
                        rank=rank,
                        reason=f"it was not there within {policy.start_s:g} s",
                    )
                    for rank in ranks
                    if job.nodes[rank].peer is None
                ]
        case Readying() if at - job.wait.since > policy.ready_s:
            facts.append(wait_done(job, at))
        case Passing() | Readying() | Loading():
            # Asked more often than for the heartbeat: the rescale waits for it.
            again = max(policy.tick_s, len(watch.missing) / policy.calls_per_s)
            if at - watch.sent_at >= again:
                out += [
                    AskReport(job=job.name, rank=rank, loads=False, cause=job.wait.cause)
                    for rank in sorted(watch.missing)
                ]
        case Measuring() if at - job.wait.since > policy.measure_s:
            facts.append(loads_known(job, at))
        case _:
            pass
    if at - watch.sent_at >= again:
        out += commands(job)
        watch = replace(watch, sent_at=at)
    job, saved, asked = save_tick(replace(job, watch=watch), policy, at)
    return job, [*facts, *saved], [*out, *asked]


def silent_nodes(job: JobState, policy: Policy, least_s: float, at: float) -> list[Fact]:
    """Nodes of which nothing was heard for too long."""
    found: list[Fact] = []
    for rank in job.live:
        silent_s = at - job.watch.heard.get(rank, at)
        limit_s, why = patience(job, rank, policy, least_s)
        if silent_s > limit_s:
            reason = (
                f"nothing was heard of it for {silent_s:.1f} s, no heartbeat and no report; {why}"
            )
            found.append(NodeLost(at=at, cause="heartbeat", job=job.name, rank=rank, reason=reason))
    return found


def patience(job: JobState, rank: Rank, policy: Policy, least_s: float) -> tuple[float, str]:
    """How long a node may be silent, and why, in words."""
    silence_s = policy.silence_s if job.spec.silence_s is None else job.spec.silence_s
    why = f"silence is {silence_s:g} s"
    pair = job.watch.reports.get(rank)
    crowd = min(max(pair.report.crowd, 1.0), policy.crowd) if pair is not None else 1.0
    limit_s = silence_s * crowd
    if crowd > 1.0:
        why += f", {limit_s:.1f} s while {crowd:.1f} threads want each core of its machine"
    if limit_s < least_s:
        return least_s, f"{why}, {least_s:.1f} s with so many nodes"
    return limit_s, why
