"""How many workers should run: decided from measured throughput, or from how busy they are.

`TrendPolicy` is the trusted-trend rule of Schneider and Wu (PLDI 2017, Fig. 7 and 8): a record of
throughput for every level (number of workers) that has been tried, trusted until the load changes;
six rules that look at the level below and the level above. Levels double on the way up and halve on
the way down; when the rules have settled, the gaps beside the best level are halved until what
lies between can be no more than the sensitivity better. A search begins with a quick round of short
periods, in which only large differences count: a level that is much worse than another is left
after a few milliseconds, and the full periods are for those that are nearly as good as the best.
`UtilisationPolicy` is the rule of Sahin
and Gedik (TOPC 2018): one worker more above U_h, one fewer below U_l.

Pure: what was measured comes in as a view, and nothing here knows a clock.

    >>> policy = TrendPolicy(max_level=4, samples=1)
    >>> memory = begin(policy)
    >>> view = LevelView(throughput=100.0, active=memory.level)
    >>> decision, memory = decide(view, policy, memory)
    >>> decision.level, decision.reason
    (2, 'rule 4: nothing is known of level 2')
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from plait.node_runtime.elastic.level_records import (
    ThreadRecord,
    above,
    below,
    best_level,
    next_trial,
    resting_level,
    trusted_levels,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelView:
    """What was measured in the last period."""

    throughput: float
    """Records a second over all stages."""
    active: int
    """Workers that were not suspended."""
    cpu_ratio: float = 0.0
    """Use of all cores by all processes, 0..1."""
    others_cpu_ratio: float | None = None
    """What of it was not ours; None: not known."""
    busy_ratio: float = 1.0
    """The part of the period that active workers spent in stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPolicy:
    """The trusted-trend rule. Levels are numbers of workers."""

    max_level: int
    min_level: int = 1
    start_level: int | None = None
    """Where to begin; None: at the greatest, so that a short run is as fast as it can be."""
    sensitivity_ratio: float = 0.05
    """Differences below this are no trend and no change of load."""
    cpu_guard_ratio: float = 0.8
    others_ratio: float = 0.05
    """With less than this used by others the guard does not hold: levels end at the number of
    cores, so alone we cannot ask too much of the machine."""
    samples: int = 2
    """Periods that make one measurement; their difference tells the noise."""
    noise_factor: float = 2.5
    """The sensitivity is at least so many times the noise."""
    most_patience: int = 64
    """The most measurements for which a settled level is kept through small changes."""
    quick_ratio: float = 0.2
    """The part of a period that a period of the quick round takes; 1: there is no such round."""
    quick_sensitivity_ratio: float = 0.25
    """What counts as a difference there. A measurement with more noise takes twice the samples, and
    a level that is worse by less than twice of it is seen twice."""
    recheck_after: int = 120
    """After so many measurements the level above is measured once more: when another program ends,
    it may have become better although nothing changed at this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationPolicy:
    """More workers while they are busy, fewer while they are not."""

    max_level: int
    min_level: int = 1
    start_level: int | None = None
    low_ratio: float = 0.90
    high_ratio: float = 0.95
    cpu_guard_ratio: float = 0.8
    others_ratio: float = 0.05


LevelPolicy = TrendPolicy | UtilisationPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelMemory:
    """What is carried from one decision to the next."""

    level: int
    """The level that was asked for last."""
    records: tuple[ThreadRecord, ...] = ()
    """By level; the first is not used."""
    time: int = 0
    """Measurements so far."""
    samples: tuple[float, ...] = ()
    """Periods of the measurement that is under way."""
    noise_ratio: float = 0.0
    suspect: int = 0
    """1 or -1: the last measurement was above or below what is trusted, once."""
    settled: int | None = None
    """The level that was settled on; None while levels are tried."""
    last_settled: int | None = None
    rested: int = 0
    """Measurements since it settled."""
    patience: int = 1
    refining: bool = False
    """The rules have settled, gaps are being tried."""
    quick: bool = False
    """The search is in its quick round."""
    hurried: bool = False
    """A period was far from what is trusted: whether the load changed is seen by short periods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelDecision:
    level: int
    reason: str
    measured: float | None = None
    """Records a second that were recorded for the level before; None: not enough periods yet."""
    period_ratio: float = 1.0
    """How long the next period should be, as a part of a full one."""


