"""A checkpoint from its mark to its end: a small second machine beside what the job waits for.

A save takes seconds and must not hold up a rescale. So a round sets the mark, from a quiet job or
between two chunks of a migration, and then the job goes on with what it waited for; what comes of
the save is told by reports. One checkpoint is in flight at a time: parts, seal, publish, retire. It
is given up when a part or the seal fails, and the job runs on. If the publishing fails, nobody
knows what is visible: the job goes back to a checkpoint (`recovery.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.checkpoints.records import (
    KEPT,
    Saved,
    SaveStep,
    Saving,
    Unsaved,
    free_epoch,
    is_saving,
    saves,
    set_mark,
    settings,
    with_saves,
)
from plait.coordinator.machine.drop_nodes import send_drop
from plait.coordinator.machine.epoch_agreement import promise
from plait.coordinator.machine.job_end import close_rescale, end, reject_unplanned
from plait.coordinator.machine.rescale import proceed, settle
from plait.coordinator.machine.state import NodeOrder, Pacing, Quiet, Telling
from plait.coordinator.machine.turn import Next
from plait.coordinator.machine.wait import enter
from plait.coordinator.messages.commands import Tell
from plait.coordinator.messages.requests import Rejected, Save
from plait.errors import InternalError
from plait.protocol.checkpoint_messages import Publish, Retire, Seal
from plait.protocol.messages import Commit

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState
    from plait.coordinator.machine.turn import Turn
    from plait.coordinator.messages.commands import Outgoing
    from plait.coordinator.messages.events import CheckpointDue, PartFailed, PartsSaved
    from plait.protocol.checkpoint_messages import Finished, SlowCommand


def request_save(job: JobState, request: Save, turn: Turn) -> tuple[JobState, int] | Rejected:
    """A checkpoint as soon as possible; with the number that it has at least."""
    if job.checkpoints is None:
        return Rejected(reason=f"{job.name} has no checkpoints: submit it with checkpoint=")
    if job.phase not in ("running", "rescaling") or job.stop_asked:
        return Rejected(reason=f"{job.name} is {'stopping' if job.stop_asked else job.phase}")
    known = job.checkpoints
    if request.name and request.name in (*known.wishes, *known.savepoints):
        return Rejected(reason=f"{job.name} has a savepoint {request.name} already")
    wishes = (*known.wishes, request.name)
    known = replace(known, wishes=wishes, next_at=min(known.next_at, turn.at))
    return with_saves(job, known), known.next_number


def begin_save(job: JobState, event: CheckpointDue, turn: Turn) -> Next:
    """A checkpoint is due: its round begins."""
    known = saves(job)
    if known.saving is not None:
        return Next(job)
    if known.at_end:
        return mark_end(job, event.epoch, turn)
    if not isinstance(job.wait.kind, Quiet | Pacing):
        raise InternalError(f"{job.name}: a checkpoint is due in {job.wait}")
    job = with_saves(job, replace(known, next_at=turn.at + settings(job).every_s))
    return promise(job, "save", turn)


def go_back(job: JobState, turn: Turn) -> Next:
    """The round of a mark is over: the job goes on with what it waited for."""
    return settle(job, turn) if job.changing is None else proceed(job, turn)


def mark_end(job: JobState, epoch: int, turn: Turn) -> Next:
    """The nodes are at their end: nothing has to be agreed on, each marks where it is."""
    known = saves(job)
    epoch = known.stop_epoch if known.ending == "stopped" else free_epoch(job, epoch)
    ranks = (job.home,) if known.ending == "satisfied" else job.members
    job, mark = set_mark(job, epoch, ranks, turn.at, ended=True)
    orders = (NodeOrder(ranks=ranks, command=Commit(round=job.next_wait, mark=mark)),)
    return enter(job, Telling(aim="stop", act="commit", orders=orders), turn)


def come_to_end(job: JobState, satisfied: bool, turn: Turn) -> Next:
    """All nodes are at their end, or a sink has all it wanted: the last checkpoint follows."""
    known = saves(job)
    if known.complete:
        return end(job, "ended", "", turn)
    if known.at_end:
        return Next(job)
    ending = known.ending or ("satisfied" if satisfied else "finished")
    job = with_saves(job, replace(known, ending=ending, at_end=True, next_at=turn.at))
    if isinstance(job.wait.kind, Telling) and job.wait.kind.aim in ("save", "stop"):
        # Some may not have heard of its mark, and will not: the last one takes its place.
        job = give_up(job, "the job ended first", turn)
        job = with_saves(job, replace(saves(job), next_at=turn.at))
    job, refusals = reject_unplanned(job, f"{job.name} is at its end")
    job, stops = close_rescale(job, "the job ended first", turn)
    stops = [*refusals, *stops]
    began_at = turn.at if job.began_at is None else job.began_at
    quiet = job.phase == "stopping" and isinstance(job.wait.kind, Quiet)
    job = replace(job, phase="stopping", began_at=began_at, interrupted=None, refusals=0)
    job = replace(job, layouts=job.layouts[-1:])
    if quiet:
        return Next(job, tuple(stops))
    if job.dropping:
        return Next(job, tuple(stops)).then(send_drop, Quiet(), turn)
    return Next(job, tuple(stops)).then(enter, Quiet(), turn)


def seal(job: JobState, event: PartsSaved, turn: Turn) -> Next:
    """All parts are in the store: the home writes the manifest."""
    saving = saves(job).saving
    if saving is None or saving.step != "parts" or saving.mark.number != event.number:
        return Next(job)
    saving = replace(saving, parts=event.parts)
    return take_step(job, saving, "seal", turn).then(stir, turn)


def miss_part(job: JobState, event: PartFailed, turn: Turn) -> Next:
    saving = saves(job).saving
    if saving is None or saving.step != "parts" or saving.mark.number != event.number:
        return Next(job)
    return stir(give_up(job, f"node-{event.rank}: {event.reason}", turn), turn)


def take_step(job: JobState, saving: Saving, step: SaveStep, turn: Turn) -> Next:
    """The home is told what comes next for the checkpoint in flight."""
    known = saves(job)
    saving = replace(saving, step=step, command_id=known.next_slow)
    job = with_saves(job, replace(known, saving=saving, next_slow=known.next_slow + 1))
    job = replace(job, watch=replace(job.watch, slow_sent_at=turn.at))
    return Next(job, tuple(slow_commands(job)))


def slow_commands(job: JobState) -> list[Outgoing]:
    """What the checkpoint in flight asks of the home, if that has not been answered."""
    saving = job.checkpoints.saving if job.checkpoints is not None else None
    if saving is None or saving.step == "parts" or job.watch.slow_told >= saving.command_id:
        return []
    cause = f"checkpoint {saving.mark.number}"
    command = slow_command(job, saving)
    number = saving.command_id
    return [Tell(job=job.name, rank=job.home, command_id=number, command=command, cause=cause)]


def slow_command(job: JobState, saving: Saving) -> SlowCommand:
    mark = saving.mark
    match saving.step:
        case "seal":
            return Seal(
                number=mark.number,
                epoch=mark.epoch,
                parent=saves(job).parent,
                parts=saving.parts,
                name=mark.name,
                last=mark.last,
                finished=mark.finished,
            )
        case "publish":
            return Publish(number=mark.number)
        case "retire":
            return Retire(number=mark.number, keep=settings(job).keep)
        case "parts":
            raise InternalError(f"{job.name}: no command is slow while parts are saved")
        case _:
            assert_never(saving.step)


def follow_saving(job: JobState, saving: Saving, done: Finished, turn: Turn) -> Next:
    """The home has done its step. What it could not publish is for `recovery.py`."""
    known, mark = saves(job), saving.mark
    match saving.step:
        case "seal" if done.error:
            return stir(give_up(job, f"it could not be sealed: {done.error}", turn), turn)
        case "seal":
            # From here on it counts: a job that goes back may go back to it.
            job = with_saves(job, replace(known, parent=mark.number, fresh_at=turn.at))
            return take_step(job, saving, "publish", turn)
        case "publish":
            saved = Saved(
                number=mark.number,
                epoch=mark.epoch,
                name=mark.name,
                at=turn.at,
                size_bytes=sum(part.size_bytes for part in saving.parts),
                seconds=turn.at - saving.began_at,
            )
            names = (*known.savepoints, mark.name) if mark.name else known.savepoints
            known = replace(known, last=saved, savepoints=names[-KEPT:])
            return take_step(with_saves(job, known), saving, "retire", turn)
        case "retire":
            known = replace(known, saving=None, complete=mark.last)
            if known.complete and known.at_end:
                return end(with_saves(job, known), "ended", "", turn)
            return stir(with_saves(job, known), turn)
        case "parts":
            return Next(job)
        case _:
            assert_never(saving.step)


def give_up(job: JobState, reason: str, turn: Turn) -> JobState:
    """The checkpoint in flight will not be; the sinks keep its interval open for the next one."""
    known = saves(job)
    if known.saving is None:
        return job
    mark = known.saving.mark
    unsaved = Unsaved(number=mark.number, name=mark.name, at=turn.at, reason=reason)
    again = turn.at + min(settings(job).every_s, turn.policy.save_again_s)
    return with_saves(
        job,
        replace(
            known,
            saving=None,
            unsaved=(*known.unsaved, unsaved)[-KEPT:],
            next_at=again if known.at_end else max(known.next_at, again),
        ),
    )


def stir(job: JobState, turn: Turn) -> Next:
    """The save is a step further: what waited for that goes on."""
    quiet = isinstance(job.wait.kind, Quiet) and job.phase == "running"
    if quiet and job.stop_asked and not is_saving(job):
        return settle(job, turn)
    return Next(job)
