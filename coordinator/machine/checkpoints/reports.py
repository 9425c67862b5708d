"""What reports, answers and the clock say about a job's checkpoints. Not journalled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.machine.checkpoints.records import saves, settings
from plait.coordinator.machine.checkpoints.saving import slow_commands
from plait.coordinator.machine.state import Pacing, Quiet, Surveying
from plait.coordinator.messages.commands import AskReport
from plait.coordinator.messages.events import (
    CheckpointDue,
    NodesWanted,
    PartFailed,
    PartsSaved,
    SlowDone,
    TooOld,
)
from plait.protocol.checkpoint_messages import Finished
from plait.protocol.messages import Refused

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState
    from plait.coordinator.messages.commands import Outgoing
    from plait.coordinator.messages.events import Answered, Fact, Reported
    from plait.coordinator.messages.spec import Policy
    from plait.protocol.messages import Rank


def slow_awaited(job: JobState) -> tuple[int, str, int]:
    """The slow command that the job waits for: id, what, number. Zeros: none."""
    kind = job.wait.kind
    if isinstance(kind, Surveying):
        return kind.command_id, "survey", job.attempt
    saving = job.checkpoints.saving if job.checkpoints is not None else None
    if saving is None or saving.step == "parts":
        return 0, "", 0
    return saving.command_id, saving.step, saving.mark.number


def note_slow_answer(job: JobState, event: Answered) -> tuple[JobState, list[Fact]]:
    """A slow command is under way now, or was refused."""
    command_id, what, number = slow_awaited(job)
    if event.command_id != command_id or event.rank != job.home:
        return job, []
    if isinstance(event.answer, Refused):
        reason = event.answer.reason
        done = Finished(what=what, number=number, error=reason)  # type: ignore[arg-type]
        return job, [slow_done(job, event.at, done)]
    return replace(job, watch=replace(job.watch, slow_told=command_id)), []


def slow_done(job: JobState, at: float, done: Finished) -> SlowDone:
    return SlowDone(
        at=at,
        cause=f"report of node-{job.home}",
        job=job.name,
        attempt=job.attempt,
        rank=job.home,
        finished=done,
    )


def note_saves(job: JobState, event: Reported) -> tuple[JobState, list[Fact]]:
    """What a node's report says about the checkpoint in flight, or about a survey."""
    report, rank, at = event.report, event.rank, event.at
    if job.checkpoints is None or job.over or job.phase == "ending":
        return job, []
    _, what, number = slow_awaited(job)
    if rank == job.home and report.attempt == job.attempt:
        for done in report.finished:
            if (done.what, done.number) == (what, number):
                return job, [slow_done(job, at, done)]
    saving = job.checkpoints.saving
    if saving is None or saving.step != "parts" or rank not in saving.ranks:
        return job, []
    number, cause = saving.mark.number, f"report of node-{rank}"
    parts, part = job.watch.parts, report.saved
    if part is not None and part.number == number and rank not in parts:
        parts = {**parts, rank: part}
        job = replace(job, watch=replace(job.watch, parts=parts))
    # Until the mark is through everywhere no other one may come: all are waited for, also if it is
    # known already that one of them has failed.
    failed = failed_parts(job, number, event)
    if len(parts) + len(failed) < len(saving.ranks):
        return job, []
    if not failed:
        found = tuple(parts[one] for one in saving.ranks)
        return job, [PartsSaved(at=at, cause=cause, job=job.name, number=number, parts=found)]
    first = min(failed)
    return job, [
        PartFailed(
            at=at, cause=cause, job=job.name, number=number, rank=first, reason=failed[first]
        )
    ]


def failed_parts(job: JobState, number: int, event: Reported) -> dict[Rank, str]:
    """Why nodes could not save their part of the checkpoint in flight."""
    saving = saves(job).saving
    assert saving is not None
    known = {rank: pair.report for rank, pair in job.watch.reports.items()}
    known[event.rank] = event.report
    return {
        rank: known[rank].save_error
        for rank in saving.ranks
        if rank not in job.watch.parts and rank in known and known[rank].save_failed == number
    }


def due(job: JobState, at: float) -> Fact | None:
    """What a quiet job should do by itself: a checkpoint, or take in nodes."""
    known = job.checkpoints
    if known is None or not isinstance(job.wait.kind, Quiet | Pacing) or job.over:
        return None
    if known.saving is not None or known.complete:
        return None
    cause = "clock"
    if known.at_end and job.phase == "stopping" and at >= known.next_at:
        ranks = (job.home,) if known.ending == "satisfied" else job.members
        epochs = [pair.report.epoch for r in ranks if (pair := job.watch.reports.get(r))]
        if len(epochs) < len(ranks):
            return None
        epoch = max(epochs)
        return CheckpointDue(at=at, cause=cause, job=job.name, wait=job.wait.id, epoch=epoch)
    if job.phase not in ("running", "rescaling") or job.stop_asked:
        return None
    if at >= known.next_at:
        return CheckpointDue(at=at, cause=cause, job=job.name, wait=job.wait.id)
    fewer = job.phase == "running" and len(job.members) != known.wanted
    if fewer and at >= known.grow_at and isinstance(job.wait.kind, Quiet):
        return NodesWanted(at=at, cause="lost nodes", job=job.name, wait=job.wait.id)
    return None


def save_tick(
    job: JobState, policy: Policy, at: float
) -> tuple[JobState, list[Fact], list[Outgoing]]:
    """Commands are sent again, those who owe something are asked, and nothing may grow too old."""
    facts: list[Fact] = []
    out: list[Outgoing] = []
    if job.checkpoints is None or job.phase == "ending":
        return job, facts, out
    known, watch = saves(job), job.watch
    if at - watch.slow_sent_at >= policy.resend_s:
        out += slow_commands(job)
        watch = replace(watch, slow_sent_at=at)
    late = waiting_for(job)
    every = max(policy.tick_s, len(late) / policy.calls_per_s)
    if late and at - watch.save_asked_at >= every:
        cause = "checkpoint"
        out += [AskReport(job=job.name, rank=rank, loads=False, cause=cause) for rank in late]
        watch = replace(watch, save_asked_at=at)
    if isinstance(job.wait.kind, Surveying) and at - job.wait.since > policy.survey_s:
        words = f"the survey took longer than {policy.survey_s:g} s"
        facts.append(slow_done(job, at, Finished(what="survey", number=job.attempt, error=words)))
    age_s = at - known.fresh_at
    if job.phase in ("running", "rescaling", "stopping") and age_s > settings(job).oldest_s:
        facts.append(TooOld(at=at, cause="clock", job=job.name, age_s=age_s))
    return replace(job, watch=watch), facts, out


def waiting_for(job: JobState) -> list[Rank]:
    """The nodes whose reports the checkpoint in flight, or a survey, waits for."""
    if isinstance(job.wait.kind, Surveying):
        return [job.wait.kind.rank]
    saving = saves(job).saving
    if saving is None:
        return []
    if saving.step != "parts":
        return [job.home]
    return [rank for rank in saving.ranks if rank not in job.watch.parts]
