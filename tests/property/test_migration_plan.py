"""Any migration, by any strategy: complete, one owner always, and no more moves than needed."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from plait.migration.bins import BinMap, changes
from plait.migration.machine import (
    abort,
    begin,
    chunk_layouts,
    commit_chunk,
    finish_chunk,
    issue_chunk,
    next_chunk,
    pause,
    resume,
    throttle,
    withdraw_chunk,
)
from plait.migration.node_loss import assess_loss
from plait.migration.plan import STRATEGIES, Plan, Strategy, make_plan
from plait.migration.spread import spread
from plait.protocol.messages import Layout

RANKS = st.integers(0, 5)
MEMBERS = tuple(range(6))


@st.composite
def pairs_of_maps(draw: st.DrawFn) -> tuple[BinMap, BinMap]:
    bins = draw(st.integers(1, 40))
    owners = st.lists(RANKS, min_size=bins, max_size=bins).map(tuple)
    return BinMap(version=3, owners=draw(owners)), BinMap(version=4, owners=draw(owners))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    before, after = draw(pairs_of_maps())
    return make_plan(
        before,
        after,
        draw(st.sampled_from(STRATEGIES)),
        draw(st.dictionaries(st.integers(0, before.bins - 1), st.integers(0, 3_000_000))),
        draw(st.integers(0, 3)),
        step_bytes=draw(st.sampled_from([0, 1000, 1_000_000])),
        ahead_epochs=draw(st.integers(1, 20)),
        bandwidth_bytes_per_s=draw(st.sampled_from([1e6, 500e6])),
    )


def start(plan: Plan) -> Layout:
    return Layout(epoch=0, members=MEMBERS, owners=plan.before.owners, readers=(-1, 2))


@given(plans())
def test_a_plan_makes_every_move_once(plan: Plan) -> None:
    moves = [move for step in plan.steps for move in step.moves]
    assert all(step.moves for step in plan.steps)
    assert {(m.bin, m.source, m.target) for m in moves} == {
        (c.bin, c.source, c.target) for c in changes(plan.before, plan.after)
    }
    assert len(moves) == plan.bins == len(changes(plan.before, plan.after))
    assert plan.before.with_changes(moves).owners == plan.after.owners


@given(pairs_of_maps())
def test_batched_steps_are_as_few_as_can_be(maps: tuple[BinMap, BinMap]) -> None:
    plan = make_plan(*maps, "batched", {})
    for step in plan.steps:
        assert max(Counter(move.source for move in step.moves).values()) == 1
        assert max(Counter(move.target for move in step.moves).values()) == 1
    moves = changes(*maps)
    sent, received = Counter(m.source for m in moves), Counter(m.target for m in moves)
    assert len(plan.steps) == max((*sent.values(), *received.values()), default=0)


@given(pairs_of_maps(), st.sampled_from(("fluid", "optimised")), st.integers(1, 2_000_000))
def test_fluid_steps_keep_to_their_bytes(
    maps: tuple[BinMap, BinMap], strategy: Strategy, step_bytes: int
) -> None:
    sizes = {bin: bin * 50_000 for bin in range(maps[0].bins)}
    plan = make_plan(*maps, strategy, sizes, step_bytes=step_bytes)
    assert all(len(step.moves) == 1 or step.size_bytes <= step_bytes for step in plan.steps)
    single = make_plan(*maps, strategy, sizes, step_bytes=0)
    assert all(len(step.moves) == 1 for step in single.steps)


@given(plans(), st.floats(0, 100_000), st.floats(0.001, 1), st.integers(1, 50))
def test_layouts_lead_to_the_target_with_one_owner_at_all_times(
    plan: Plan, rate_per_s: float, chunk_s: float, margin: int
) -> None:
    migration, base = begin(plan, 0.0), start(plan)
    history = [base]
    while (chunk := next_chunk(migration, rate_per_s, chunk_s)) is not None:
        migration = issue_chunk(migration, chunk)
        found = chunk_layouts(migration, chunk, base, base.epoch + margin)
        assert found[0].epoch == base.epoch + margin
        base = found[-1]
        assert base.copies == ()
        history += found
        migration = finish_chunk(commit_chunk(migration, base.epoch), 1.0)
        assert migration.owners.owners == base.owners
    assert migration.phase == "done"
    assert base.owners == plan.after.owners
    copied: dict[int, tuple[int, int]] = {}
    for old, new in pairwise(history):
        assert new.epoch > old.epoch
        assert (new.members, new.readers) == (old.members, old.readers)
        assert len(new.owners) == len(old.owners)
        assert set(new.owners) <= set(new.members)
        for bin, target in new.copies:
            assert new.owners[bin] != target
            copied.setdefault(bin, (new.epoch, target))
        for bin, (was, now) in enumerate(zip(old.owners, new.owners, strict=True)):
            if was != now and plan.strategy == "optimised":
                began, target = copied.pop(bin)
                assert target == now
                assert new.epoch - began >= plan.ahead_epochs
                assert (bin, now) in old.copies
    assert not copied
    if plan.strategy != "optimised":
        assert not any(layout.copies for layout in history)


@given(plans(), st.lists(st.tuples(st.sampled_from("cidwparst"), RANKS), max_size=40))
def test_whatever_happens_ownership_is_known(plan: Plan, happenings: list[tuple[str, int]]) -> None:
    """Chunks, pauses, aborts, losses in any order. A node whose loss is survived owns nothing."""
    migration, base, alive = begin(plan, 0.0), start(plan), set(MEMBERS)
    for at, (what, rank) in enumerate(happenings):
        chunk = migration.chunk
        match what:
            case "i" if (new := next_chunk(migration, 1000.0, 0.01)) is not None:
                migration = issue_chunk(migration, new)
            case "c" if chunk is not None and not chunk.committed:
                base = chunk_layouts(migration, chunk, base, base.epoch + 1)[-1]
                migration = commit_chunk(migration, base.epoch)
            case "d" if chunk is not None and chunk.committed:
                migration = finish_chunk(migration, float(at))
            case "w" if chunk is not None and not chunk.committed:
                migration = withdraw_chunk(migration, float(at))
            case "p":
                migration = pause(migration)
            case "r":
                migration = resume(migration)
            case "a":
                migration = abort(migration, "by request", float(at))
            case "t":
                migration = throttle(migration, None if rank == 0 else rank * 1e6)
            case "s":
                loss = assess_loss(migration, rank, float(at))
                if loss.outcome == "fatal":
                    assert rank in (*base.owners, *migration.owners.owners)
                    return
                migration = loss.migration
                assert not (loss.lift and migration.chunk)
                alive.discard(rank)
        assert set(base.owners) <= alive
        if migration.chunk is None:
            assert migration.owners.owners == base.owners
        if migration.over:
            assert migration.chunk is None
            assert next_chunk(migration, 1000.0) is None


@st.composite
def situations(draw: st.DrawFn) -> tuple[BinMap, dict[int, float], set[int]]:
    owners = draw(st.lists(RANKS, min_size=1, max_size=30).map(tuple))
    staying = draw(st.sets(RANKS, min_size=1))
    nodes = {rank: float(draw(st.integers(1, 4))) for rank in sorted(staying)}
    leaving = draw(st.sets(RANKS.filter(lambda rank: rank not in staying)))
    return BinMap(version=0, owners=owners), nodes, leaving


LOADS = st.dictionaries(st.integers(0, 29), st.integers(0, 1000).map(float), max_size=30)


def fewest_moves(current: BinMap, nodes: dict[int, float]) -> int:
    """By trying every way to round the shares."""
    have, total = Counter(current.owners), sum(nodes.values())
    down = {rank: int(current.bins * capacity // total) for rank, capacity in nodes.items()}
    fractional = [rank for rank in nodes if current.bins * nodes[rank] % total]
    extra = current.bins - sum(down.values())
    return min(
        current.bins - sum(min(have[rank], down[rank] + (rank in up)) for rank in nodes)
        for up in combinations(fractional, extra)
    )


@given(situations())
def test_unweighted_bins_are_spread_with_the_fewest_moves(
    situation: tuple[BinMap, dict[int, float], set[int]],
) -> None:
    current, nodes, leaving = situation
    wanted = spread(current, nodes, None, leaving)
    counts, total = Counter(wanted.owners), sum(nodes.values())
    assert set(counts) <= set(nodes)
    for rank, capacity in nodes.items():
        assert abs(counts[rank] - current.bins * capacity / total) < 1
    assert len(changes(current, wanted)) == fewest_moves(current, nodes)
    assert spread(current, nodes, None, leaving) == wanted
    assert spread(wanted, nodes, None, leaving) is wanted


@given(situations(), LOADS)
def test_weighted_bins_leave_only_nodes_that_have_too_much(
    situation: tuple[BinMap, dict[int, float], set[int]], loads: dict[int, float]
) -> None:
    current, nodes, leaving = situation
    loads = {bin: load for bin, load in loads.items() if bin < current.bins}
    wanted = spread(current, nodes, loads, leaving)
    assert set(wanted.owners) <= set(nodes)
    assert spread(current, dict(reversed(nodes.items())), loads, leaving) == wanted
    if sum(loads.values()) <= 0:
        return
    weights = [loads.get(bin, 0.0) for bin in range(current.bins)]
    total, capacity = sum(weights), sum(nodes.values())

    def ratios(owners: tuple[int, ...]) -> dict[int, float]:
        sums = dict.fromkeys(nodes, 0.0)
        for bin, owner in enumerate(owners):
            if owner in sums:
                sums[owner] += weights[bin]
        return {rank: sums[rank] / (total * nodes[rank] / capacity) for rank in nodes}

    before = ratios(current.owners)
    stays = set(current.owners) <= set(nodes)
    if stays:
        # Or they have too much by what they were given.
        moves = [one for one in changes(current, wanted) if weights[one.bin] > 0.0]
        filled = {one.target for one in moves}
        assert all(before[one.source] > 1 or one.source in filled for one in moves)
        # The worst node is never worse off.
        assert max(ratios(wanted.owners).values()) <= max(before.values()) + 1e-9
    # Bins without load are spread by their number, whoever has the load.
    idle = Counter(owner for bin, owner in enumerate(wanted.owners) if weights[bin] == 0.0)
    for rank in nodes:
        assert abs(idle[rank] - idle.total() * nodes[rank] / capacity) < 1
