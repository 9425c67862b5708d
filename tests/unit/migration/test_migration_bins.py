"""Bin maps, and the map wanted next."""

from __future__ import annotations

import doctest
import importlib
from collections import Counter
from random import Random

import pytest

from plait.errors import InternalError, JobError
from plait.migration.bins import BinMap, Change, changes, initial, singleton_bin
from plait.migration.spread import spread


def a_map(*owners: int, version: int = 0) -> BinMap:
    return BinMap(version=version, owners=owners)


def halves(owners: BinMap) -> dict[int, tuple[int, int]]:
    """How many bins of each node are in the first and in the last half of all."""
    middle = owners.bins // 2
    first, last = Counter(owners.owners[:middle]), Counter(owners.owners[middle:])
    return {rank: (first[rank], last[rank]) for rank in owners.counts()}


def about_even(owners: BinMap) -> bool:
    return all(abs(first - last) <= 4 for first, last in halves(owners).values())


@pytest.mark.parametrize("name", ["plait.migration.bins", "plait.migration.plan"])
def test_the_examples_in_the_modules_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_first_map_spreads_the_bins_of_each_node_over_all() -> None:
    assert initial(10, (2, 0, 1)).owners == (0, 1, 2, 0, 1, 2, 0, 1, 2, 0)
    assert initial(8, (0, 1), {0: 3.0, 1: 1.0}).owners == (0, 0, 1, 0, 0, 0, 1, 0)
    assert initial(4, (0, 1), {0: 0.0, 1: 0.0}).owners == (0, 1, 0, 1)
    assert initial(4, (0, 1), {0: 0.0, 1: 2.0}).owners == (1, 1, 1, 1)
    assert initial(1, (0, 1)).bins == 1


def test_the_first_map_gives_each_node_its_share_in_each_half() -> None:
    assert halves(initial(64, (0, 1, 2, 3))) == dict.fromkeys(range(4), (8, 8))
    weights = {0: 5.0, 1: 2.0, 2: 1.0}
    assert halves(initial(64, (0, 1, 2), weights)) == {0: (20, 20), 1: (8, 8), 2: (4, 4)}


def test_a_first_map_needs_a_node_and_weights_that_make_sense() -> None:
    with pytest.raises(JobError, match="at least one node"):
        initial(4, ())
    with pytest.raises(JobError, match="below zero"):
        initial(4, (0, 1), {0: -1.0, 1: 1.0})


def test_counts_bins_and_changes() -> None:
    before, after = a_map(0, 1, 1, 2), a_map(0, 0, 1, 1)
    assert before.counts() == {0: 1, 1: 2, 2: 1}
    assert before.of(1) == (1, 2)
    moves = changes(before, after)
    assert moves == (Change(bin=1, source=1, target=0), Change(bin=3, source=2, target=1))
    assert before.with_changes(moves) == BinMap(version=1, owners=after.owners)


def test_a_bin_moves_only_from_its_owner() -> None:
    with pytest.raises(InternalError, match=r"bin 1 .* node 0 .* node 1 owns it"):
        a_map(0, 1).with_changes([Change(bin=1, source=0, target=2)])
    with pytest.raises(InternalError, match="2 and of 3 bins"):
        changes(a_map(0, 1), a_map(0, 1, 2))


def test_an_operator_without_a_key_has_a_bin_of_its_own() -> None:
    assert [singleton_bin(operator, 1024) for operator in (0, 1, 2, 3)] == [0, 433, 866, 275]
    assert singleton_bin(1_000_000, 16) == ((1_000_000 * 2654435761) & 0xFFFFFFFF) % 16
    assert all(singleton_bin(operator, 1) == 0 for operator in range(9))


def test_a_node_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    current = initial(12, (0, 1))
    wanted = spread(current, {0: 1.0, 1: 1.0, 2: 1.0})
    assert wanted.counts() == {0: 4, 1: 4, 2: 4}
    assert wanted.version == current.version + 1
    assert {one.target for one in changes(current, wanted)} == {2}
    # What stays and what goes are both spread over all bins.
    assert wanted.owners == (0, 1, 0, 1, 2, 2, 0, 1, 0, 1, 2, 2)


def test_nodes_that_join_take_turns_at_the_bins_that_go() -> None:
    wanted = spread(initial(64, (0,)), dict.fromkeys(range(4), 1.0))
    assert halves(wanted) == dict.fromkeys(range(4), (8, 8))


def test_of_equal_loads_half_stays_in_each_half() -> None:
    # Node 1 has just its share: only node 0 gives, about 32 of its 64 bins.
    current = a_map(*(0, 1) * 64)
    loads = dict.fromkeys(range(128), 1.0)
    striped = spread(current, {0: 1.0, 1: 2.0, 2: 1.0}, loads)
    assert {one.source for one in changes(current, striped)} == {0}
    alone = spread(a_map(*(0,) * 64), {0: 1.0, 1: 1.0}, dict.fromkeys(range(64), 1.0))
    for wanted in (striped, alone):
        assert wanted.counts()[0] == pytest.approx(32, abs=2)
        assert halves(wanted)[0] == pytest.approx((16, 16), abs=1)


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("joining", [1, 2, 3, 4])
def test_of_equal_loads_no_taker_gets_only_one_half(before: int, joining: int) -> None:
    # Several takers in turn must not get one half each.
    loads = dict.fromkeys(range(256), 1.0)
    current = initial(256, range(before))
    assert about_even(spread(current, dict.fromkeys(range(before + joining), 1.0), loads))


def test_bins_of_a_leaving_node_are_spread_by_load_in_each_half() -> None:
    loads = dict.fromkeys(range(256), 1.0)
    assert about_even(spread(initial(256, (0, 1, 2)), {0: 3.0, 1: 1.0}, loads))
    assert about_even(spread(initial(256, (0, 1, 2, 3)), {0: 1.0, 1: 1.0}, loads))


