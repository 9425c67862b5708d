"""Algorithm 3: the worked case, priorities, prefixes, and what rounds give back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plait.shedding.share import Needs, Shares, fill, share
from tests.unit.shedding.views import floats, ints, pairs

if TYPE_CHECKING:
    from plait.shedding.view import Pairs

TAXI = pairs([(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 1)])


def needs(slopes: list[float], most: list[float] | None = None) -> Needs:
    count = len(slopes)
    return Needs(
        base=floats([0.0] * count), slope=floats(slopes), most=floats(most or [9.0] * count)
    )


def shared(
    slopes: list[float],
    part: list[int],
    host: list[int],
    behind: Pairs,
    *,
    priority: list[int],
    floor: list[float],
    available: list[float],
    most: list[float] | None = None,
    bound: list[float] | None = None,
) -> Shares:
    return share(
        needs(slopes, most),
        ints(part),
        ints(host),
        behind,
        ints(priority),
        floats(floor),
        floats(bound or [1.0] * len(floor)),
        floats(available),
    )


def test_least_need_comes_first_and_the_rest_is_even() -> None:
    given = fill(floats([0.5, 0.1, 0.4, 0.3]), ints([0, 0, 0, 1]), floats([0.6, 0.2]))
    assert given.tolist() == pytest.approx([0.25, 0.1, 0.25, 0.2])


def test_a_host_without_cores_gives_nothing() -> None:
    assert fill(floats([0.5]), ints([0]), floats([-0.3])).tolist() == [0.0]
    assert fill(floats([]), ints([]), floats([1.0])).tolist() == []


def test_the_worked_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.2 cores: after the floors 0.10 are left, 0.02 for each of the five tasks. Then the sources
    need less than they have: what they leave is shared again."""
    case = {"priority": [0, 0], "floor": [0.4, 0.6], "available": [1.2]}
    slopes, part = [0.05, 0.05, 0.8, 0.6, 0.6], [0, 1, 2, 3, 3]
    monkeypatch.setattr("plait.shedding.share.ROUNDS", 1)
    once = shared(slopes, part, [0] * 5, TAXI, **case)  # type: ignore[arg-type]
    assert once.accuracy.tolist() == pytest.approx([0.425, 0.38 / 0.6])
    assert once.left[0] == pytest.approx(1.2 - 2 * 0.05 * 0.38 / 0.6 - 0.76 - 0.34)
    assert once.left[0] == pytest.approx(0.0367, abs=1e-4)
    monkeypatch.undo()
    found = shared(slopes, part, [0] * 5, TAXI, **case)  # type: ignore[arg-type]
    assert found.left[0] == pytest.approx(0.0, abs=1e-3)
    assert found.accuracy[0] > 0.43
    assert found.accuracy[1] > 0.645


def test_higher_priorities_are_served_first() -> None:
    found = shared(
        [1.0, 1.0],
        [0, 1],
        [0, 0],
        pairs([(0, 0), (1, 1)]),
        priority=[1, 5],
        floor=[0.2, 0.2],
        available=[1.0],
    )
    assert found.accuracy.tolist() == pytest.approx([0.2, 0.8])


def test_a_prefix_does_not_lend_its_priority_to_a_low_query() -> None:
    """One prefix of 0.5 for a cheap high query with a bound of 0.5 and a low one. As printed the
    prefix, which has the high priority, would be paid for all rows, before the second query of
    high priority gets its CPU."""
    found = shared(
        [0.5, 0.0, 0.0, 1.0],
        [0, 1, 2, 3],
        [0, 0, 0, 0],
        pairs([(0, 0), (0, 1), (1, 0), (2, 1), (3, 2)]),
        priority=[9, 1, 5],
        floor=[0.0, 0.0, 0.0],
        bound=[0.5, 1.0, 1.0],
        available=[1.25],
    )
    assert found.accuracy.tolist() == pytest.approx([0.5, 0.5, 1.0])


def test_a_task_held_back_elsewhere_leaves_its_cpu_to_others() -> None:
    """Query 0 has tasks on both hosts, query 1 on the second. The first host lets query 0 have
    0.5; on the second, query 1 gets what query 0 cannot use there."""
    found = shared(
        [1.0, 1.0, 1.0],
        [0, 0, 1],
        [0, 1, 1],
        pairs([(0, 0), (1, 1)]),
        priority=[0, 0],
        floor=[0.0, 0.0],
        available=[0.5, 1.3],
    )
    assert found.accuracy.tolist() == pytest.approx([0.5, 0.8], abs=1e-3)


def test_a_bound_is_kept_and_what_cannot_be_used_is_not_given() -> None:
    found = shared(
        [2.0, 1.0],
        [0, 1],
        [0, 0],
        pairs([(0, 0), (1, 1)]),
        priority=[0, 0],
        floor=[0.0, 0.0],
        bound=[1.0, 0.25],
        most=[1.0, 1.0],
        available=[4.0],
    )
    assert found.accuracy.tolist() == pytest.approx([0.5, 0.25])
    assert found.left[0] == pytest.approx(4.0 - 1.0 - 0.25)


def test_floors_that_do_not_fit_leave_less_than_nothing() -> None:
    found = shared([1.0], [0], [0], pairs([(0, 0)]), priority=[0], floor=[0.6], available=[0.5])
    assert found.accuracy.tolist() == [0.6]
    assert found.left[0] == pytest.approx(-0.1)


def test_an_epoch_costs_something_without_rows() -> None:
    some = Needs(base=floats([0.2]), slope=floats([0.8]), most=floats([1.0]))
    assert some.cpu(floats([0.0])).tolist() == [0.0]
    assert some.cpu(floats([0.5])).tolist() == pytest.approx([0.6])
    assert some.accuracy(floats([0.6])).tolist() == pytest.approx([0.5])
    assert some.accuracy(floats([0.1])).tolist() == [0.0]
    free = Needs(base=floats([0.2]), slope=floats([0.0]), most=floats([1.0]))
    assert free.accuracy(floats([0.2])).tolist() == [1.0]
    assert free.accuracy(floats([0.1])).tolist() == [0.0]


def test_slip_line_7_accuracy_never_exceeds_1() -> None:
    """0.6 of floor and 0.5 from extra CPU as printed: 1.1."""
    found = shared([0.5], [0], [0], pairs([(0, 0)]), priority=[0], floor=[0.6], available=[4.0])
    assert found.accuracy.tolist() == [1.0]
