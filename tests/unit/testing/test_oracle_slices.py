"""The order of time in the plain loop: where slices begin and end, and that epochs do not show."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plait.graph.operators import UnionOp
from plait.testing.oracle.slices import FEW, FIRST, MOST, slice_epochs, slices
from tests.unit.testing.timed_jobs import Nodes

S = 1_000_000


def test_a_slice_begins_with_the_next_row_and_takes_each_source_up_to_its_end() -> None:
    # [5s, 6s), then twice as long [6s, 8s), and [20s, 24s): nothing is between.
    times = [[5 * S, 6 * S, 20 * S], [5 * S + 1, 7 * S, 8 * S - 1, 23 * S, 24 * S]]
    assert list(slices(times)) == [[1, 1], [1, 2], [1, 1], [0, 1]]


def test_a_slice_of_many_rows_is_cut_in_half() -> None:
    times = [[n * 10 for n in range(3 * MOST)], [0, 160_000]]
    counts = [sum(rows) for rows in slices(times)]
    assert all(FEW <= count <= MOST for count in counts[:-1])
    assert sum(counts) == 3 * MOST + 2


def test_rows_of_one_moment_are_in_one_slice() -> None:
    assert list(slices([[7] * (2 * MOST), [7, 8]])) == [[2 * MOST, 1], [0, 1]]


def test_an_epoch_goes_on_with_the_next_source_when_the_one_before_is_through() -> None:
    times = [[0, 1, 2], [0, 1], [0]]
    assert list(slice_epochs(times, [2, 2, 2])) == [[2, 0, 0], [1, 2, 1]]
    assert list(slice_epochs(times, [3, 1, 9])) == [[3, 1, 0], [0, 1, 1]]


def test_a_source_without_rows_ends_before_all_others() -> None:
    assert list(slice_epochs([[1, 2], []], [1, 1])) == [[0, 0], [1, 0], [1, 0]]
    assert list(slice_epochs([[], []], [1, 1])) == [[0, 0]]


steps = st.lists(st.sampled_from([0, 1, FIRST // 2, FIRST, 5 * FIRST, 10**9]), max_size=30)


def summed(gaps: list[int]) -> list[int]:
    return [sum(gaps[: n + 1]) for n in range(len(gaps))]


@given(
    gaps=st.lists(steps, min_size=1, max_size=3),
    most=st.lists(st.integers(1, 40), min_size=3, max_size=3),
)
def test_every_row_is_in_one_epoch_and_epochs_do_not_show(
    gaps: list[list[int]], most: list[int]
) -> None:
    times = [summed(one) for one in gaps]

    def order(epochs: Any) -> list[tuple[int, int]]:
        at = [0] * len(times)
        found = []
        for counts in epochs:
            for source, count in enumerate(counts):
                found += [(source, at[source] + n) for n in range(count)]
                at[source] += count
        return found

    found = order(slice_epochs(times, most))
    assert found == order(slices(times))
    assert sorted(found) == [(s, n) for s, one in enumerate(times) for n in range(len(one))]


def test_the_end_of_a_source_comes_with_its_last_row() -> None:
    """The window of the first source ends there, and not an epoch later."""
    for epoch in (1, 2, 100):
        nodes = Nodes()
        one = nodes.source("k | ts\na | 1s\na | 2s", "one")
        two = nodes.source("k | ts\nb | 1s\nb | 30s\nb | 31s", "two")
        nodes.sink(nodes.add(UnionOp, one, two))
        result = nodes.run(epoch, order="time")
        assert [row[0] for row in result.outputs["out"]] == ["a", "b", "a", "b", "b"]
