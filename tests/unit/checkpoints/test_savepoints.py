"""Savepoints, the state in checkpoints, and the commands that show them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.cli import main
from plait.testing import Feed
from plait.testing.crashes import Durable, abandon

if TYPE_CHECKING:
    from pathlib import Path

    from plait.execution.local_run import LocalRun

SCRIPT = """
import plait
job = plait.Job("clicks")
rows = [{"k": n % 3} for n in range(30)]
clicks = job.source(rows, name="clicks")
clicks.key_by("k").fold(0, lambda state, row: state + 1, type=int).sink(plait.Discard(), "folded")
clicks.key_by("k").count()NAMED.sink(plait.Collect(), "counts")
"""


def job_of(feed: Feed) -> plait.Job:
    job = plait.Job("clicks")
    clicks = job.source(feed, name="feed")
    clicks.key_by("k").count().sink(plait.Collect(), "counts")
    clicks.key_by("k").fold(0, lambda state, row: state + 1, type=int).sink(plait.Discard(), "n")
    return job


def feed_of(*pushes: list[tuple[int]]) -> Feed:
    feed = Feed({"k": int})
    for rows in pushes:
        feed.push(rows)
    return feed


def wait_until_read(running: LocalRun, rows: int) -> None:
    while running.engine.records_read() < rows:
        running.engine.wait(0.001)


@pytest.fixture
def saved(tmp_path: Path) -> plait.Checkpoint:
    """With a savepoint "a" after two records and checkpoints after three."""
    config = plait.Checkpoint(str(tmp_path / "ckpt"), every="1h", keep=1)
    feed = feed_of([(1,), (1,)])
    running = plait.start(job_of(feed), checkpoint=config, workers=2)
    wait_until_read(running, 2)
    assert running.savepoint("a") == 1
    feed.push([(7,)])
    wait_until_read(running, 3)
    assert running.saved is not None
    for _ in range(3):
        running.saved.take()
    abandon(running)
    return config


def run_on(saved: plait.Checkpoint, start: str = "") -> dict[str, list[int]]:
    feed = feed_of([(1,), (1,)], [(7,)], [(1,)])
    feed.close()
    result = plait.run(job_of(feed), checkpoint=saved, start=start)
    assert result.account.read == 4
    assert result.outputs["n"] == 4
    found: dict[str, list[int]] = result.outputs["counts"].to_pydict()
    return found


RIGHT = {"k": [1, 1, 7, 1], "count": [1, 2, 1, 3]}


def test_from_the_newest_and_from_a_savepoint(saved: plait.Checkpoint) -> None:
    assert run_on(saved) == RIGHT
    assert run_on(saved, "savepoint:a") == RIGHT


def test_a_crash_right_after_a_start_from_a_savepoint(saved: plait.Checkpoint) -> None:
    """The checkpoint itself is retired by then; the savepoint is what the next run goes on from."""
    from plait.execution.local_run import begin

    running = begin(job_of(feed_of([(1,), (1,)])), None, None, saved, {}, "savepoint:a")
    assert isinstance(running, plait.LocalRun)
    abandon(running)
    assert run_on(saved) == RIGHT


def test_from_a_checkpoint_by_number(saved: plait.Checkpoint) -> None:
    """Also from one that is only kept as a savepoint; the chain goes on from there."""
    assert run_on(saved, "checkpoint:1") == RIGHT
    with pytest.raises(plait.StateError, match="has no checkpoint 77; there are: "):
        run_on(saved, "checkpoint:77")


def test_from_the_beginning(saved: plait.Checkpoint) -> None:
    from plait.execution.local_run import begin

    running = begin(job_of(feed_of([(1,), (1,)])), None, None, saved, {}, "new")
    assert isinstance(running, plait.LocalRun)
    assert running.saved is not None
    wait_until_read(running, 2)
    manifest = running.saved.take()
    assert manifest is not None
    assert manifest.number > 2  # no number is used twice
    abandon(running)
    assert run_on(saved) == RIGHT  # from there, not from what was before
    assert run_on(saved, "new") == RIGHT
    assert run_on(saved, "savepoint:a") == RIGHT


def test_a_decider_must_be_where_the_job_goes_on(tmp_path: Path) -> None:
    sink = Durable("counts", "decider")

    def job() -> plait.Job:
        made = plait.Job("decided")
        made.source([{"k": 1}, {"k": 2}], name="in").sink(sink, "counts")
        return made

    saved = plait.Checkpoint(str(tmp_path / "ckpt"), every="1h")
    plait.run(job(), checkpoint=saved)
    for start in ("new", "checkpoint:0"):
        with pytest.raises(plait.StateError, match=r"its output ends at boundary .* twice"):
            plait.run(job(), checkpoint=saved, start=start)
    assert plait.run(job(), checkpoint=saved).account.read == 2


def test_files_must_be_where_the_job_goes_on(tmp_path: Path) -> None:
    def job(**more: Any) -> plait.Job:
        made = plait.Job("filed")
        rows = made.source([{"k": 1}, {"k": 2}], name="in")
        rows.sink(plait.Files(tmp_path / "out", "jsonl", **more), "out")
        return made

    saved = plait.Checkpoint(str(tmp_path / "ckpt"), every="1h")
    plait.run(job(), checkpoint=saved)
    with pytest.raises(plait.SinkError, match="exists already; remove it or give overwrite=True"):
        plait.run(job(), checkpoint=saved, start="new")
    plait.run(job(overwrite=True), checkpoint=saved, start="new")
    (part,) = (tmp_path / "out").iterdir()
    assert part.read_text() == '{"k":1}\n{"k":2}\n'


def test_refusals(saved: plait.Checkpoint) -> None:
    with pytest.raises(plait.StateError, match="no savepoint 'b'; there are: a"):
        run_on(saved, "savepoint:b")
    with pytest.raises(plait.JobError, match='"savepoint:NAME", "checkpoint:NUMBER" or "new"'):
        run_on(saved, "latest")
    with pytest.raises(plait.JobError, match="say where the checkpoints are"):
        plait.run(job_of(feed_of()), start="savepoint:a")
    running = plait.start(job_of(closed := feed_of()))
    with pytest.raises(plait.StateError, match="without checkpoint="):
        running.savepoint("b")
    closed.close()
    running.wait()


def test_the_state_by_key(saved: plait.Checkpoint) -> None:
    table = plait.read_state(saved.url)
    rows = table.to_pylist()
    fold = "fold(k) from feed"
    assert {(row["key"], row["value"]) for row in rows if row["operator"] == fold} == {
        ("1", "2"),
        ("7", "1"),
    }
    native = [row for row in rows if row["operator"] == "count(k) from feed"]
    assert {(row["key"], row["value"]) for row in native} == {
        ("1", "{'count': 2}"),
        ("7", "{'count': 1}"),
    }
    assert all(row["size_bytes"] > 0 for row in native)
    earlier = plait.read_state(saved.url, "clicks", start="a").to_pylist()
    assert [row["value"] for row in earlier if row["operator"] == fold] == ["2"]
    with pytest.raises(plait.StateError, match="no checkpoint of job 'other'"):
        plait.read_state(saved.url, "other")


def test_the_commands(saved: plait.Checkpoint, capsys: Any) -> None:
    assert main(["checkpoints", saved.url]) == 0
    shown = capsys.readouterr().out
    assert "clicks:" in shown
    assert "savepoint a" in shown
    assert main(["checkpoints", saved.url, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["clicks"]
    assert [each["number"] for each in facts["checkpoints"]] == [2, 1]
    assert facts["damaged"] == []
    assert main(["state", saved.url, "clicks", "get", "7"]) == 0
    shown = capsys.readouterr().out
    assert "fold(k) from feed  7: 1" in shown
    assert "count(k) from feed  7: {'count': 1}" in shown
    assert main(["state", saved.url, "clicks", "get", "8"]) == 1


def test_a_damaged_checkpoint_is_named(
    saved: plait.Checkpoint, tmp_path: Path, capsys: Any
) -> None:
    (newest,) = (tmp_path / "ckpt" / "clicks" / "manifests").iterdir()
    newest.write_bytes(newest.read_bytes()[:-1])
    assert main(["checkpoints", saved.url]) == 0
    assert "damaged: " in capsys.readouterr().out


def test_run_and_restore(tmp_path: Path, capsys: Any) -> None:
    script, folder = tmp_path / "clicks.py", str(tmp_path / "ckpt")
    script.write_text(SCRIPT.replace("NAMED", ""))
    assert main(["run", str(script), "--checkpoint", folder, "--every", "1s"]) == 0
    assert main(["run", str(script), "--every", "1s"]) == 1
    assert "--every needs --checkpoint" in capsys.readouterr().err
    assert main(["restore", str(script), "--checkpoint", folder, "--dry-run"]) == 0
    assert "count(k) from clicks  restored" in capsys.readouterr().out
    script.write_text(SCRIPT.replace("NAMED", '.named("other")'))
    assert main(["restore", str(script), "--checkpoint", folder, "--dry-run"]) == 1
    assert "gone: refused" in capsys.readouterr().out
