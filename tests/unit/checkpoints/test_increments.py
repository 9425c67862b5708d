"""Checkpoints have what changed since the last one: keyed aggregates and Python state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.checkpoints.job_folder import JobFolder
from plait.checkpoints.store import StoreFailed, open_store
from plait.testing import Feed
from plait.testing.crashes import abandon

if TYPE_CHECKING:
    from pathlib import Path

    from plait.execution.local_run import LocalRun

KEYS = 20_000


def job_of(feed: Feed, kind: str, sink: plait.Sink) -> plait.Job:
    job = plait.Job("clicks")
    clicks = job.source(feed, name="feed").key_by("k")
    if kind == "native":
        clicks.aggregate(n=plait.count(), total=plait.sum("v")).sink(sink, "out")
    else:
        clicks.fold(0, lambda total, row: 100 * total + row.v, type=int).sink(sink, "out")
    return job


def push(running: LocalRun, feed: Feed, rows: list[tuple[int, int]]) -> None:
    before = running.engine.records_read()
    feed.push(rows)
    while running.engine.records_read() < before + len(rows):
        running.engine.wait(0.001)


def bins_of(config: plait.Checkpoint, number: int) -> dict[int, bytes]:
    folder = JobFolder(open_store(config.url), "clicks")
    part = folder.read_part(folder.read(number).parts[0])
    return {ref.bin: ref.digest for ref in part.bins}


@pytest.mark.parametrize("kind", ["native", "python"])
@pytest.mark.parametrize("workers", [1, 3])
def test_only_the_bins_that_changed_are_written(kind: str, workers: int, tmp_path: Path) -> None:
    config = plait.Checkpoint(str(tmp_path / "ckpt"), every="1h", keep=9)
    feed = Feed({"k": int, "v": int})
    settings: dict[str, Any] = {"workers": workers, "bin_bits": 8, "checkpoint": config}
    running = plait.start(job_of(feed, kind, plait.Discard()), **settings)
    saved = running.saved
    assert saved is not None
    push(running, feed, [(key, key) for key in range(KEYS)])
    saved.take()
    whole = saved.stats.last_bytes
    push(running, feed, [(7, 1)])
    saved.take()
    one = saved.stats.last_bytes
    saved.take("again")  # without a name it is not taken if no epoch came since
    assert saved.stats.last_bytes < one < whole / 4
    first, second, third = (bins_of(config, number) for number in (1, 2, 3))
    assert len([bin for bin in first if first[bin] != second[bin]]) == 1
    assert third == second
    push(running, feed, [(7, 2), (KEYS, 5)])
    saved.take()
    abandon(running)
    again = Feed({"k": int, "v": int})
    sink = plait.Collect()
    settings["workers"] = 2
    first_rows = [(key, key) for key in range(KEYS)]
    for rows_of_push in (first_rows, [(7, 1)], [(7, 2), (KEYS, 5)], [(7, 3), (KEYS, 6), (0, 9)]):
        again.push(rows_of_push)
    again.close()
    restored = plait.start(job_of(again, kind, sink), **settings)
    rows = restored.wait(progress=False).outputs["out"].to_pylist()[-3:]
    if kind == "native":
        assert rows == [
            {"k": 7, "n": 4, "total": 13},
            {"k": KEYS, "n": 2, "total": 11},
            {"k": 0, "n": 2, "total": 9},
        ]
    else:
        assert [tuple(row.values()) for row in rows] == [(7, 7010203), (KEYS, 506), (0, 9)]


@pytest.mark.parametrize("kind", ["native", "python"])
def test_after_a_checkpoint_that_was_given_up_all_is_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = plait.Checkpoint(str(tmp_path / "ckpt"), every="1h", keep=9)
    feed = Feed({"k": int, "v": int})
    running = plait.start(job_of(feed, kind, plait.Discard()), bin_bits=6, checkpoint=config)
    saved = running.saved
    assert saved is not None
    push(running, feed, [(key, key) for key in range(KEYS)])
    saved.take()
    whole = saved.stats.last_bytes
    push(running, feed, [(3, 1)])

    def full(*_: Any) -> None:
        raise StoreFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(saved.folder.store, "write", full)
        with pytest.raises(StoreFailed):
            saved.take()
    push(running, feed, [(4, 1)])
    saved.take()
    assert saved.stats.last_number == 3
    first, third = bins_of(config, 1), bins_of(config, 3)
    changed = len([bin for bin in first if first[bin] != third[bin]])
    assert changed >= 2
    assert saved.stats.last_bytes <= 1.1 * whole
    abandon(running)
