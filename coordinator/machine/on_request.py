"""What a client's request does. Every request is answered: at once, or when its plan is known.

A request that was answered before is answered again and does nothing; so a client may ask again
whenever it is not sure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine import rescale
from plait.coordinator.machine.job_end import end, stop_nodes
from plait.coordinator.machine.start_nodes import ask_for
from plait.coordinator.machine.state import (
    JobState,
    Measuring,
    Pacing,
    Placing,
    Quiet,
    Readying,
    Stage,
    Starting,
    State,
    Used,
    with_change,
    with_job,
)
from plait.coordinator.messages.commands import Outgoing, ReplyTo
from plait.coordinator.messages.requests import (
    AbortMigration,
    Accepted,
    Cancel,
    Drain,
    Forget,
    PauseMigration,
    Rejected,
    Reply,
    Request,
    Rescale,
    ResumeMigration,
    Stop,
    Submit,
    Throttle,
)
from plait.errors import InternalError
from plait.migration import machine

if TYPE_CHECKING:
    from plait.coordinator.messages.events import Asked
    from plait.coordinator.messages.spec import JobSpec, Policy


def asked(state: State, event: Asked) -> tuple[State, list[Outgoing]]:
    known = state.replies.get(event.request_id)
    if known is not None:
        return state, [answer(event, known)]
    if waits(state, event.request_id):
        return state, []
    request = event.request
    if isinstance(request, Submit):
        return submit(state, request.spec, event)
    job = state.jobs.get(request.job)
    if job is None:
        return state, [answer(event, Rejected(reason=f"there is no job {request.job}"))]
    if isinstance(request, Forget):
        return forget(state, job, event)
    result = change(job, request, state.policy, event)
    if isinstance(result, Rejected):
        return state, [answer(event, result)]
    job, out = result
    return with_job(state, job), out


def answer(event: Asked, reply: Reply) -> ReplyTo:
    return ReplyTo(request_id=event.request_id, reply=reply, cause=f"request {event.request_id}")


def waits(state: State, request_id: str) -> bool:
    """Whether this request was taken on and its plan is not known yet."""
    return any(
        isinstance(job.stage.awaits, Measuring) and job.stage.awaits.draft.request_id == request_id
        for job in state.jobs.values()
    )


def submit(state: State, spec: JobSpec, event: Asked) -> tuple[State, list[Outgoing]]:
    if wrong := unfit(state, spec):
        return state, [answer(event, Rejected(reason=wrong))]
    used = state.used.get(spec.name)
    rank, number = (used.next_rank, used.next_stage) if used is not None else (0, 1)
    cause = f"request {event.request_id}"
    job = JobState(
        spec=spec,
        phase="placing",
        stage=Stage(id=number, awaits=Quiet(), since=event.at, cause=cause),
        next_stage=number + 1,
        next_rank=rank,
        submitted_at=event.at,
    )
    job, out = ask_for(job, spec.nodes, event.at, cause)
    return with_job(state, job), [answer(event, Accepted(job=spec.name)), *out]


def unfit(state: State, spec: JobSpec) -> str:
    """What is wrong with a job, in words; empty if nothing is."""
    if not spec.name:
        return "a job needs a name"
    if spec.name in state.jobs:
        over = state.jobs[spec.name].over
        what = "forget it first" if over else "cancel it first"
        return f"there is a job {spec.name} already: {what}, or choose another name"
    if spec.nodes < 1:
        return f"a job needs at least one node, got {spec.nodes}"
    if not 0 <= spec.bin_bits <= 20:
        return f"bin_bits must be 0 to 20, got {spec.bin_bits}"
    if spec.nodes > spec.bins:
        return f"{spec.nodes} nodes need at least as many bins, got {spec.bins}"
    return ""


def forget(state: State, job: JobState, event: Asked) -> tuple[State, list[Outgoing]]:
    if not job.over:
        reason = f"{job.name} is {job.phase}: cancel it before it is forgotten"
        return state, [answer(event, Rejected(reason=reason))]
    jobs = {name: other for name, other in state.jobs.items() if name != job.name}
    left = Used(
        next_rank=job.next_rank, next_stage=job.next_stage, ranks=tuple(job.nodes), at=event.at
    )
    used = {**state.used, job.name: left}
    out = stop_nodes(job, f"request {event.request_id}")
    done = answer(event, Accepted(job=job.name))
    return replace(state, jobs=jobs, used=used), [done, *out]


Result = tuple[JobState, list[Outgoing]]


def change(job: JobState, request: Request, policy: Policy, event: Asked) -> Result | Rejected:
    """A request about a job that is there."""
    at, cause = event.at, f"request {event.request_id}"
    match request:
        case Rescale():
            return rescale.ask(job, request, event.request_id, at)
        case Drain(rank=rank):
            wish = Rescale(
                job=job.name,
                away=(rank,),
                strategy=request.strategy,
                gap_epochs=request.gap_epochs,
                throttle_bytes_per_s=request.throttle_bytes_per_s,
                dry_run=request.dry_run,
            )
            return rescale.ask(job, wish, event.request_id, at)
        case Stop():
            return accepted(event, stop(job, policy, at, cause))
        case Cancel():
            if job.over or job.phase == "ending":
                return Rejected(reason=f"{job.name} is over: {job.end_as}")
            return accepted(event, end(job, "cancelled", "", at, cause))
        case PauseMigration() | ResumeMigration() | AbortMigration() | Throttle():
            return accepted(event, steer(job, request, policy, at, cause))
        case Submit() | Forget():
            raise InternalError(f"{request} is not about a running job")
        case _:
            assert_never(request)


def accepted(event: Asked, result: Result | Rejected) -> Result | Rejected:
    if isinstance(result, Rejected):
        return result
    job, out = result
    return job, [answer(event, Accepted(job=job.name)), *out]


def stop(job: JobState, policy: Policy, at: float, cause: str) -> Result | Rejected:
    """End the sources at a common epoch, as soon as no other round is under way."""
    if job.over or job.phase == "ending":
        return Rejected(reason=f"{job.name} is over: {job.end_as}")
    if job.phase in ("placing", "starting", "preparing"):
        return end(job, "cancelled", "", at, cause)
    job = replace(job, stop_asked=True)
    match job.stage.awaits:
        case Quiet() if job.phase == "running":
            return rescale.settle(job, policy, at, cause)
        case Pacing() | Placing() | Starting() | Readying():
            return rescale.move(job, policy, at, cause)
        case _:
            return job, []


def steer(
    job: JobState,
    request: PauseMigration | ResumeMigration | AbortMigration | Throttle,
    policy: Policy,
    at: float,
    cause: str,
) -> Result | Rejected:
    """A wish about the rescale that is running: it acts on the next chunk."""
    if job.changing is None or job.phase != "rescaling":
        return Rejected(reason=f"no migration of {job.name} is running")
    one, migration = rescale.running(job)
    match request:
        case PauseMigration():
            migration = machine.pause(migration)
        case ResumeMigration():
            migration = machine.resume(migration)
        case AbortMigration():
            migration = machine.abort(migration, "aborted by the user", at)
        case Throttle(bytes_per_s=speed):
            if speed is not None and speed <= 0.0:
                return Rejected(reason=f"a throttle must be above 0, got {speed}; or pause it")
            migration = machine.throttle(migration, speed)
        case _:
            assert_never(request)
    job = with_change(job, replace(one, migration=migration))
    if migration.over and isinstance(job.stage.awaits, Pacing | Placing | Starting | Readying):
        return rescale.move(job, policy, at, cause)
    return job, []