def begin(policy: LevelPolicy) -> LevelMemory:
    """The memory before the first period."""
    wanted = policy.max_level if policy.start_level is None else policy.start_level
    level = min(max(wanted, policy.min_level), policy.max_level)
    records = (ThreadRecord(),) * (policy.max_level + 1)
    return LevelMemory(level=level, records=records, quick=has_quick_round(policy))


def has_quick_round(policy: LevelPolicy) -> bool:
    return isinstance(policy, TrendPolicy) and policy.quick_ratio < 1


def period_ratio(policy: LevelPolicy, memory: LevelMemory) -> float:
    """The length of the period that comes next, as a part of a full one."""
    if isinstance(policy, TrendPolicy) and (memory.quick or memory.hurried):
        return policy.quick_ratio
    return 1.0


def decide(
    view: LevelView, policy: LevelPolicy, memory: LevelMemory
) -> tuple[LevelDecision, LevelMemory]:
    """The level of the next period."""
    if view.active != memory.level:
        # A measurement counts only when all that was to happen did happen.
        reason = f"{view.active} workers were active, not {memory.level}: not measured"
        decision = LevelDecision(level=memory.level, reason=reason)
        memory = replace(memory, samples=())
    else:
        match policy:
            case TrendPolicy():
                decision, memory = by_trend(view, policy, memory)
            case UtilisationPolicy():
                decision, memory = by_utilisation(view, policy, memory)
            case _:
                assert_never(policy)
    return replace(decision, period_ratio=period_ratio(policy, memory)), memory


def cpu_allows(view: LevelView, policy: LevelPolicy) -> bool:
    """Whether the machine has room for one more worker."""
    if view.cpu_ratio <= policy.cpu_guard_ratio:
        return True
    return view.others_cpu_ratio is not None and view.others_cpu_ratio < policy.others_ratio


def by_utilisation(
    view: LevelView, policy: UtilisationPolicy, memory: LevelMemory
) -> tuple[LevelDecision, LevelMemory]:
    level, busy = memory.level, view.busy_ratio
    # The same work on one worker fewer must not be above the high mark, or it would come back.
    fewer = busy * level / (level - 1) if level > 1 else 1.0
    if busy > policy.high_ratio and level < policy.max_level:
        if cpu_allows(view, policy):
            level, why = level + 1, f"{busy:.0%} busy, above {policy.high_ratio:.0%}"
        else:
            why = f"{busy:.0%} busy, but the machine is at {view.cpu_ratio:.0%}"
    elif busy < policy.low_ratio and fewer <= policy.high_ratio and level > policy.min_level:
        level, why = level - 1, f"{busy:.0%} busy, below {policy.low_ratio:.0%}"
    else:
        why = f"{busy:.0%} busy"
    return (
        LevelDecision(level=level, reason=why, measured=view.throughput),
        replace(memory, level=level, time=memory.time + 1),
    )


def by_trend(
    view: LevelView, policy: TrendPolicy, memory: LevelMemory
) -> tuple[LevelDecision, LevelMemory]:
    level = memory.level
    samples = (*memory.samples, view.throughput)
    if not enough(samples, policy, memory):
        if side := far_off(view.throughput, policy, memory):
            memory = replace(memory, samples=(), suspect=side, hurried=True)
            return LevelDecision(level=level, reason="the throughput is another: a look"), memory
        return LevelDecision(level=level, reason="measuring"), replace(memory, samples=samples)
    measured = sum(samples) / len(samples)
    memory = replace(memory, samples=(), time=memory.time + 1)
    if not memory.hurried:
        memory = replace(memory, noise_ratio=noise(memory.noise_ratio, samples))
    side = deviation(measured, policy, memory)
    memory = replace(memory, hurried=False)
    if side and side != memory.suspect and memory.records[level].trusted:
        reason = "the throughput is another: measured once more"
        return (
            LevelDecision(level=level, reason=reason, measured=measured),
            replace(memory, suspect=side),
        )
    changed = side != 0
    if changed:
        memory = replace(forgotten(memory, ()), quick=has_quick_round(policy), noise_ratio=0.0)
    memory = record(measured, memory)
    wanted, reason, memory = chosen(view, policy, memory)
    if changed:
        reason = f"the load changed; {reason}"
    return (
        LevelDecision(level=wanted, reason=reason, measured=measured),
        replace(memory, level=wanted),
    )


