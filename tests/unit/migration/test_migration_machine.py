"""The run of a migration: chunks, pause, abort, throttle, lost nodes."""

from __future__ import annotations

import pytest

from plait.errors import InternalError, JobError
from plait.migration.bins import BinMap, initial
from plait.migration.machine import (
    CHUNK_STEPS,
    Migration,
    abort,
    begin,
    chunk_layouts,
    commit_chunk,
    finish_chunk,
    issue_chunk,
    next_chunk,
    pause,
    progress,
    resume,
    throttle,
    withdraw_chunk,
)
from plait.migration.node_loss import assess_loss
from plait.migration.plan import Strategy, make_plan
from plait.migration.spread import spread
from plait.protocol.messages import Layout

MB = 1_000_000
CURRENT = BinMap(version=0, owners=(0,) * 8 + (1,) * 8)
WANTED = BinMap(version=1, owners=(0,) * 4 + (2,) * 4 + (1,) * 4 + (3,) * 4)


def a_migration(
    strategy: Strategy = "fluid", size_bytes: int = 5 * MB, gap_epochs: int = 0
) -> Migration:
    """Eight bins of 5 MB move to nodes 2 and 3, a step each: 10 ms each at 500 MB/s."""
    sizes = dict.fromkeys(range(16), size_bytes)
    return begin(make_plan(CURRENT, WANTED, strategy, sizes, gap_epochs), 100.0)


def issued(migration: Migration, chunk_s: float = 0.02) -> Migration:
    chunk = next_chunk(migration, 1000.0, chunk_s)
    assert chunk is not None
    return issue_chunk(migration, chunk)


def committed(migration: Migration) -> Migration:
    return commit_chunk(issued(migration), 50)


def made(migration: Migration, chunks: int) -> Migration:
    for _ in range(chunks):
        migration = finish_chunk(committed(migration), 101.0)
    return migration


def test_a_chunk_holds_so_many_milliseconds_of_steps() -> None:
    fresh = a_migration()
    chunk = next_chunk(fresh, 1000.0, 0.04)
    assert chunk is not None
    assert chunk.epochs == (10, 10, 10, 10)
    slower = next_chunk(throttle(fresh, 250e6), 1000.0, 0.04)
    assert slower is not None
    assert slower.epochs == (20, 20)
    apart = next_chunk(a_migration(gap_epochs=5), 1000.0, 0.04)
    assert apart is not None
    assert apart.epochs == (15, 15)


def test_a_step_that_is_longer_than_a_chunk_is_made_all_the_same() -> None:
    chunk = next_chunk(a_migration("all_at_once"), 1000.0, 0.001)
    assert chunk is not None
    assert (chunk.start_step, chunk.steps) == (0, 1)
    idle = next_chunk(a_migration(), 0.0)
    assert idle is not None
    assert idle.epochs == (1,)


def test_a_chunk_is_one_message_of_bounded_size() -> None:
    current = initial(4096, (0,))
    plan = make_plan(current, spread(current, {0: 1.0, 1: 1.0}), "batched", {})
    chunk = next_chunk(begin(plan, 0.0), 1e6)
    assert chunk is not None
    assert chunk.steps == CHUNK_STEPS


def test_copies_are_given_time() -> None:
    chunk = next_chunk(a_migration("optimised"), 1000.0, 0.02)
    assert chunk is not None
    assert chunk.ahead_epochs == 20
    quick = next_chunk(a_migration("optimised", size_bytes=1), 100_000.0)
    assert quick is not None
    assert quick.ahead_epochs == 2000


def test_it_runs_to_its_end() -> None:
    migration = a_migration()
    base = Layout(epoch=0, members=(0, 1, 2, 3), owners=CURRENT.owners, readers=(-1,))
    rounds = 0
    while (chunk := next_chunk(migration, 1000.0, 0.03)) is not None:
        migration = issue_chunk(migration, chunk)
        assert next_chunk(migration, 1000.0) is None
        *_, base = chunk_layouts(migration, chunk, base, base.epoch + 7)
        migration = commit_chunk(migration, base.epoch)
        assert next_chunk(migration, 1000.0) is None
        migration = finish_chunk(migration, 100.5)
        assert migration.owners.owners == base.owners
        rounds += 1
    assert rounds == 3
    assert migration.phase == "done"
    assert migration.complete
    assert migration.owners.owners == migration.plan.after.owners
    assert str(progress(migration, 999.0)) == (
        "done: 100%, 8 of 8 bins, 40.0 MB of 40.0 MB, step 8 of 8, 500 ms"
    )


def test_progress_counts_what_is_done() -> None:
    now = progress(made(a_migration(), 1), 101.5)
    assert (now.bins, now.size_bytes, now.steps, now.done_ratio) == (2, 10 * MB, 2, 0.25)
    assert now.elapsed_s == 1.5
    assert progress(made(a_migration(size_bytes=0, gap_epochs=20), 1), 102.0).done_ratio == 1.0


def test_nothing_to_move_is_done_at_once() -> None:
    migration = begin(make_plan(CURRENT, CURRENT, "fluid", {}), 5.0)
    assert migration.phase == "done"
    assert next_chunk(migration, 1000.0) is None
    assert progress(migration, 6.0).done_ratio == 1.0


