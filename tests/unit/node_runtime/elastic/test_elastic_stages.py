"""The degree of each stage: the bottleneck test, and where it comes to in chains of stages."""

from __future__ import annotations

import doctest
import itertools
from typing import TYPE_CHECKING

from plait.node_runtime.elastic import stage_degree
from plait.node_runtime.elastic.stage_degree import (
    DegreeMemory,
    DegreePolicy,
    DegreesView,
    Refusal,
    StageView,
    bottleneck,
    decide,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

POLICY = DegreePolicy(samples=1)


def test_the_example() -> None:
    assert doctest.testmod(stage_degree).failed == 0


def chain(ratios: Sequence[float], degrees: Sequence[int], most: int = 8) -> tuple[StageView, ...]:
    """A source, one stage for each ratio, a sink."""
    last = len(ratios) + 1
    middle = [
        StageView(stage=i + 1, degree=degree, most=most, blocked_ratio=ratio, after=(i + 2,))
        for i, (ratio, degree) in enumerate(zip(ratios, degrees, strict=True))
    ]
    source = StageView(stage=0, degree=1, most=1, after=(1,))
    return (source, *middle, StageView(stage=last, degree=1, most=1))


def found(ratios: Sequence[float], memory: DegreeMemory | None = None) -> int | None:
    view = DegreesView(stages=chain(ratios, [1] * len(ratios)), throughput=1.0)
    one = bottleneck(view, POLICY, memory or DegreeMemory())
    return None if one is None else one.stage


def test_a_bottleneck_is_congested_in_front_and_not_behind() -> None:
    assert found([0.0, 0.0, 0.0]) is None
    assert found([0.0, 0.009, 0.0]) is None
    assert found([0.0, 0.01, 0.0]) == 2
    assert found([0.9, 0.9, 0.0]) == 2  # the first is held up by the second
    assert found([0.9, 0.0, 0.9]) == 3  # two of them: the last first


def test_a_stage_that_cannot_use_more_is_no_candidate() -> None:
    view = DegreesView(stages=chain([0.5], [8]), throughput=1.0)
    assert bottleneck(view, POLICY, DegreeMemory()) is None
    assert (
        found([0.0, 0.5, 0.0], DegreeMemory(refused={2: Refusal(throughput=1.0, until=0)})) is None
    )


def simulate(costs: Sequence[float], threads: int, periods: int) -> tuple[list[list[int]], float]:
    """Degrees over time of a chain whose stages have these costs a record, and the last rate: the
    slowest stage sets it, and all of them together need no more than the threads there are."""
    degrees = [1] * len(costs)
    memory = DegreeMemory()
    story = []
    for _ in range(periods):
        rates = [degree / cost for degree, cost in zip(degrees, costs, strict=True)]
        rate = min(min(rates), threads / sum(costs))
        slowest = max((i for i, r in enumerate(rates) if r <= rate * 1.001), default=-1)
        ratios = [0.9 if i <= slowest else 0.0 for i in range(len(costs))]
        stages = chain(ratios, degrees, threads)
        decision, memory = decide(DegreesView(stages=stages, throughput=rate), POLICY, memory)
        for stage, degree in decision.changes:
            degrees[stage - 1] = degree
        story.append(list(degrees))
    return story, rate


def test_one_expensive_stage_gets_what_it_needs() -> None:
    story, rate = simulate([1, 8, 1], threads=12, periods=40)
    assert story[-1] == story[-10]
    assert [1, 5, 1] in story
    assert rate >= 0.95 * 12 / 10  # all threads at work


def test_two_expensive_stages_take_turns() -> None:
    story, rate = simulate([1, 4, 4], threads=12, periods=60)
    assert story[-1] == story[-10]
    assert story[:4] == [[1, 1, 2], [1, 2, 2], [1, 2, 3], [1, 3, 3]]
    assert rate >= 0.95 * 12 / 9


def test_a_step_that_does_not_help_is_taken_back_and_not_repeated() -> None:
    stages = chain([0.5], [1])
    decision, memory = decide(DegreesView(stages=stages, throughput=10.0), POLICY, DegreeMemory())
    assert decision.changes == ((1, 2),)
    decision, memory = decide(DegreesView(stages=chain([0.5], [2]), throughput=7.0), POLICY, memory)
    assert decision.changes == ((1, 1),)
    assert "was no better" in decision.reason
    for throughput in (10.0, 10.5, 9.5):
        view = DegreesView(stages=stages, throughput=throughput)
        decision, memory = decide(view, POLICY, memory)
        assert decision.changes == ()
    other = DegreesView(stages=stages, throughput=20.0)  # another load
    decision, memory = decide(other, POLICY, memory)
    assert decision.changes == ((1, 2),)
    assert memory.refused[1].times == 1


def test_a_stage_that_is_refused_again_and_again_is_left_alone_for_longer() -> None:
    memory, degree, tries = DegreeMemory(), 1, []
    for number in range(200):
        # The load is always another, and one worker more is never better.
        throughput = 100.0 if number // 2 % 2 else 50.0
        stages = chain([0.5], [degree])
        view = DegreesView(stages=stages, throughput=throughput if degree == 1 else 1.0)
        decision, memory = decide(view, POLICY, memory)
        for _, wanted in decision.changes:
            degree = wanted
            tries += [number] if wanted == 2 else []
    gaps = [after - before for before, after in itertools.pairwise(tries)]
    assert gaps == sorted(gaps)
    assert len(tries) <= 8


def test_several_periods_make_one_measurement() -> None:
    policy = DegreePolicy(samples=3)
    memory = DegreeMemory()
    for ratio in (0.0, 0.0, 0.03):
        view = DegreesView(stages=chain([ratio], [1]), throughput=1.0)
        decision, memory = decide(view, policy, memory)
    assert decision.changes == ((1, 2),)
    assert memory.samples == ()