def enough(samples: tuple[float, ...], policy: TrendPolicy, memory: LevelMemory) -> bool:
    """Whether these periods are a measurement."""
    if len(samples) < policy.samples or not memory.quick:
        return len(samples) >= policy.samples
    calm = max(samples) - min(samples) <= policy.quick_sensitivity_ratio * max(samples)
    return calm or len(samples) >= 2 * policy.samples


def noise(before: float, samples: tuple[float, ...]) -> float:
    """How far apart the periods of one measurement are: a slow average."""
    mean = sum(samples) / len(samples)
    if len(samples) < 2 or mean <= 0:
        return before
    apart = min((max(samples) - min(samples)) / mean, 0.2)
    return apart if before == 0 else 0.8 * before + 0.2 * apart


def sensitivity(policy: TrendPolicy, memory: LevelMemory) -> float:
    if memory.quick:
        return policy.quick_sensitivity_ratio
    return max(policy.sensitivity_ratio, policy.noise_factor * memory.noise_ratio)


def far_off(throughput: float, policy: TrendPolicy, memory: LevelMemory) -> int:
    """1 or -1 if a single full period is so far from what is trusted that it is worth a look at
    once, else 0."""
    if memory.quick or memory.hurried or not has_quick_round(policy):
        return 0
    record = memory.records[memory.level]
    least = max(policy.quick_sensitivity_ratio, 4 * sensitivity(policy, memory))
    apart = throughput - record.last_thput
    if not record.trusted or abs(apart) <= least * max(throughput, record.last_thput):
        return 0
    return 1 if apart > 0 else -1


def deviation(measured: float, policy: TrendPolicy, memory: LevelMemory) -> int:
    """changeInLoad: 1 or -1 if this level was trusted to have another throughput, else 0. A level
    that proved right again and again is kept through changes that are not large."""
    record = memory.records[memory.level]
    if not record.trusted:
        return 0
    sens = sensitivity(policy, memory)
    if memory.settled is not None and memory.rested < memory.patience:
        sens *= 4
    for trusted in (record.last_thput, record.first_thput):
        if abs(measured - trusted) > sens * max(trusted, measured):
            return 1 if measured > trusted else -1
    return 0


def record(measured: float, memory: LevelMemory) -> LevelMemory:
    """The measurement in its record."""
    records = list(memory.records)
    old = records[memory.level]
    records[memory.level] = ThreadRecord(
        last_time=memory.time,
        first_thput=old.first_thput if old.trusted else measured,
        last_thput=measured,
        trusted=True,
        visits=old.visits + 1 if old.trusted else 1,
    )
    return replace(memory, records=tuple(records), suspect=0, rested=memory.rested + 1)


def chosen(
    view: LevelView, policy: TrendPolicy, memory: LevelMemory
) -> tuple[int, str, LevelMemory]:
    """The next level, why, and what is remembered of the choice."""
    if memory.settled is not None:
        found = recheck(view, policy, memory)
        if found is not None:
            return found
        memory = forgotten(memory, (memory.level, memory.settled))
    if not memory.refining:
        level, reason = by_rules(view, policy, memory)
        if level != memory.level or reason.startswith("guard"):
            return level, reason, memory
        if memory.quick:
            return after_quick_round(view, policy, memory)
        memory = replace(memory, refining=True)
    trial, why = next_trial(memory.records, policy, sensitivity(policy, memory))
    if trial is not None and (trial <= memory.level or cpu_allows(view, policy)):
        return trial, why, memory
    rest = resting_level(memory.records, policy)
    if rest > memory.level and not cpu_allows(view, policy):
        return memory.level, f"guard: level {rest} is better, the machine is full", memory
    same = rest == memory.last_settled
    patience = min(memory.patience * 2, policy.most_patience) if same else 1
    reason = f"rule 6: level {rest} has what level {best_level(memory.records)} gives"
    if rest == best_level(memory.records):
        reason = f"rule 6: level {rest} is the best"
    return (
        rest,
        reason,
        replace(memory, settled=rest, last_settled=rest, rested=0, patience=patience),
    )


