"""Runs with checkpoints on a store that fails: what is given up, what is settled, what is said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.checkpoints.job_folder import JobFolder
from plait.checkpoints.store import open_store
from plait.testing import Feed
from plait.testing.crashes import Durable, abandon
from tests.unit.checkpoints.stores import FlakyStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from plait.execution.checkpointing import Checkpointing
    from plait.execution.local_run import LocalRun


def job_of(feed: Feed, sink: Any) -> plait.Job:
    job = plait.Job("clicks")
    job.source(feed, name="feed").key_by("k").count().sink(sink, "counts")
    return job


def push(running: LocalRun, feed: Feed, *keys: int) -> None:
    """The rows are read; a push each, so that a run that goes on finds its position."""
    wanted = running.engine.records_read() + len(keys)
    for key in keys:
        feed.push([(key,)])
    while running.engine.records_read() < wanted:
        running.engine.wait(0.001)


def saved_of(running: LocalRun) -> Checkpointing:
    assert running.saved is not None
    return running.saved


def flaky(running: LocalRun) -> FlakyStore:
    folder = saved_of(running).folder
    store = folder.store
    if not isinstance(store, FlakyStore):
        store = folder.store = FlakyStore(store)
    return store


def config(tmp_path: Path, **more: Any) -> plait.Checkpoint:
    return plait.Checkpoint(str(tmp_path / "ckpt"), every="1h", **more)


def feed_of(*keys: int) -> Feed:
    feed = Feed({"k": int})
    for key in keys:
        feed.push([(key,)])
    return feed


def run_to_end(tmp_path: Path, sink: Any, keys: Iterable[int]) -> plait.Result:
    feed = feed_of(*keys)
    feed.close()
    return plait.run(job_of(feed, sink), checkpoint=config(tmp_path))


def rows_of(sink: Durable) -> list[tuple[int, int]]:
    rows = [row for batch in sink.batches for row in batch.to_pylist()]
    return [(row["k"], row["count"]) for row in rows]


KEYS = [1, 1, 7, 1, 7]
RIGHT = [(1, 1), (1, 2), (7, 1), (1, 3), (7, 2)]


def test_a_mark_at_the_same_boundary_is_no_new_checkpoint(tmp_path: Path) -> None:
    feed = feed_of()
    running = plait.start(job_of(feed, Durable()), checkpoint=config(tmp_path))
    push(running, feed, 1, 1)
    saved = saved_of(running)
    found = [saved.take() for _ in range(50)]
    push(running, feed, 7)
    found += [saved.take() for _ in range(50)]
    sealed = {manifest.number: manifest for manifest in found if manifest is not None}
    epochs = [sealed[number].epoch for number in sorted(sealed)]
    assert epochs == sorted(set(epochs))
    assert len(epochs) < len(found)
    assert saved.stats.taken == len(epochs)
    assert all(sum(map(sum, each.counts.values())) for each in sealed.values())
    named = saved.take("a")
    assert named is not None
    assert named.number == max(sealed) + 1
    assert named.counts == sealed[max(sealed)].counts
    feed.close()
    assert running.wait().account.read == 3


@pytest.mark.parametrize("kind", ["follower", "decider"])
@pytest.mark.parametrize("after", [True, False])
def test_a_seal_with_an_unknown_outcome_is_settled(tmp_path: Path, kind: Any, after: bool) -> None:
    """It failed, and the manifest may be there: the next checkpoint follows what is there."""
    sink = Durable("counts", kind)
    feed = feed_of()
    running = plait.start(job_of(feed, sink), checkpoint=config(tmp_path))
    saved = saved_of(running)
    push(running, feed, 1, 1)
    assert saved.take() is not None
    push(running, feed, 7)
    flaky(running).fail("create", "manifests/", after=after)
    saved.try_to_take()
    assert "fails" in saved.stats.error
    assert saved.failure is None
    flaky(running).heal()
    assert rows_of(sink) == RIGHT[:2]
    push(running, feed, 1)
    third = saved.take()
    assert third is not None
    assert third.parent is not None
    assert third.parent.number == (2 if after else 1)
    assert rows_of(sink) == RIGHT[:4]
    abandon(running)
    run_to_end(tmp_path, sink, KEYS)
    assert rows_of(sink) == RIGHT


def test_a_crash_between_an_unknown_seal_and_the_commit_of_the_next(tmp_path: Path) -> None:
    """The decider is two checkpoints behind the newest one."""
    sink = Durable("counts", "decider")
    feed = feed_of()
    running = plait.start(job_of(feed, sink), checkpoint=config(tmp_path))
    saved = saved_of(running)
    push(running, feed, 1, 1)
    saved.take()
    push(running, feed, 7)
    flaky(running).fail("create", "manifests/", after=True)
    saved.try_to_take()
    flaky(running).heal()
    push(running, feed, 1)
    writer = saved.saver.ends.writers[next(iter(saved.saver.ends.writers))]
    writer.commit = refuse  # type: ignore[method-assign]
    saved.try_to_take()
    assert "could not make its output visible" in str(saved.failure)
    abandon(running)
    del writer.commit
    assert rows_of(sink) == RIGHT[:2]
    run_to_end(tmp_path, sink, KEYS)
    assert rows_of(sink) == RIGHT


def refuse(boundary: int, notes: bytes = b"") -> None:
    raise OSError("the database is away")


@pytest.mark.parametrize("verb", ["write", "create", "list"])
def test_a_store_that_is_away_for_a_while(tmp_path: Path, verb: str) -> None:
    """Checkpoints are given up meanwhile, the job runs on, and nothing is lost or comes twice."""
    sink = Durable("counts", "decider")
    feed = feed_of()
    running = plait.start(job_of(feed, sink), checkpoint=config(tmp_path))
    saved = saved_of(running)
    flaky(running).fail(verb)
    for key in KEYS[:3]:
        push(running, feed, key)
        saved.try_to_take()
    assert (saved.stats.taken, saved.stats.failed) == (0, 3)
    assert rows_of(sink) == []
    flaky(running).heal()
    push(running, feed, KEYS[3])
    saved.try_to_take()
    assert (saved.stats.taken, rows_of(sink)) == (1, RIGHT[:4])
    flaky(running).fail(verb)
    push(running, feed, KEYS[4])
    saved.try_to_take()
    abandon(running)
    run_to_end(tmp_path, sink, KEYS)
    assert rows_of(sink) == RIGHT


def test_a_store_that_is_away_when_the_job_ends(tmp_path: Path) -> None:
    """The last checkpoint is tried again: all else is done."""
    sink = Durable("counts")
    feed = feed_of(*KEYS)
    saved = plait.Checkpoint(str(tmp_path / "ckpt"), every="10ms", max_age="1h")
    running = plait.start(job_of(feed, sink), checkpoint=saved)
    flaky(running).fail("write", times=30)
    feed.close()
    assert running.wait().account.read == 5
    assert rows_of(sink) == RIGHT
    assert saved_of(running).stats.failed >= 1


def test_a_store_that_stays_away_ends_the_run_after_max_age(tmp_path: Path) -> None:
    sink = Durable("counts")
    saved = plait.Checkpoint(str(tmp_path / "ckpt"), every="10ms", max_age="50ms")
    feed = feed_of(*KEYS)
    running = plait.start(job_of(feed, sink), checkpoint=saved)
    flaky(running).fail("write")
    with pytest.raises(
        plait.CheckpointError, match=r"(?s)no checkpoint for .* goes on from checkpoint 0"
    ):
        running.wait()
    run_to_end(tmp_path, sink, KEYS)
    assert rows_of(sink) == RIGHT


def test_a_store_that_stays_away_when_the_job_ends(tmp_path: Path) -> None:
    sink = Durable("counts")
    saved = plait.Checkpoint(str(tmp_path / "ckpt"), every="1h", max_age="1h")
    feed = feed_of(*KEYS)
    running = plait.start(job_of(feed, sink), checkpoint=saved)
    saved_of(running).safe_at -= 3601.0
    flaky(running).fail("write")
    feed.close()
    with pytest.raises(plait.CheckpointError, match="max_age is 3600 s"):
        running.wait()
    assert rows_of(sink) == []
    run_to_end(tmp_path, sink, KEYS)
    assert rows_of(sink) == RIGHT


@pytest.mark.parametrize("jump_s", [-3600.0, 1e9])
def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """The newest is the one with the highest number, whatever the clock said then; and nothing is
    too old because the clock says so."""
    now = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    sink = Durable("counts")
    feed = feed_of()
    running = plait.start(job_of(feed, sink), checkpoint=config(tmp_path, keep=2))
    saved = saved_of(running)
    for key in KEYS[:4]:
        push(running, feed, key)
        assert saved.take() is not None
        now += jump_s
    assert (saved.stats.failed, saved.failure) == (0, None)
    abandon(running)
    folder = JobFolder(open_store(str(tmp_path / "ckpt")), "clicks")
    assert [info.number for info in folder.manifests()] == [4, 3]
    newest, before = (info.at for info in folder.manifests())
    assert newest - before == jump_s
    run_to_end(tmp_path, sink, KEYS)
    assert rows_of(sink) == RIGHT


def test_letters_of_a_checkpoint_are_those_before_it(tmp_path: Path) -> None:
    """Those that came behind the boundary before it was saved are not counted twice."""
    rows = [{"k": n % 5} for n in range(1000)]
    job = plait.Job("dead")
    bad = job.source(rows, name="in").map(divide, on_error="dead_letter")
    bad.sink(plait.Files(tmp_path / "out", "jsonl"), "out")
    saved = plait.Checkpoint(str(tmp_path / "ckpt"), every="1ms", keep=1000)
    plait.run(job, checkpoint=saved, epoch_records=10, workers=2)
    folder = JobFolder(open_store(saved.url), "dead")
    for info in folder.manifests():
        manifest = folder.read(info.id)
        (source,) = manifest.sources
        assert manifest.letters == source.rows // 5, manifest.number
    lines = [
        line for part in sorted((tmp_path / "out").iterdir()) for line in part.read_text().split()
    ]
    assert len(lines) == 800
    assert all(json.loads(line) for line in lines)


def divide(row: Any) -> float:
    return 1.0 / float(row.k)
