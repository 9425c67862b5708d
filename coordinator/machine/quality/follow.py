"""What follows when it is decided what is to be kept of a job's queries, by the controller or by
hand: a quiet job begins a round for it, any other takes it along in its next round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.machine import rescale
from plait.coordinator.machine.state import Quiet
from plait.coordinator.machine.turn import Next
from plait.protocol.quality import QualityStep
from plait.shedding.plan import thresholds

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState
    from plait.coordinator.machine.turn import Turn
    from plait.coordinator.messages.events import QualityDecided

STEPS = 1000
"""So many of the last decisions of a job are kept."""


def follow_decision(job: JobState, event: QualityDecided, turn: Turn) -> Next:
    """The controller has decided about the queries of a job."""
    if job.over or job.phase == "ending":
        return Next(job)
    began = job.submitted_at if job.began_at is None else job.began_at
    steps = tuple(QualityStep(at_s=event.at - began, reason=one) for one in event.reasons)
    job = replace(
        job,
        decided=event.keeps,
        alerts=event.alerts,
        steps=(*job.steps, *steps)[-STEPS:],
    )
    return keep_anew(job, turn)


def keep_anew(job: JobState, turn: Turn) -> Next:
    """The lesser of what is decided and of what a user allows goes to all members."""
    bounds, decided = dict(job.bounds), dict(job.decided)
    kept = {q: min(bounds.get(q, 1.0), decided.get(q, 1.0)) for q in {*bounds, *decided}}
    job = replace(job, keep=thresholds(kept, len(job.spec.queries)))
    if isinstance(job.wait.kind, Quiet) and rescale.wants_keep(job):
        return rescale.settle(job, turn)
    return Next(job)