def after_quick_round(
    view: LevelView, policy: TrendPolicy, memory: LevelMemory
) -> tuple[int, str, LevelMemory]:
    """What is much worse than the best level need not be seen again; of the others nothing is known
    yet."""
    records = memory.records
    known, best = trusted_levels(records), best_level(records)

    def worse_by(level: int) -> float:
        return records[best].last_thput / max(records[level].last_thput, 1e-9) - 1

    for near in (below(best, known, policy.min_level), above(best, known, policy.max_level)):
        once = near != best and records[near].trusted and records[near].visits < 2
        once = once and (near <= memory.level or cpu_allows(view, policy))
        if once and worse_by(near) < 2 * policy.quick_sensitivity_ratio:
            return near, f"{near} once more", memory
    if best > memory.level and not cpu_allows(view, policy):
        return memory.level, f"guard: level {best} is better, the machine is full", memory
    worse = tuple(one for one in known if worse_by(one) > policy.quick_sensitivity_ratio)
    memory = replace(forgotten(memory, worse), quick=False, noise_ratio=0.0)
    seen = tuple(replace(one, visits=2) if one.trusted else one for one in memory.records)
    others = ", ".join(map(str, worse)) or "none"
    return best, f"level {best} is much better than {others}", replace(memory, records=seen)


def forgotten(memory: LevelMemory, kept: tuple[int, ...]) -> LevelMemory:
    """The search begins anew; of all levels only `kept` are trusted."""
    records = tuple(
        replace(record, trusted=record.trusted and level in kept)
        for level, record in enumerate(memory.records)
    )
    return replace(memory, records=records, settled=None, refining=False)


def recheck(
    view: LevelView, policy: TrendPolicy, memory: LevelMemory
) -> tuple[int, str, LevelMemory] | None:
    """A settled level is kept, but for a look at the level above now and then; None: that one is
    better now, and the search begins anew."""
    settled, records = memory.settled, memory.records
    assert settled is not None
    if memory.level != settled:
        sens = sensitivity(policy, memory)
        if records[memory.level].last_thput > records[settled].last_thput * (1 + sens):
            return None
        return settled, f"{memory.level} is no better: back", replace(memory, rested=0)
    up = above(settled, trusted_levels(records), policy.max_level)
    if memory.rested >= policy.recheck_after and up > settled and cpu_allows(view, policy):
        return up, f"a look at {up} after {memory.rested} measurements", memory
    return settled, "settled", memory


def by_rules(view: LevelView, policy: TrendPolicy, memory: LevelMemory) -> tuple[int, str]:
    """updateThreadLevel: rules 1 to 6 on the level below and the level above."""
    level, records = memory.level, memory.records
    known = trusted_levels(records)
    down, up = below(level, known, policy.min_level), above(level, known, policy.max_level)
    here, sens = records[level].last_thput, sensitivity(policy, memory)
    trust_down = down < level and records[down].trusted
    trust_up = up > level and records[up].trusted
    trend_down = trust_down and here > records[down].last_thput * (1 + sens)
    trend_up = trust_up and records[up].last_thput > here * (1 + sens)
    higher = ""
    if trend_down and not trust_up and up > level:
        higher = f"rule 1: {level} is better than {down}"
    elif trend_up:
        higher = f"rule 2: {up} is better than {level}"
    elif level == policy.min_level and not trust_up and up > level:
        higher = f"rule 3: nothing is known above {level}"
    if higher and cpu_allows(view, policy):
        return up, higher
    if higher and (trend_up or trend_down or down == level):
        return level, f"guard: the machine is at {view.cpu_ratio:.0%} ({higher})"
    if down < level and not trust_down:
        return down, f"rule 4: nothing is known of level {down}"
    if down < level and not trend_down:
        return down, f"rule 5: {level} is no better than {down}"
    return level, "rule 6"
