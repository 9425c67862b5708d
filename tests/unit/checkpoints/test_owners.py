"""Two runs that want one folder: the second is refused in words, the first is not hurt, and one
that is dead is taken over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import plait
from plait.checkpoints import owners
from plait.checkpoints.job_folder import InUse, JobFolder
from plait.checkpoints.owners import describe, is_gone, this_process
from plait.checkpoints.store import LocalStore
from plait.testing import Feed

if TYPE_CHECKING:
    from pathlib import Path

    from plait.checkpoints.store import Store

RUNNING = """
import sys, time
import plait
from plait.testing import Feed
job = plait.Job("carts")
feed = Feed({"n": int})
job.source(feed, name="in").sink(plait.Discard(), "out")
running = plait.start(job, checkpoint=plait.Checkpoint(sys.argv[1], every="100ms"))
print("up", flush=True)
for n in range(1_000_000):
    feed.push([(n,)])
    time.sleep(0.01)
    if running.engine.wait(0.0):
        break
running.wait()
"""
WHO = re.compile(r"in use by a run on \S+ \(pid (\d+), since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "BEAT_S", 0.05)
    monkeypatch.setattr(owners, "LEASE_S", 2.0)
    monkeypatch.setattr(owners, "LOOK_S", 0.01)


def job_of() -> plait.Job:
    job = plait.Job("carts")
    feed = Feed({"n": int})
    feed.close()
    job.source(feed, name="in").sink(plait.Discard(), "out")
    return job


def start_elsewhere(url: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNING, url], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.parametrize("where", ["local", "s3"])
def test_a_second_process_is_refused_and_the_dead_one_is_taken_over(
    where: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "LEASE_S", 600.0)  # the other process beats as it always does
    url = str(tmp_path / "ckpt") if where == "local" else request.getfixturevalue("s3_url")
    first = start_elsewhere(url)
    try:
        for _ in range(2):
            with pytest.raises(InUse) as refused:
                plait.run(job_of(), checkpoint=url)
            found = WHO.search(str(refused.value))
            assert found is not None, refused.value
            assert int(found[1]) == first.pid
            assert "test" not in str(refused.value).split(" in use ")[0].split("carts")[0]
        assert first.poll() is None  # it was not hurt
        first.send_signal(signal.SIGKILL)
        first.wait()
        plait.run(job_of(), checkpoint=url, start="new", timeout=60)
    finally:
        end(first)


def test_where_there_are_no_locks_beats_tell(store: Store) -> None:
    """The owner is on a machine that cannot be looked at."""
    far = replace(this_process("one"), machine="elsewhere")
    first, second = JobFolder(store, "carts"), JobFolder(store, "carts")
    first.claim(None, far)
    try:
        with pytest.raises(InUse, match=rf"a run on {far.host} \(pid {far.pid}, since "):
            second.claim(None, this_process("two"))
        assert first.is_current(first.mine)  # type: ignore[arg-type]
        first.unlock()  # it dies: nothing is heard of it any more
        claim = second.claim(None, this_process("two"))
        assert claim.attempt == 2
        with pytest.raises(InUse, match="in use by"):
            first.claim(None, far)  # it comes back, and may not take it
    finally:
        first.unlock()
        second.leave()
    began = time.monotonic()
    first.claim(None, far)  # the second one has left in good order: nothing is waited for
    assert time.monotonic() - began < owners.LEASE_S
    first.leave()


def test_the_same_run_goes_on_at_once(store: Store) -> None:
    """Another node of it becomes home while the first one is frozen."""
    first, second = JobFolder(store, "carts"), JobFolder(store, "carts")
    assert first.claim(None, this_process("one", "node-0")).attempt == 1
    assert second.claim(None, this_process("one", "node-1")).attempt == 2
    third = JobFolder(store, "carts")
    with pytest.raises(InUse, match=r"in use by a job on a cluster \(node-1 on .*, pid "):
        third.claim(None, this_process("two"))
    first.unlock()
    with pytest.raises(InUse, match=r"node-1"):
        third.claim(None, this_process("two"))
    second.leave()
    assert third.claim(None, this_process("two")).attempt == 3
    third.leave()


def test_a_job_whose_home_is_lost_is_waited_for(tmp_path: Path) -> None:
    """Its lock is free then, and yet it lives: another node claims."""
    store = LocalStore(tmp_path)
    first, second, third = (JobFolder(store, "carts") for _ in range(3))
    first.claim(None, this_process("one", "node-0"))
    first.unlock()
    refused: list[Exception] = []

    def intrude() -> None:
        try:
            third.claim(None, this_process("two"))
        except InUse as error:
            refused.append(error)

    intruder = threading.Thread(target=intrude)
    intruder.start()
    while third.held is None:
        time.sleep(0.001)
    second.claim(None, this_process("one", "node-1"))
    intruder.join()
    assert "node-1" in str(refused[0])
    assert second.is_current(second.mine)  # type: ignore[arg-type]
    second.leave()


def test_processes_are_known_by_when_they_began() -> None:
    here = this_process("one")
    assert not is_gone(here)
    assert is_gone(replace(here, began="1"))
    assert not is_gone(replace(here, began="1", machine="elsewhere"))
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert is_gone(replace(here, pid=ended.pid))
    assert here.pid == os.getpid()
    assert re.fullmatch(
        r"a run on h \(pid 7, since 1970-01-01 00:00:00 UTC\)",
        describe(replace(here, host="h", pid=7, since=0.0)),
    )


def test_claims_of_earlier_versions_have_no_owner(tmp_path: Path) -> None:
    first = JobFolder(LocalStore(tmp_path), "carts")
    assert first.claim(None).owner is None
    assert first.claim(None, this_process("one")).attempt == 2
    first.leave()