def test_a_pause_lets_the_chunk_under_way_finish() -> None:
    paused = pause(committed(a_migration()))
    assert paused.phase == "paused"
    paused = finish_chunk(paused, 101.0)
    assert paused.moved_bins == 2
    assert next_chunk(paused, 1000.0) is None
    again = resume(paused)
    assert pause(paused) == paused
    chunk = next_chunk(again, 1000.0)
    assert chunk is not None
    assert chunk.start_step == 2


def test_abort_keeps_what_has_moved() -> None:
    half = abort(made(a_migration(), 2), "by request", 102.0)
    assert half.phase == "done"
    assert not half.complete
    assert half.owners.counts() == {0: 4, 1: 8, 2: 4}
    assert half.reason == "by request"
    assert next_chunk(half, 1000.0) is None
    assert resume(half) == half == abort(half, "again", 103.0) == pause(half)


def test_abort_waits_for_the_chunk_under_way() -> None:
    ending = abort(committed(a_migration()), "by request", 101.0)
    assert ending.phase == "aborting"
    assert next_chunk(ending, 1000.0) is None
    ended = finish_chunk(ending, 102.0)
    assert (ended.phase, ended.moved_bins, ended.ended_at) == ("done", 2, 102.0)


def test_a_round_that_did_not_come_about_is_tried_again() -> None:
    back = withdraw_chunk(issued(a_migration()), 101.0)
    assert back == a_migration()
    ended = withdraw_chunk(abort(issued(a_migration()), "by request", 101.0), 102.0)
    assert (ended.phase, ended.moved_bins) == ("done", 0)


def test_steps_out_of_turn_are_our_bug() -> None:
    fresh = a_migration()
    chunk = next_chunk(fresh, 1000.0)
    assert chunk is not None
    with pytest.raises(InternalError):
        issue_chunk(issued(fresh), chunk)
    with pytest.raises(InternalError):
        issue_chunk(made(fresh, 1), chunk)
    with pytest.raises(InternalError):
        finish_chunk(issued(fresh), 101.0)
    with pytest.raises(InternalError):
        withdraw_chunk(committed(fresh), 101.0)
    with pytest.raises(InternalError):
        commit_chunk(fresh, 50)
    with pytest.raises(JobError, match="above zero"):
        throttle(fresh, 0.0)


def test_a_target_lost_before_it_has_anything_falls_back_to_the_sources() -> None:
    loss = assess_loss(a_migration(), 2, 101.0)
    assert loss.outcome == "fallback"
    assert not loss.lift
    assert loss.migration.phase == "done"
    assert loss.migration.owners == CURRENT
    assert loss.reason == (
        "node 2 was lost before it took over 4 bins (4, 5, 6, 7): they stay with their owners"
    )


def test_a_target_lost_during_the_promises_lifts_the_round() -> None:
    loss = assess_loss(issued(a_migration()), 2, 101.0)
    assert loss.outcome == "fallback"
    assert loss.lift
    assert (loss.migration.phase, loss.migration.chunk) == ("done", None)
    assert loss.migration.owners == CURRENT


def test_a_later_target_lost_lets_the_committed_chunk_finish() -> None:
    loss = assess_loss(committed(a_migration()), 3, 101.0)
    assert loss.outcome == "fallback"
    assert not loss.lift
    assert loss.migration.phase == "aborting"
    ended = finish_chunk(loss.migration, 102.0)
    assert (ended.phase, ended.owners.counts()) == ("done", {0: 6, 1: 8, 2: 2})


def test_a_target_with_a_committed_bin_takes_state_with_it() -> None:
    loss = assess_loss(committed(a_migration()), 2, 101.0)
    assert loss.outcome == "fatal"
    assert loss.migration.phase == "failed"
    assert loss.reason == (
        "node 2 was lost with the state of 2 bins (4, 5), "
        "and there is no checkpoint to restore it from"
    )


@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_a_lost_owner_takes_state_with_it(chunks: int) -> None:
    loss = assess_loss(made(a_migration(), chunks), 1, 101.0)
    assert loss.outcome == "fatal"
    assert "node 1 was lost with the state of" in loss.reason
    assert resume(loss.migration) == loss.migration


def test_a_source_that_has_given_everything_away_may_go() -> None:
    wanted = spread(CURRENT, {0: 1.0}, leaving={1})
    plan = make_plan(CURRENT, wanted, "all_at_once", {})
    assert assess_loss(committed(begin(plan, 0.0)), 1, 1.0).outcome == "fatal"
    after = made(begin(plan, 0.0), 1)
    assert assess_loss(after, 1, 1.0).outcome == "untouched"


def test_the_loss_of_a_node_without_a_part_changes_nothing() -> None:
    running = committed(a_migration())
    loss = assess_loss(running, 9, 101.0)
    assert loss.outcome == "untouched"
    assert loss.migration is running
    ended = abort(a_migration(), "by request", 100.0)
    assert assess_loss(ended, 2, 101.0).outcome == "untouched"