def test_a_leaving_node_keeps_nothing_and_only_it_gives() -> None:
    current = initial(12, (0, 1, 2))
    wanted = spread(current, {0: 1.0, 1: 1.0, 2: 1.0}, leaving={1})
    assert wanted.counts() == {0: 6, 2: 6}
    assert {one.source for one in changes(current, wanted)} == {1}
    assert spread(current, {0: 1.0, 2: 1.0}) == wanted


def test_a_balanced_map_is_left_alone() -> None:
    current = initial(10, (0, 1, 2))
    assert spread(current, dict.fromkeys((0, 1, 2), 4.0)) is current
    even = dict.fromkeys(range(10), 5.0)
    assert spread(initial(10, (0, 1)), {0: 1.0, 1: 1.0}, even) == initial(10, (0, 1))


def test_capacity_decides_the_share() -> None:
    assert spread(initial(12, (0, 1)), {0: 8.0, 1: 4.0}).counts() == {0: 8, 1: 4}
    assert spread(initial(12, (0, 1)), {0: 8.0, 1: 0.0}).counts() == {0: 12}
    loads = dict.fromkeys(range(12), 1.0)
    assert spread(initial(12, (0, 1)), {0: 8.0, 1: 0.0}, loads).counts() == {0: 12}
    assert spread(initial(12, (0, 1)), {0: 8.0, 1: 4.0}, loads).counts() == {0: 8, 1: 4}


def test_the_measured_load_decides_which_bins_go() -> None:
    # Node 0 has two hot bins: one of them is all that has to move.
    current = a_map(0, 0, 0, 0, 1, 1, 1, 1)
    wanted = spread(current, {0: 1.0, 1: 1.0}, {0: 100.0, 1: 100.0, 5: 2.0})
    assert changes(current, wanted) == (Change(bin=0, source=0, target=1),)


def test_loads_are_compared_however_small_they_are() -> None:
    nodes = {0: 1.0, 1: 1.0}
    assert spread(a_map(0, 0), nodes, {0: 5e-324, 1: 5e-324}).counts() == {0: 1, 1: 1}
    assert spread(a_map(0, 0), nodes, {0: 1e300, 1: 1e300}).counts() == {0: 1, 1: 1}


def test_one_hot_bin_alone_is_not_sent_to_and_fro() -> None:
    current = a_map(0, 1)
    assert spread(current, {0: 1.0, 1: 1.0}, {0: 1000.0, 1: 1.0}) is current


def test_a_node_that_joins_many_gets_load_though_none_is_far_above() -> None:
    ranks = tuple(range(20))
    current = initial(2000, ranks)
    loads = dict.fromkeys(range(2000), 1.0)
    wanted = spread(current, dict.fromkeys((*ranks, 20), 1.0), loads)
    assert 88 <= wanted.counts()[20] <= 96


def test_bins_without_measured_load_are_shared_out_as_well() -> None:
    current = initial(90, (0, 1, 2))
    loads = dict.fromkeys(range(60), 1.0)
    wanted = spread(current, {0: 1.0, 1: 1.0}, loads, leaving={2})
    assert wanted.counts() == {0: 45, 1: 45}
    assert spread(current, {0: 1.0, 1: 1.0}, {}, leaving={2}).counts() == {0: 45, 1: 45}
    assert spread(current, {0: 1.0, 1: 1.0}, {3: 0.0}, leaving={2}).counts() == {0: 45, 1: 45}


def test_somebody_must_stay() -> None:
    with pytest.raises(JobError, match="no node is left"):
        spread(a_map(0, 1), {0: 1.0, 1: 1.0}, leaving={0, 1})
    with pytest.raises(JobError, match="below zero"):
        spread(a_map(0, 1), {0: 1.0, 1: -1.0})
    assert spread(a_map(0, 1), {0: 0.0, 1: 0.0}) == a_map(0, 1)


def test_a_thousand_nodes_and_a_hundred_thousand_bins() -> None:
    current = initial(100_000, range(1000))
    nodes = dict.fromkeys(range(1001), 1.0)
    wanted = spread(current, nodes, leaving={7, 8})
    assert set(wanted.counts().values()) == {100, 101}
    loads = {bin: float(1 + bin % 7) for bin in range(100_000)}
    weighed = spread(current, nodes, loads, leaving={7, 8})
    per_node: dict[int, float] = {}
    for bin, owner in enumerate(weighed.owners):
        per_node[owner] = per_node.get(owner, 0.0) + loads[bin]
    assert set(per_node) == set(range(1001)) - {7, 8}
    mean = sum(per_node.values()) / len(per_node)
    assert max(per_node.values()) < 1.1 * mean
    assert min(per_node.values()) > 0.9 * mean


def test_bins_of_keys_in_turn_stay_even_over_many_rescales() -> None:
    """A thousand keys in 1,024 bins: every third bin has none, and no node may gather those."""
    draw = Random(3)
    loads = {bin: float(n) for bin, n in Counter(draw.randrange(1024) for _ in range(1000)).items()}
    bins = initial(1024, (0, 1))
    for nodes, leaving in (((0, 1, 2), ()), ((0, 1, 2), (2,)), ((0, 1, 3), ()), ((0, 1, 3, 4), ())):
        bins = spread(bins, dict.fromkeys(nodes, 1.0), loads, frozenset(leaving))
        staying = [rank for rank in nodes if rank not in leaving]
        counts = bins.counts()
        assert set(counts) == set(staying)
        assert max(counts.values()) < 1.15 * min(counts.values()), counts
