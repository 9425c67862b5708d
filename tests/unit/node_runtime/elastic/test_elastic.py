"""The level of workers: each rule, and where it comes to on curves of many shapes."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

from plait.node_runtime.elastic import worker_level
from plait.node_runtime.elastic.level_records import ThreadRecord
from plait.node_runtime.elastic.worker_level import (
    LevelView,
    TrendPolicy,
    UtilisationPolicy,
    begin,
    cpu_allows,
    decide,
)
from tests.unit.node_runtime.elastic.level_curves import CURVES, Period, play, quality, recorded

SIZES = (1, 2, 3, 4, 8, 17, 64)
SETTLED = 90
"""Periods after which every curve has been searched: 64 levels of two periods each, halving."""


def test_the_example() -> None:
    assert doctest.testmod(worker_level).failed == 0


def moves(periods: list[Period]) -> list[tuple[int, str]]:
    """(level, rule) of every decision that was not one to measure on."""
    return [
        (one.decision.level, one.decision.reason.split(":")[0])
        for one in periods
        if one.decision.reason != "measuring"
    ]


@pytest.mark.parametrize("most", SIZES)
@pytest.mark.parametrize("start", [1, None])
@pytest.mark.parametrize("name", CURVES)
def test_comes_to_the_best_level_and_stays(name: str, start: int | None, most: int) -> None:
    curve = CURVES[name]
    policy = TrendPolicy(max_level=most, start_level=start)
    found = play(curve, policy, SETTLED + 130)
    rest = found[SETTLED:]
    assert len({one.level for one in rest}) == 1
    assert quality(curve, rest, most) >= 0.95


@pytest.mark.parametrize("most", SIZES)
@pytest.mark.parametrize("name", CURVES)
def test_comes_to_the_best_level_through_noise(name: str, most: int, seed: int) -> None:
    curve = CURVES[name]
    found = play(curve, TrendPolicy(max_level=most), SETTLED + 200, noise=0.01, seed=seed)
    assert quality(curve, found[SETTLED:], most) >= 0.95


@pytest.mark.parametrize("most", [2, 4, 16])
@pytest.mark.parametrize("after", CURVES)
@pytest.mark.parametrize("before", CURVES)
def test_finds_the_best_level_again_after_a_change_of_load(
    before: str, after: str, most: int
) -> None:
    def heavier(level: int) -> float:
        return CURVES[after](level) * 0.6

    policy = TrendPolicy(max_level=most)
    found = play(CURVES[before], policy, 600, later=heavier, change_at=120)
    assert quality(CURVES[before], found[SETTLED:120], most) >= 0.95
    # A change that leaves this level as it was is noticed when the level above is looked at.
    assert quality(heavier, found[480:], most) >= 0.95


@pytest.mark.parametrize("name", recorded())
def test_comes_to_the_best_level_of_a_recorded_run(name: str) -> None:
    rates = recorded()[name]

    def curve(level: int) -> float:
        return rates[level - 1]

    for start in (1, None):
        policy = TrendPolicy(max_level=len(rates), start_level=start)
        found = play(curve, policy, SETTLED + 100)[SETTLED:]
        assert len({one.level for one in found}) == 1
        assert quality(curve, found, len(rates)) >= 0.95


def test_the_way_up_is_geometric() -> None:
    policy = TrendPolicy(max_level=16, start_level=1, samples=1)
    found = moves(play(CURVES["linear"], policy, 4))
    assert found == [(2, "rule 3"), (4, "rule 1"), (8, "rule 1"), (16, "rule 1")]


def test_a_level_without_gain_is_left_again() -> None:
    policy = TrendPolicy(max_level=8, start_level=1, samples=1)
    found = moves(play(lambda level: min(level, 2), policy, 4))
    assert found[:3] == [(2, "rule 3"), (4, "rule 1"), (2, "rule 5")]


def test_an_unknown_level_below_is_tried_and_left_by_rule_2() -> None:
    found = moves(play(CURVES["linear"], TrendPolicy(max_level=8, samples=1), 2))
    assert found == [(4, "rule 4"), (8, "rule 2")]


def test_one_odd_measurement_changes_nothing_two_do() -> None:
    policy = TrendPolicy(max_level=2, samples=1)
    memory = begin(policy)
    for _ in range(20):
        view = LevelView(throughput=100.0 * memory.level, active=memory.level)
        decision, memory = decide(view, policy, memory)
    assert (decision.reason, memory.settled) == ("settled", 2)
    odd = LevelView(throughput=90.0, active=2)
    decision, once = decide(odd, policy, memory)
    assert (decision.level, once.records) == (2, memory.records)
    back, same = decide(LevelView(throughput=200.0, active=2), policy, once)
    assert (back.reason, same.settled, same.suspect) == ("settled", 2, 0)
    decision, twice = decide(odd, policy, once)
    assert decision.reason.startswith("the load changed; rule 4")
    assert [record.trusted for record in twice.records] == [False, False, True]


def test_a_worker_that_does_not_suspend_puts_changes_off() -> None:
    policy = TrendPolicy(max_level=4, samples=1)
    decision, memory = decide(LevelView(throughput=1.0, active=4), policy, begin(policy))
    assert decision.level == 2
    for active in (4, 3):
        held, after = decide(LevelView(throughput=9.0, active=active), policy, memory)
        assert held.level == 2
        assert held.reason == f"{active} workers were active, not 2: not measured"
        assert after == memory


def test_the_guard_holds_for_a_machine_that_others_use() -> None:
    policy = TrendPolicy(max_level=8)
    full = LevelView(throughput=1.0, active=1, cpu_ratio=0.9)
    assert not cpu_allows(full, policy)
    assert not cpu_allows(replace(full, others_cpu_ratio=0.3), policy)
    assert cpu_allows(replace(full, others_cpu_ratio=0.01), policy)
    assert cpu_allows(replace(full, cpu_ratio=0.8), policy)


def test_a_full_machine_keeps_the_level_and_says_so() -> None:
    policy = TrendPolicy(max_level=8, start_level=2, samples=1)
    found = play(CURVES["linear"], policy, 40, cpu_ratio=0.95)
    assert max(one.level for one in found) == 2
    assert "the machine is at 95%" in found[-1].decision.reason


def test_the_least_level_is_kept() -> None:
    policy = TrendPolicy(max_level=8, min_level=3)
    found = play(CURVES["falling"], policy, 100)
    assert min(one.level for one in found) == 3
    assert found[-1].level == 3


def test_nothing_to_do_comes_to_the_least_level_and_back() -> None:
    policy = TrendPolicy(max_level=8)
    found = play(lambda level: 0.0, policy, 300, later=CURVES["linear"], change_at=60)
    assert {one.level for one in found[50:60]} == {1}
    assert found[-1].level == 8


def test_small_changes_are_lived_with_once_the_level_proved_right() -> None:
    """A slow decline: every search ends at the same level, so they become rare."""
    policy = TrendPolicy(max_level=2, recheck_after=10**9)
    memory, left = begin(policy), 0
    for number in range(1200):
        rate = memory.level * 0.999**number
        _, memory = decide(LevelView(throughput=rate, active=memory.level), policy, memory)
        left += memory.level != 2
    assert left / 1200 < 0.05


@pytest.mark.parametrize("work", [0.4, 1.7, 2.5, 3.99, 7.2])
def test_utilisation_comes_to_as_many_as_the_work_needs(work: float) -> None:
    policy = UtilisationPolicy(max_level=8, start_level=1)
    memory = begin(policy)
    levels = []
    for _ in range(40):
        view = LevelView(
            throughput=min(work, memory.level),
            active=memory.level,
            busy_ratio=min(1.0, work / memory.level),
        )
        _, memory = decide(view, policy, memory)
        levels.append(memory.level)
    assert len(set(levels[20:])) == 1
    assert levels[-1] >= work
    assert levels[-1] - 1 < work / policy.high_ratio


def test_utilisation_heeds_the_guard() -> None:
    policy = UtilisationPolicy(max_level=8, start_level=2)
    view = LevelView(throughput=1.0, active=2, cpu_ratio=0.9, busy_ratio=1.0)
    decision, _ = decide(view, policy, begin(policy))
    assert decision.level == 2
    assert "but the machine is at 90%" in decision.reason


def test_records_are_as_in_the_paper() -> None:
    policy = TrendPolicy(max_level=2, start_level=1, samples=1)
    _, memory = decide(LevelView(throughput=5.0, active=1), policy, begin(policy))
    assert memory.records[1] == ThreadRecord(
        last_time=1, first_thput=5.0, last_thput=5.0, trusted=True, visits=1
    )


def lengths(periods: list[Period]) -> dict[int, float]:
    """How long each level was held, in full periods."""
    held: dict[int, float] = {}
    for one in periods:
        held[one.level] = held.get(one.level, 0.0) + one.length_ratio
    return held


@pytest.mark.parametrize("most", [2, 4, 8])
def test_a_much_worse_level_is_left_after_short_periods(most: int) -> None:
    policy = TrendPolicy(max_level=most)
    found = play(CURVES["falling"], policy, 100)
    assert found[-1].level == 1
    worse = sum(length for level, length in lengths(found).items() if level > 1)
    assert worse <= 2 * policy.samples * most.bit_length() * policy.quick_ratio
    found = play(CURVES["linear"], policy, 100)
    assert found[-1].level == most
    assert lengths(found).get(1, 0) <= 2 * policy.samples * policy.quick_ratio


def test_levels_that_are_nearly_as_good_have_full_periods() -> None:
    def curve(level: int) -> float:
        return [0, 1.0, 1.9, 2.0, 1.95][level]

    found = play(curve, TrendPolicy(max_level=4), 200)
    assert found[-1].level == 3
    full = {one.level for one in found if one.length_ratio == 1}
    assert full == {2, 3, 4}


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_large_change_of_load_is_seen_by_short_periods(noise: float) -> None:
    policy = TrendPolicy(max_level=4)
    falling, rising = CURVES["falling"], lambda level: level / 20
    found = play(falling, policy, 160, later=rising, change_at=100, noise=noise, seed=3)
    assert {one.level for one in found[60:100]} == {1}
    after = found[100:]
    up = next(n for n, one in enumerate(after) if one.level > 1)
    assert sum(one.length_ratio for one in after[:up]) <= 1 + 6 * policy.quick_ratio
    assert after[-1].level == 4


def test_one_odd_period_is_looked_at_and_no_more() -> None:
    policy = TrendPolicy(max_level=4)
    memory = begin(policy)
    for number in range(60):
        odd = number == 40
        view = LevelView(throughput=20.0 if odd else 100.0 / memory.level, active=memory.level)
        decision, memory = decide(view, policy, memory)
        if odd:
            assert decision.reason == "the throughput is another: a look"
            assert (decision.level, decision.period_ratio) == (1, policy.quick_ratio)
    assert memory.level == memory.settled == 1
    assert (memory.quick, memory.hurried, decision.period_ratio) == (False, False, 1.0)


def test_a_noisy_measurement_of_the_quick_round_takes_longer() -> None:
    policy = TrendPolicy(max_level=2)
    for samples, asked in (([10, 9], 2), ([10, 5, 10, 9], 4)):
        memory = begin(policy)
        for number, throughput in enumerate(samples, start=1):
            decision, memory = decide(LevelView(throughput=throughput, active=2), policy, memory)
            assert (decision.measured is None) == (number < asked)
        assert decision.level == 1


def test_without_a_quick_round_all_periods_are_full() -> None:
    found = play(CURVES["peaked at 3"], TrendPolicy(max_level=8, quick_ratio=1), 200)
    assert {one.length_ratio for one in found} == {1.0}
    assert found[-1].level == 3
