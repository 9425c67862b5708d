"""What is kept falls at once and rises late."""

from __future__ import annotations

import numpy as np
import pytest

from plait.shedding.hold import hold
from plait.shedding.words import QualityPolicy

POLICY = QualityPolicy()


class Held:
    """One query, cycle by cycle."""

    def __init__(self, keep: float = 1.0, *, floor: float = 0.2, bound: float = 1.0) -> None:
        self.keep = np.array([keep])
        self.rising = np.array([0])
        self.before = np.array([1.0])
        self.floor, self.bound = np.array([floor]), np.array([bound])

    def step(
        self,
        wanted: float,
        spare: float | None = None,
        *,
        waits: bool = False,
        cold: bool = False,
        hurry: bool = True,
    ) -> float:
        want = np.array([wanted])
        self.keep, self.rising = hold(
            self.keep,
            self.rising,
            want,
            self.before,
            np.array([wanted * 0.95 if spare is None else spare]),
            self.floor,
            self.bound,
            np.array([waits]),
            np.array([hurry]),
            np.array([cold]),
            POLICY,
        )
        self.before = want
        return float(self.keep[0])


def test_a_fall_in_a_hurry_is_at_once_and_in_steps_of_1_256() -> None:
    held = Held()
    assert held.step(0.6) == 153 / 256


def test_a_fall_that_can_wait_needs_two_cycles_and_a_tiny_one_is_not_made() -> None:
    held = Held()
    assert held.step(0.6, hurry=False) == 1.0
    assert held.step(0.5, hurry=False) == 153 / 256
    held = Held(0.5)
    assert held.step(0.49) == 0.5
    assert held.step(0.49) == 0.5


def test_one_noisy_cycle_changes_nothing() -> None:
    held = Held()
    assert [held.step(want, 1.0, hurry=False) for want in (0.7, 1.0, 0.7, 1.0)] == [1.0] * 4


def test_the_floor_is_the_end_of_a_fall() -> None:
    assert Held(floor=0.3).step(0.1) == 0.3


def test_it_rises_to_the_top_after_three_cycles() -> None:
    held = Held(0.4)
    assert [held.step(1.0, 1.0) for _ in range(3)] == [0.4, 0.4, 1.0]


def test_it_rises_by_a_third_of_the_way_if_not_all_fits() -> None:
    held = Held(0.4)
    assert [held.step(0.8, 0.7) for _ in range(3)] == [0.4, 0.4, 0.5]
    assert [held.step(0.8, 0.7) for _ in range(3)] == [0.5, 0.5, pytest.approx(145 / 256)]


def test_one_cycle_that_does_not_fit_begins_anew() -> None:
    held = Held(0.4)
    for spare in (0.7, 0.7, 0.4, 0.7, 0.7):
        assert held.step(0.7, spare) == 0.4
    assert held.step(0.7, 0.7) > 0.4


def test_nothing_rises_while_a_task_warms_up() -> None:
    held = Held(0.4)
    assert [held.step(1.0, 1.0, cold=True) for _ in range(5)] == [0.4] * 5


def test_nothing_falls_while_a_step_is_waited_for() -> None:
    assert Held().step(0.4, waits=True) == 1.0


def test_a_bound_holds_at_once_also_below_the_floor_and_while_waiting() -> None:
    assert Held(floor=0.6, bound=0.25).step(0.25, waits=True) == 0.25
