"""Plans in steps, and steps as layouts."""

from __future__ import annotations

import pickle
import random

import pytest

from plait.errors import InternalError, JobError
from plait.migration.bins import BinMap, initial
from plait.migration.chunks import epochs_per_step, layouts
from plait.migration.expectations import expectations, receivers
from plait.migration.plan import (
    STEP_BINS,
    STRATEGIES,
    Plan,
    Strategy,
    make_plan,
)
from plait.migration.spread import spread
from plait.protocol.bin_maps import Copies, Owners, changes_between
from plait.protocol.messages import Commit, Expect, Layout

MB = 1_000_000


def joining() -> tuple[BinMap, BinMap]:
    """Two nodes with four bins each give the last two to one new node each."""
    current = BinMap(version=0, owners=(0, 0, 0, 0, 1, 1, 1, 1))
    return current, BinMap(version=1, owners=(0, 0, 2, 2, 1, 1, 3, 3))


def bins_of(plan: Plan) -> list[list[int]]:
    return [[move.bin for move in step.moves] for step in plan.steps]


def base(owners: tuple[int, ...], epoch: int = 10) -> Layout:
    return Layout(epoch=epoch, members=(0, 1, 2, 3), owners=owners, readers=(-1,))


def test_all_at_once_is_one_step() -> None:
    current, wanted = joining()
    plan = make_plan(current, wanted, "all_at_once", {})
    assert bins_of(plan) == [[2, 3, 6, 7]]


def test_fluid_moves_bin_after_bin() -> None:
    current, wanted = joining()
    tiny = dict.fromkeys(range(8), 10)
    assert bins_of(make_plan(current, wanted, "fluid", tiny, step_bytes=0)) == [[2], [3], [6], [7]]
    assert bins_of(make_plan(current, wanted, "fluid", tiny)) == [[2, 3, 6, 7]]
    assert bins_of(make_plan(current, wanted, "fluid", tiny, step_bytes=20)) == [[2, 3], [6, 7]]


def test_a_large_bin_and_one_of_unknown_size_are_steps_of_their_own() -> None:
    current, wanted = joining()
    sizes = {2: 10, 3: 5 * MB, 6: 10, 7: 10}
    assert bins_of(make_plan(current, wanted, "fluid", sizes)) == [[2], [3], [6, 7]]
    assert bins_of(make_plan(current, wanted, "fluid", {2: 10, 7: 10})) == [[2], [3], [6], [7]]


def test_empty_bins_are_not_all_moved_at_once() -> None:
    current = initial(512, (0, 1))
    wanted = BinMap(version=1, owners=(0,) * 512)
    plan = make_plan(current, wanted, "fluid", dict.fromkeys(range(512), 0))
    assert [len(step.moves) for step in plan.steps] == [STEP_BINS] * 4


def test_batched_uses_every_node_once_a_step() -> None:
    current, wanted = joining()
    plan = make_plan(current, wanted, "batched", {})
    assert len(plan.steps) == 2
    for step in plan.steps:
        assert {move.source for move in step.moves} == {0, 1}
        assert {move.target for move in step.moves} == {2, 3}


def test_a_large_batched_plan_has_as_many_steps_as_its_busiest_node_has_bins() -> None:
    current = initial(65_536, (0,))
    wanted = spread(current, {0: 1.0, 1: 1.0})
    assert len(make_plan(current, wanted, "batched", {}).steps) == 32_768
    many = initial(20_000, range(200))
    fewer = spread(many, dict.fromkeys(range(200), 1.0), leaving=set(range(100)))
    assert len(make_plan(many, fewer, "batched", {}).steps) == 100


def test_the_totals_of_a_plan() -> None:
    current, wanted = joining()
    sizes = dict.fromkeys(range(8), 2 * MB)
    plan = make_plan(current, wanted, "batched", sizes, 3, bandwidth_bytes_per_s=100 * MB)
    assert (plan.bins, plan.size_bytes, len(plan.steps)) == (4, 8 * MB, 2)
    # Two nodes send side by side.
    assert plan.expected_s == pytest.approx(0.04)
    assert str(plan) == (
        "batched: 4 bins, 8.00 MB, 2 steps, about 40 ms, 3 epochs between steps\n"
        "  from    to      bins    bytes\n"
        "  node 0  node 2     2  4.00 MB\n"
        "  node 1  node 3     2  4.00 MB"
    )


