"""How many workers may be in each stage at a time: one more for the stage that holds up the others.

The bottleneck test of Sahin and Gedik (TOPC 2018, Algorithm 9): a stage's worklist is congested if
it was full for a part of the period; a bottleneck has a congested worklist and none behind it. Its
degree, the most workers that may be in it, rises by one in every measurement, as long as that makes
the throughput rise or moves the congestion elsewhere (of two stages that are equally slow the first
step shows nothing yet); where it did neither, the step is taken back and the stage is left alone
until the load changes, and each time for twice as long at least.

Pure: what was measured comes in as a view, and nothing here knows a clock.

    >>> stages = (
    ...     StageView(stage=0, degree=1, most=1, after=(1,)),
    ...     StageView(stage=1, degree=1, most=4, blocked_ratio=0.7, after=(2,)),
    ...     StageView(stage=2, degree=1, most=1, blocked_ratio=0.0),
    ... )
    >>> view, policy = DegreesView(stages=stages, throughput=100.0), DegreePolicy(samples=1)
    >>> decision, memory = decide(view, policy, DegreeMemory())
    >>> decision.changes, decision.reason
    (((1, 2),), 'stage 1 was full for 70% of the time, none behind it was')
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """One stage in the last period."""

    stage: int
    degree: int
    """The most workers that may be in it now."""
    most: int
    """The most it can use; 1: it is no candidate (a source, a sink, a state machine, Python)."""
    blocked_ratio: float = 0.0
    """The part of the period in which its worklist was full."""
    after: tuple[int, ...] = ()
    """The stages it hands on to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreesView:
    stages: tuple[StageView, ...]
    """In the order of their numbers."""
    throughput: float
    """Records a second over all stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreePolicy:
    congestion_ratio: float = 0.01
    """A worklist that was full for this part of the time is congested (the paper's tau)."""
    sensitivity_ratio: float = 0.05
    """A step that leaves the stage congested must raise the throughput by more than this."""
    samples: int = 2
    """Periods that make one measurement."""
    most_patience: int = 64
    """The most measurements for which a stage is left alone whatever the load does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A step whose effect is not known yet."""

    stage: int
    degree: int
    """Before the step."""
    throughput: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One worker more in a stage was no better."""

    throughput: float
    """Without it."""
    until: int
    """The measurement before which the stage is left alone in any case."""
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeMemory:
    time: int = 0
    """Measurements so far."""
    samples: tuple[DegreesView, ...] = ()
    """Periods of the measurement that is under way."""
    trial: Trial | None = None
    refused: Mapping[int, Refusal] = field(default_factory=dict)
    """By stage; kept when the load changes, for the number of times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeDecision:
    changes: tuple[tuple[int, int], ...]
    """(stage, degree) of the stages that get another degree."""
    reason: str


def decide(
    view: DegreesView, policy: DegreePolicy, memory: DegreeMemory
) -> tuple[DegreeDecision, DegreeMemory]:
    """The degrees of the next period."""
    samples = (*memory.samples, view)
    if len(samples) < policy.samples:
        return DegreeDecision(changes=(), reason="measuring"), replace(memory, samples=samples)
    view, trial = mean_of(samples), memory.trial
    memory = replace(memory, samples=(), trial=None, time=memory.time + 1)
    if trial is not None and not has_helped(view, policy, trial):
        reason = f"one worker more in stage {trial.stage} was no better: back to {trial.degree}"
        refused = {**memory.refused, trial.stage: refusal(trial, policy, memory)}
        changes = ((trial.stage, trial.degree),)
        return DegreeDecision(changes=changes, reason=reason), replace(memory, refused=refused)
    found = bottleneck(view, policy, memory)
    if found is None:
        return DegreeDecision(changes=(), reason="no stage holds up the others"), memory
    trial = Trial(stage=found.stage, degree=found.degree, throughput=view.throughput)
    reason = (
        f"stage {found.stage} was full for {found.blocked_ratio:.0%} of the time, "
        "none behind it was"
    )
    return (
        DegreeDecision(changes=((found.stage, found.degree + 1),), reason=reason),
        replace(memory, trial=trial),
    )


def mean_of(samples: tuple[DegreesView, ...]) -> DegreesView:
    """One view of several periods with the same degrees."""
    last, count = samples[-1], len(samples)
    stages = tuple(
        replace(one, blocked_ratio=sum(s.stages[i].blocked_ratio for s in samples) / count)
        for i, one in enumerate(last.stages)
    )
    return DegreesView(stages=stages, throughput=sum(s.throughput for s in samples) / count)


def refusal(trial: Trial, policy: DegreePolicy, memory: DegreeMemory) -> Refusal:
    before = memory.refused.get(trial.stage)
    times = 1 if before is None else before.times + 1
    patience = min(2**times, policy.most_patience)
    return Refusal(throughput=trial.throughput, until=memory.time + patience, times=times)


def has_helped(view: DegreesView, policy: DegreePolicy, trial: Trial) -> bool:
    """Whether a step made the throughput rise, or the stage is congested no more."""
    faster = view.throughput > trial.throughput * (1 + policy.sensitivity_ratio)
    return faster or view.stages[trial.stage].blocked_ratio < policy.congestion_ratio


def left_alone(stage: int, throughput: float, policy: DegreePolicy, memory: DegreeMemory) -> bool:
    """A stage is left alone while the load is what it was when one worker more did not help."""
    refused = memory.refused.get(stage)
    if refused is None:
        return False
    limit = 2 * policy.sensitivity_ratio * max(throughput, refused.throughput)
    return memory.time < refused.until or abs(throughput - refused.throughput) <= limit


def bottleneck(view: DegreesView, policy: DegreePolicy, memory: DegreeMemory) -> StageView | None:
    """DetectBottleneck: a congested worklist in front, none behind; the last of them in the flow,
    since the others may be held up by it."""
    found = None
    for one in view.stages:
        if one.degree >= one.most or left_alone(one.stage, view.throughput, policy, memory):
            continue
        behind = max((view.stages[s].blocked_ratio for s in one.after), default=0.0)
        if one.blocked_ratio >= policy.congestion_ratio > behind:
            found = one
    return found
