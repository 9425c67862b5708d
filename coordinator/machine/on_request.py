"""What a client's request does. Every request is answered: at once, or when its plan is known.

A request that was answered before is answered again and does nothing, so a client may repeat it
whenever it is not sure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine import rescale
from plait.coordinator.machine.checkpoints.records import Checkpoints, is_saving
from plait.coordinator.machine.checkpoints.saving import request_save
from plait.coordinator.machine.job_end import end, stop_nodes, unplanned
from plait.coordinator.machine.quality.follow import keep_anew
from plait.coordinator.machine.start_nodes import request_nodes
from plait.coordinator.machine.state import (
    FormerJob,
    JobState,
    JobWait,
    Pacing,
    Placing,
    Quiet,
    Readying,
    Starting,
    State,
    with_change,
    with_job,
)
from plait.coordinator.machine.turn import Next, Turn
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
    Save,
    Shed,
    Stop,
    Submit,
    Take,
    Throttle,
)
from plait.errors import InternalError
from plait.migration import machine

if TYPE_CHECKING:
    from plait.coordinator.messages.events import Asked


def follow_request(state: State, event: Asked) -> tuple[State, list[Outgoing]]:
    known = state.replies.get(event.request_id)
    if known is not None:
        return state, [answer(event, known)]
    if is_being_planned(state, event.request_id):
        return state, []
    request = event.request
    if isinstance(request, Submit):
        return submit(state, request, event)
    job = state.jobs.get(request.job)
    if job is None:
        return state, [answer(event, Rejected(reason=f"there is no job {request.job}"))]
    if isinstance(request, Forget):
        return forget(state, job, event)
    turn = Turn(policy=state.policy, at=event.at, cause=f"request {event.request_id}")
    after = change(job, request, event, turn)
    if isinstance(after, Rejected):
        return state, [answer(event, after)]
    return with_job(state, after.job), list(after.commands)


def answer(event: Asked, reply: Reply) -> ReplyTo:
    return ReplyTo(request_id=event.request_id, reply=reply, cause=f"request {event.request_id}")


def is_being_planned(state: State, request_id: str) -> bool:
    """Whether this request was accepted and its plan is not known yet."""
    return any(request_id in unplanned(job) for job in state.jobs.values())


def submit(state: State, request: Submit, event: Asked) -> tuple[State, list[Outgoing]]:
    spec, cause = request.spec, f"request {event.request_id}"
    if wrong := objection(state, request):
        return state, [answer(event, Rejected(reason=wrong))]
    stops: list[Outgoing] = []
    before = state.jobs.get(spec.name)
    if before is not None:
        state, stops = remove(state, before, event.at, cause)
    state = without_oldest(state, event.at, cause)
    former = state.former.get(spec.name)
    rank, number = (former.next_rank, former.next_wait) if former is not None else (0, 1)
    turn = Turn(policy=state.policy, at=event.at, cause=cause)
    job = JobState(
        spec=spec,
        phase="placing",
        wait=JobWait(id=number, kind=Quiet(), since=turn.at, cause=turn.cause),
        next_wait=number + 1,
        next_rank=rank,
        submitted_at=turn.at,
        checkpoints=Checkpoints(wanted=spec.nodes) if spec.checkpoint is not None else None,
    )
    accepted = answer(event, Accepted(job=spec.name))
    after = Next(job, (*stops, accepted)).then(request_nodes, spec.nodes, turn)
    return with_job(state, after.job), list(after.commands)


def without_oldest(state: State, at: float, cause: str) -> State:
    """The state without the oldest jobs whose outcome is not kept any more, if there are many."""
    expired = [job for job in state.jobs.values() if job.over and not job.kept]
    expired.sort(key=lambda job: job.ended_at or 0.0)
    for job in expired[: max(len(expired) - state.policy.expired, 0)]:
        state, _ = remove(state, job, at, cause)
    return state


def objection(state: State, request: Submit) -> str:
    """What is wrong with a job as things are, in words; empty if nothing is."""
    spec = request.spec
    before = state.jobs.get(spec.name)
    if before is not None and not before.over:
        return f"there is a job {spec.name} already: cancel it first, or choose another name"
    if before is not None and not (request.replace or before.taken or before.phase == "cancelled"):
        return (
            f"there is a job {spec.name} already, and nobody has taken its result: take it, or "
            "submit with replace=True"
        )
    if spec.nodes > spec.bins:
        return f"{spec.nodes} nodes need at least as many bins, got {spec.bins}"
    return ""


def remove(state: State, job: JobState, at: float, cause: str) -> tuple[State, list[Outgoing]]:
    """The state without a job that is over; its nodes are ended."""
    jobs = {name: other for name, other in state.jobs.items() if name != job.name}
    left = FormerJob(
        next_rank=job.next_rank, next_wait=job.next_wait, ranks=tuple(job.nodes), at=at
    )
    former = {name: other for name, other in state.former.items() if name != job.name}
    former[job.name] = left
    for name in list(former)[: max(len(former) - state.policy.former, 0)]:
        # Its nodes were ended long ago, or are of a host that is gone.
        if at - former[name].at > state.policy.forgotten_s:
            del former[name]
    return replace(state, jobs=jobs, former=former), stop_nodes(job, cause)


def forget(state: State, job: JobState, event: Asked) -> tuple[State, list[Outgoing]]:
    if not job.over:
        reason = f"{job.name} is {job.phase}: cancel it before it is forgotten"
        return state, [answer(event, Rejected(reason=reason))]
    state, stops = remove(state, job, event.at, f"request {event.request_id}")
    return state, [answer(event, Accepted(job=job.name)), *stops]


def take(job: JobState) -> Next | Rejected:
    """A client has the outcome."""
    if not job.over:
        return Rejected(reason=f"{job.name} is {job.phase}: it has no result yet")
    return Next(replace(job, taken=True))


def change(job: JobState, request: Request, event: Asked, turn: Turn) -> Next | Rejected:
    """A request about a job that is there."""
    match request:
        case Rescale():
            return rescale.measure(job, request, event.request_id, turn)
        case Drain(rank=rank):
            wish = Rescale(
                job=job.name,
                away=(rank,),
                strategy=request.strategy,
                gap_epochs=request.gap_epochs,
                throttle_bytes_per_s=request.throttle_bytes_per_s,
                dry_run=request.dry_run,
            )
            return rescale.measure(job, wish, event.request_id, turn)
        case Stop(finish=finish):
            return accept(event, stop(replace(job, finish=finish), turn))
        case Save():
            return save(job, request, event, turn)
        case Cancel():
            if job.over or job.phase == "ending":
                return Rejected(reason=f"{job.name} is over: {job.end_as}")
            return accept(event, end(job, "cancelled", "", turn))
        case PauseMigration() | ResumeMigration() | AbortMigration() | Throttle():
            return accept(event, steer(job, request, turn))
        case Shed():
            return accept(event, shed(job, request, turn))
        case Take():
            return accept(event, take(job))
        case Submit() | Forget():
            raise InternalError(f"{request} is not about a running job")
        case _:
            assert_never(request)


def accept(event: Asked, after: Next | Rejected) -> Next | Rejected:
    """The same, with the reply to the client first."""
    if isinstance(after, Rejected):
        return after
    accepted = answer(event, Accepted(job=after.job.name))
    return Next(after.job, (accepted, *after.commands))


def save(job: JobState, request: Save, event: Asked, turn: Turn) -> Next | Rejected:
    after = request_save(job, request, turn)
    if isinstance(after, Rejected):
        return after
    job, number = after
    return Next(job, (answer(event, Accepted(job=job.name, number=number)),))


def stop(job: JobState, turn: Turn) -> Next | Rejected:
    """Ends the sources at a common epoch, as soon as no other round is under way."""
    if job.over or job.phase == "ending":
        return Rejected(reason=f"{job.name} is over: {job.end_as}")
    if job.phase in ("placing", "starting", "preparing"):
        return end(job, "cancelled", "", turn)
    job = replace(job, stop_asked=True)
    match job.wait.kind:
        case Quiet() if job.phase == "running" and not is_saving(job):
            return rescale.settle(job, turn)
        case Pacing() | Placing() | Starting() | Readying() if job.changing is not None:
            return rescale.proceed(job, turn)
        case _:
            return Next(job)


def shed(job: JobState, request: Shed, turn: Turn) -> Next | Rejected:
    """A bound on what is kept of a query, until it is lifted: a quiet job begins a round for it,
    and any other takes it along in the next round."""
    if job.over or job.phase == "ending":
        return Rejected(reason=f"{job.name} is over: {job.end_as}")
    labels = [query.label for query in job.spec.queries]
    if request.query not in labels:
        known = ", ".join(labels) or "none"
        return Rejected(reason=f'{job.name} has no query "{request.query}"; it has: {known}')
    number = labels.index(request.query)
    floor = job.spec.queries[number].min_accuracy
    if request.ratio is not None and request.ratio < floor:
        what = "it is lossless" if floor >= 1 else f"its floor is {floor:g}"
        return Rejected(
            reason=f"{request.query} of {job.name} cannot be kept at {request.ratio:g}: {what}"
        )
    bounds = dict(job.bounds)
    bounds.pop(number, None)
    if request.ratio is not None:
        bounds[number] = request.ratio
    return keep_anew(replace(job, bounds=tuple(sorted(bounds.items()))), turn)


def steer(
    job: JobState,
    request: PauseMigration | ResumeMigration | AbortMigration | Throttle,
    turn: Turn,
) -> Next | Rejected:
    """A wish about the running rescale: it takes effect with the next chunk."""
    if job.changing is None or job.phase != "rescaling":
        return Rejected(reason=f"no migration of {job.name} is running")
    change, migration = rescale.open_rescale(job)
    match request:
        case PauseMigration():
            migration = machine.pause(migration)
        case ResumeMigration():
            migration = machine.resume(migration)
        case AbortMigration():
            migration = machine.abort(migration, "aborted by the user", turn.at)
        case Throttle(bytes_per_s=speed):
            migration = machine.throttle(migration, speed)
        case _:
            assert_never(request)
    job = with_change(job, replace(change, migration=migration))
    if migration.over and isinstance(job.wait.kind, Pacing | Placing | Starting | Readying):
        return rescale.proceed(job, turn)
    return Next(job)
