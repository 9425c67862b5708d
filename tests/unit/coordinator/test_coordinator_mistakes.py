"""The manager when something goes wrong: it refuses, isolates, says so, or ends its process."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from plait.coordinator.journal import store
from plait.coordinator.journal.store import FileJournal, JournalBroken, MemoryJournal
from plait.coordinator.machine import step as machine
from plait.coordinator.machine.node_loss import lose
from plait.coordinator.messages.requests import Accepted, Cancel, Rejected, Rescale, Stop, Submit
from plait.coordinator.shell.manager import JobManager, recover
from plait.errors import InternalError
from tests.unit.coordinator.test_coordinator_manager import (
    POLICY,
    Cluster,
    cluster_of,
    spec_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from plait.coordinator.messages.events import Fact


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = cluster_of(MemoryJournal())
    yield made
    made.manager.close()
    made.gateway.shut_down()


def full(file: int, data: bytes) -> None:
    """Some of it is written before the disk is full."""
    os.write(file, data[: len(data) // 2])
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster_of(FileJournal(tmp_path))
    ask = made.manager.request
    ask(Submit(spec=spec_of()))
    made.phase("running")
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_all", full)
        reply = ask(Rescale(job="job", nodes=3))
        assert isinstance(reply, Rejected)
        assert "No space left on device" in reply.reason
        assert "ask again" in reply.reason
        view = made.manager.view("job")
        assert view is not None
        assert "cannot write its journal" in str(view)
        assert view.phase == "running"
    assert isinstance(ask(Rescale(job="job", nodes=3)), Accepted)
    view = made.until(lambda v: v.migration is not None and v.migration.phase == "done")
    assert view.warning == ""
    made.manager.close()
    again, _ = recover(FileJournal(tmp_path), POLICY)
    assert again.jobs["job"].members == (0, 1, 2)
    made.gateway.shut_down()


def test_a_fact_that_cannot_be_written_is_of_its_request_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = cluster.manager.request
    ask(Submit(spec=spec_of()))
    cluster.phase("running")
    right = cluster.manager.journal.append

    def choosy(facts: Sequence[Fact]) -> None:
        if any(getattr(fact, "request_id", "") == "bad" for fact in facts):
            raise OverflowError("int too large to convert")
        right(facts)

    monkeypatch.setattr(cluster.manager.journal, "append", choosy)
    reply = ask(Rescale(job="job", nodes=3), request_id="bad")
    assert isinstance(reply, Rejected)
    assert "OverflowError: int too large" in reply.reason
    assert isinstance(ask(Rescale(job="job", nodes=3), request_id="good"), Accepted)
    cluster.until(lambda v: v.migration is not None and v.migration.phase == "done")


def test_a_broken_turn_ends_its_job_and_no_other(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = cluster.manager.request
    ask(Submit(spec=spec_of("a")))
    ask(Submit(spec=spec_of("b")))
    cluster.until(lambda v: v.phase == "running", "a")
    cluster.until(lambda v: v.phase == "running", "b")
    right = lose

    def broken(job: Any, *given: Any) -> Any:
        if job.name == "a":
            raise AssertionError("nobody thought of this")
        return right(job, *given)

    monkeypatch.setattr(machine, "lose", broken)
    cluster.gateway.nodes.pop(("a", 1)).todo.put(None)
    view = cluster.until(lambda v: v.phase == "failed", "a")
    assert "plait has a bug, please report it: AssertionError: nobody thought" in view.error
    assert "nobody thought of this" in cluster.manager.stats.last_failure
    ask(Stop(job="b"))
    cluster.until(lambda v: v.phase == "ended", "b")


def test_a_journal_that_is_broken_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    journal, told, failed = MemoryJournal(), [], threading.Event()

    def fail(reason: str) -> None:
        told.append(reason)
        failed.set()

    made = cluster_of(journal)
    made.manager.close()
    manager = JobManager(journal, made.gateway, policy=POLICY, fail=fail)

    def broken(facts: Sequence[Fact]) -> None:
        raise JournalBroken("who knows what is in it")

    monkeypatch.setattr(journal, "append", broken)
    with pytest.raises(InternalError, match="who knows what is in it"):
        manager.request(Submit(spec=spec_of()))
    assert failed.wait(60.0)
    assert told == ["JournalBroken: who knows what is in it"]
    manager.close()
    made.gateway.shut_down()


def test_a_write_that_cannot_be_undone_breaks_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path)
    journal.load()

    def stuck(file: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(store, "write_all", full)
    monkeypatch.setattr(os, "ftruncate", stuck)
    with pytest.raises(JournalBroken, match="Input/output error"):
        journal.append([])
    journal.close()


def test_a_snapshot_that_cannot_be_written_leaves_the_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cluster_of(FileJournal(tmp_path))
    made.manager.request(Submit(spec=spec_of()))
    made.phase("running")
    made.manager.close()
    journal = FileJournal(tmp_path)
    state, _ = recover(journal, POLICY)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_all", full)
        with pytest.raises(OSError, match="No space left"):
            journal.snapshot(state)
    journal.snapshot(state)
    journal.close()
    again, _ = recover(FileJournal(tmp_path), POLICY)
    assert again.jobs.keys() == {"job"}
    made.gateway.shut_down()


def test_a_manager_that_hangs_says_so(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.manager.request(Submit(spec=spec_of()))
    cluster.phase("running")
    cluster.manager.close()
    late = cluster.manager.clock() + 60.0
    monkeypatch.setattr(cluster.manager, "clock", lambda: late)
    view = cluster.manager.view("job")
    assert view is not None
    assert view.stale_s >= 59.0
    assert "the coordinator has not looked after its jobs for" in str(view)


def test_a_name_is_free_when_its_job_was_cancelled_or_its_result_taken(cluster: Cluster) -> None:
    ask = cluster.manager.request
    ask(Submit(spec=spec_of()))
    cluster.phase("running")
    ask(Cancel(job="job"))
    cluster.phase("cancelled")
    assert isinstance(ask(Submit(spec=spec_of())), Accepted)
    cluster.phase("running")
    ask(Stop(job="job"))
    cluster.phase("ended")
    reply = ask(Submit(spec=spec_of()))
    assert isinstance(reply, Rejected)
    assert "nobody has taken its result" in reply.reason
    assert isinstance(ask(Submit(spec=spec_of(), replace=True)), Accepted)
    view = cluster.phase("running")
    assert [node.rank for node in view.nodes] == [4, 5]


def test_a_job_that_is_over_leaves_no_node(cluster: Cluster) -> None:
    cluster.manager.request(Submit(spec=spec_of()))
    cluster.phase("running")
    cluster.manager.request(Stop(job="job"))
    cluster.phase("ended")
    for thread in cluster.gateway.threads:
        thread.join()
    assert not cluster.gateway.nodes
    assert {agent.phase for agent in cluster.agents.values()} == {"closed"}