def test_a_plan_of_many_nodes_is_not_printed_whole() -> None:
    current = initial(100, range(50))
    plan = make_plan(current, BinMap(version=1, owners=(0,) * 100), "all_at_once", {})
    assert str(plan).endswith("... 29 more pairs of nodes")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_to_move_is_a_plan_without_steps(strategy: Strategy) -> None:
    current = initial(4, (0, 1))
    plan = make_plan(current, current, strategy, {})
    assert plan.steps == ()
    assert str(plan) == f"{strategy}: nothing to move"


def test_settings_that_make_no_sense_are_refused() -> None:
    current, wanted = joining()
    with pytest.raises(JobError, match="gap_epochs=-1"):
        make_plan(current, wanted, "fluid", {}, -1)
    with pytest.raises(JobError, match="step_bytes=-5"):
        make_plan(current, wanted, "fluid", {}, step_bytes=-5)
    with pytest.raises(JobError, match="ahead_epochs=0"):
        make_plan(current, wanted, "optimised", {}, ahead_epochs=0)


def test_steps_are_paced_by_bytes() -> None:
    # A thousand epochs a second with 256 KB each would be 256 MB/s.
    assert epochs_per_step(256_000, 1000, 500e6) == 1
    assert epochs_per_step(256_000, 10_000, 500e6) == 6
    assert epochs_per_step(256_000, 10_000, 500e6, 50e6) == 52
    assert epochs_per_step(256_000, 10_000, 500e6, 900e6) == 6
    assert epochs_per_step(0, 10_000, 500e6) == 1


def test_the_layouts_of_a_chunk() -> None:
    current, wanted = joining()
    plan = make_plan(current, wanted, "fluid", {}, step_bytes=0)
    found = layouts(plan, 1, 2, base((0, 0, 2, 0, 1, 1, 1, 1)), 20, 5)
    assert [(one.epoch, one.owners) for one in found] == [
        (20, (0, 0, 2, 2, 1, 1, 1, 1)),
        (25, (0, 0, 2, 2, 1, 1, 3, 1)),
    ]
    assert all(one.readers == (-1,) and one.copies == () for one in found)


def test_an_optimised_chunk_copies_before_it_switches() -> None:
    current, wanted = joining()
    plan = make_plan(current, wanted, "optimised", {}, step_bytes=0, ahead_epochs=4)
    found = layouts(plan, 0, 3, base(current.owners), 20, (3, 1, 9))
    assert [(one.epoch, one.copies) for one in found] == [
        (20, ((2, 2),)),
        (23, ((2, 2), (3, 2))),
        (24, ((3, 2), (6, 3))),
        (27, ((6, 3),)),
        (28, ()),
    ]
    assert [one.owners for one in found[1:]] == [
        (0, 0, 0, 0, 1, 1, 1, 1),
        (0, 0, 2, 0, 1, 1, 1, 1),
        (0, 0, 2, 2, 1, 1, 1, 1),
        (0, 0, 2, 2, 1, 1, 3, 1),
    ]
    assert layouts(plan, 0, 1, base(current.owners), 20, 1, 7)[-1].epoch == 27


def test_layouts_that_would_break_ownership_are_not_made() -> None:
    current, wanted = joining()
    plan = make_plan(current, wanted, "fluid", {})
    with pytest.raises(InternalError, match="bin 2 cannot go from node 0"):
        layouts(plan, 0, 1, base((1,) * 8), 20, 1)
    two = Layout(epoch=1, members=(0, 1), owners=current.owners, readers=())
    with pytest.raises(InternalError, match=r"members \(0, 1\)"):
        layouts(plan, 0, 1, two, 20, 1)
    with pytest.raises(InternalError, match="at epoch 10"):
        layouts(plan, 0, 1, base(current.owners), 10, 1)
    with pytest.raises(InternalError, match="no layouts"):
        layouts(plan, 4, 1, base(current.owners), 20, 1)
    with pytest.raises(InternalError, match="paced"):
        layouts(plan, 0, 2, base(current.owners), 20, (1,))


