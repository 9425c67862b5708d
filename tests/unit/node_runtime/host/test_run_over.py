"""Runs that are over while a checkpoint becomes visible in sinks that commit by themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.checkpoints.config import Checkpoint
from plait.execution.checkpointing import Checkpointing, Uncommitted
from plait.execution.local_run import LocalRun
from plait.model.settings import Settings
from plait.node_runtime.host.committing import BUSY, CutShort
from plait.testing.crashes import abandon, open_gates, with_durable_sinks, with_gates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plait.testing.crashes import Durable

ROWS = 100


class BusyOnce:
    """An engine in which a worker is in a sink when it is asked for the first time, and meanwhile
    something happens."""

    def __init__(self, engine: Any, meanwhile: Callable[[], None]) -> None:
        self.engine = engine
        self.meanwhile: Callable[[], None] | None = meanwhile

    def mark_complete(self, stage: int) -> int:
        if self.meanwhile is None:
            return int(self.engine.mark_complete(stage))
        meanwhile, self.meanwhile = self.meanwhile, None
        meanwhile()
        return BUSY

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class Scene:
    """A job with two deciders that commit between checkpoints, with 30 of its rows read."""

    def __init__(self, folder: Path, divisor: int = ROWS + 1) -> None:
        job = plait.Job("over")
        numbers = job.source(plait.Items([{"n": n} for n in range(ROWS)]), "in")
        checked = numbers.map(lambda row: {"n": 1 // (row["n"] - divisor) * 0 + row["n"]})
        checked.sink(plait.Collect(), "one")
        checked.sink(plait.Collect(), "two")
        graph, self.sinks, _ = with_durable_sinks(
            job.graph(), ["one", "two"], {"one": "1h", "two": "1h"}
        )
        graph, self.gates = with_gates(graph)
        settings = Settings(workers=1, epoch_records=7)
        self.saved = Checkpointing(graph, settings, Checkpoint(folder.as_posix(), every="1h"))
        self.running = LocalRun(graph, settings, None, self.saved)
        open_gates(self.gates, 30, self.running)

    @property
    def ops(self) -> list[int]:
        assert self.saved.committer is not None
        return self.saved.committer.sinks

    def is_busy_when_asked(self, meanwhile: Callable[[], None]) -> None:
        committer = self.saved.committer
        assert committer is not None
        parts: Any = committer.parts
        engine = BusyOnce(parts.engine, meanwhile)
        committer.parts = SimpleNamespace(  # type: ignore[assignment]
            engine=engine, sink_stages=parts.sink_stages
        )

    def go_to_the_end(self) -> None:
        open_gates(self.gates, None, self.running)
        while not self.running.engine.wait(1.0):
            pass


def numbers_in(sink: Durable) -> list[int]:
    return [row["n"] for batch in sink.batches for row in batch.to_pylist()]


def test_the_sources_end_while_a_sink_is_busy(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.is_busy_when_asked(scene.go_to_the_end)
    scene.saved.take()
    result = scene.running.wait(progress=False)
    assert result.account.read == ROWS
    for sink in scene.sinks.values():
        assert numbers_in(sink) == list(range(ROWS))


def test_the_job_fails_while_a_sink_is_busy(tmp_path: Path) -> None:
    scene = Scene(tmp_path, divisor=50)
    scene.is_busy_when_asked(scene.go_to_the_end)
    scene.saved.try_to_take()
    with pytest.raises(plait.RecordError, match="ZeroDivisionError"):
        scene.running.wait(progress=False)


def test_the_run_is_ended_at_once_while_a_sink_is_busy(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.is_busy_when_asked(scene.running.abort)
    scene.saved.try_to_take()
    with pytest.raises(plait.Interrupted):
        scene.running.wait(progress=False)


def test_nothing_is_committed_after_a_commit_that_failed(tmp_path: Path) -> None:
    """Another sink has rows behind the checkpoint in what it would commit."""
    scene = Scene(tmp_path)
    first, second = scene.ops
    writer: Any = scene.running.ends.writers[first]
    commit = writer.commit

    def fail(boundary: int, notes: bytes = b"") -> None:
        raise OSError("the disk is full")

    writer.commit = fail
    committer = scene.saved.committer
    assert committer is not None
    with pytest.raises(OSError, match="the disk is full"):
        committer.commit(first)
    writer.commit = commit
    open_gates(scene.gates, 60, scene.running)
    with pytest.raises(CutShort, match="the sink was at 0, before"):
        scene.saved.take()
    assert committer.commit(second) == 0
    abandon(scene.running)
    assert [numbers_in(sink) for sink in scene.sinks.values()] == [[], []]


def test_the_last_checkpoint_of_a_stopped_job_must_be_visible(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    committer = scene.saved.committer
    assert committer is not None
    scene.is_busy_when_asked(committer.end)
    scene.running.stop()
    with pytest.raises(Uncommitted, match="the run ended when the sink was at 0, before"):
        scene.running.wait(progress=False)
