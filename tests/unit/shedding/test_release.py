"""Algorithm 2: who leaves, and what the text gets wrong."""

from __future__ import annotations

import pytest

from plait.shedding.release import release
from tests.unit.shedding.twins import release_as_printed
from tests.unit.shedding.views import floats, ints


def freed(
    amount: float, needs: list[float], priority: list[int], size: list[float] | None = None
) -> list[tuple[int, float]]:
    return release(amount, floats(needs), ints(priority), floats(size or [0.0] * len(needs)))


def test_enough_is_released_and_only_a_part_of_the_last_one() -> None:
    """To free 0.5 of 0.4, 0.3 and 0.2: 0.4 is let off, 0.3 and 0.2 go."""
    assert freed(0.5, [0.4, 0.3, 0.2], [0, 0, 0]) == [(1, 1.0), (2, pytest.approx(1.0))]
    assert freed(0.45, [0.4, 0.3, 0.2], [0, 0, 0]) == [(1, 1.0), (2, pytest.approx(0.75))]


def test_slip_line_14_lets_off_too_many() -> None:
    as_printed = release_as_printed(50, [40, 30, 20], [0, 0, 0], ascending=True, line_14=True)
    assert as_printed == [1]  # 30 of the 50
    without = release_as_printed(50, [40, 30, 20], [0, 0, 0], ascending=True, line_14=False)
    assert without == [1, 2]
    assert [row for row, _ in freed(50, [40, 30, 20], [0, 0, 0])] == [1, 2]


def test_slip_the_lowest_priority_goes_first() -> None:
    needs, priority = [0.3, 0.3], [9, 1]
    as_printed = release_as_printed(0.2, needs, priority, ascending=False, line_14=False)
    assert as_printed == [0]
    [(row, part)] = freed(0.2, needs, priority)
    assert (row, round(part, 6)) == (1, round(0.2 / 0.3, 6))


def test_higher_priorities_go_only_if_the_lower_ones_do_not_suffice() -> None:
    assert freed(0.5, [0.3, 0.4, 0.9], [1, 2, 3]) == [(1, 1.0), (0, pytest.approx(1 / 3))]


def test_all_go_if_all_of_them_do_not_suffice() -> None:
    assert freed(5.0, [0.3, 0.4], [1, 2]) == [(1, 1.0), (0, 1.0)]


def test_nothing_to_free_and_nothing_to_release() -> None:
    assert freed(0.0, [0.3], [0]) == []
    assert freed(0.5, [], []) == []
    assert freed(0.5, [0.0, 0.0], [0, 1]) == []


def test_of_equal_tasks_the_one_with_the_fewest_bytes_goes() -> None:
    assert freed(0.3, [0.3, 0.3], [0, 0], [10.0, 90.0]) == [(0, 1.0)]


def test_the_worked_case() -> None:
    """Taxi drives on one core: 0.10 must go. The second sink and the sources are let off."""
    needs = [0.03, 0.03, 0.32, 0.36, 0.36]
    [(row, share)] = freed(sum(needs) - 1.0, needs, [0, 0, 0, 0, 0])
    assert row == 2
    assert share == pytest.approx(0.3125)