def test_every_node_with_a_part_hears_of_its_own_moves() -> None:
    current, wanted = joining()
    plan = make_plan(current, wanted, "fluid", {}, step_bytes=0)
    told = expectations(plan, 7)
    assert told == {
        0: Expect(number=7, bins=(2, 3), sources=(0, 0), targets=(2, 2)),
        1: Expect(number=7, bins=(6, 7), sources=(1, 1), targets=(3, 3)),
        2: Expect(number=7, bins=(2, 3), sources=(0, 0), targets=(2, 2)),
        3: Expect(number=7, bins=(6, 7), sources=(1, 1), targets=(3, 3)),
    }
    assert receivers(plan) == {2, 3}
    assert expectations(make_plan(current, current, "fluid", {}), 1) == {}


def test_a_commit_travels_as_what_changes_and_arrives_as_it_was() -> None:
    current = initial(1 << 12, (0, 1, 2, 3))
    wanted = BinMap(version=1, owners=tuple(0 if o == 1 else o for o in current.owners))
    for strategy in STRATEGIES:
        plan = make_plan(current, wanted, strategy, dict.fromkeys(range(1 << 12), MB))
        chunk = layouts(plan, 0, 64, base(current.owners), 20, 2)
        for command in (
            Commit(round=3, layouts=chunk),
            Commit(round=3, layouts=(*chunk, base(wanted.owners, 999), base(current.owners, 1000))),
            Commit(round=4, stop_at=7),
        ):
            there = pickle.loads(pickle.dumps(command))
            assert there == command
            assert pickle.loads(pickle.dumps(there)) == command
        assert len(pickle.dumps(Commit(round=3, layouts=chunk))) < 40_000


def test_owners_are_known_by_what_changed_only_beside_those_they_were_made_from() -> None:
    first = Owners((0, 0, 1))
    second = first.changed(((0, 1), (2, 0)))
    assert second == (1, 0, 0)
    assert changes_between(first, second) == ((0, 1), (2, 0))
    assert changes_between(second, second) == ()
    assert changes_between(Owners(first), second) is None, "equal, but not the same"
    assert changes_between((0, 0, 1), second) is None
    assert changes_between(second, first) is None
    assert changes_between(first, (0, 0, 1)) is None


def test_owners_of_a_long_chain() -> None:
    """Each is what the changes up to it say, in whatever order they are looked at."""
    count, bins = 3000, 16
    chain = [Owners([0] * bins)]
    for n in range(1, count):
        chain.append(chain[-1].changed([(n * 7 % bins, n)]))
    wanted = [0] * bins
    right = [tuple(wanted)]
    for n in range(1, count):
        wanted[n * 7 % bins] = n
        right.append(tuple(wanted))
    for n in random.Random(3).sample(range(count), count):
        assert chain[n] == right[n]
        assert tuple(chain[n]) == right[n]
        assert chain[n][-1] == right[n][-1]
        assert (len(chain[n]), hash(chain[n])) == (bins, hash(right[n]))
        assert pickle.loads(pickle.dumps(chain[n])) == right[n]


def test_copies_of_a_long_chain() -> None:
    chain, right = [Copies()], [dict[int, int]()]
    draw = random.Random(4)
    for _ in range(500):
        changes = [(draw.randrange(20), draw.choice((None, 0, 1, 2))) for _ in range(3)]
        chain.append(chain[-1].changed(changes))
        copies = dict(right[-1])
        for bin, target in changes:
            copies.pop(bin, None)
            if target is not None:
                copies[bin] = target
        right.append(copies)
    for n in draw.sample(range(len(chain)), len(chain)):
        assert chain[n] == tuple(sorted(right[n].items()))
