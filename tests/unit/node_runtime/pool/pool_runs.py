"""Runs with a pool of worker processes that go on until the test says that it is enough, and what
may happen to the processes meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import plait
from plait.execution.local_run import start

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_for(condition: Callable[[], Any]) -> Any:
    """What the condition gives, once it gives something."""
    until = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.002)
    return found


@pytest.fixture(autouse=True)
def no_process_left() -> Any:
    yield
    wait_for(lambda: not pool_processes())


def pool_processes() -> list[psutil.Process]:
    """Zygotes and their workers: a Ray or a Java process of other tests may be there, too."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any("pool_zygote" in word for word in child.cmdline()):
                found.append(child)
    return found


class Gate(plait.Source):
    """Numbers by key, until the test says that it is enough."""

    schema = plait.Schema.of({"k": int, "n": int})

    def __init__(self, enough: threading.Event) -> None:
        self.enough = enough

    def open(self, position: Any = None) -> GateReader:
        return GateReader(self.enough)


class GateReader(plait.Reader):
    def __init__(self, enough: threading.Event) -> None:
        self.enough = enough
        self.next = 0

    def poll(self, max_rows: int) -> Any:
        if self.enough.is_set():
            return None
        self.next += max_rows
        return [{"k": n % 17, "n": n} for n in range(self.next - max_rows, self.next)]

    def position(self) -> int:
        return self.next


def start_gated(build: Callable[[Any], Any], **settings: Any) -> tuple[Any, threading.Event]:
    """A run of what `build` makes of the numbers, and the event that ends them."""
    enough = threading.Event()
    job = plait.Job("gated")
    build(job.source(Gate(enough))).sink(plait.Collect(), name="out")
    return start(job, **{"epoch_records": 64, "workers": 2, **settings}), enough


def more_batches(pool: Any) -> None:
    """Waits until the pool has done some more."""
    before = pool.native.batches
    wait_for(lambda: pool.native.batches > before + 20)


def kill_and_go_on(pool: Any, victim: str) -> None:
    """Kills the zygote, or three worker processes one after the other; others take their place."""
    for _ in range(1 if victim == "zygote" else 3):
        pids = wait_for(lambda: len(pool.pids()) == 2 and pool.pids())
        more_batches(pool)
        parent = psutil.Process(pids[0]).parent()
        os.kill(pids[0] if victim == "worker" else parent.pid, signal.SIGKILL)
        wait_for(partial(lambda old: not old <= set(pool.pids()), set(pids)))
    wait_for(lambda: len(pool.pids()) == 2)
    more_batches(pool)


def leaves_nothing_when_killed(folder: Path, module: str, name: str, batches: int) -> None:
    """A program that runs a job of a test module is killed when its pool has done so many batches:
    neither processes nor shared memory are left."""
    here = Path(__file__).parents[4]
    program = folder / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import sys, time
            sys.path.insert(0, {str(here)!r})
            from tests.unit.node_runtime.pool import {module} as jobs
            run, _ = jobs.running(jobs.{name}, "pool", pool=2)
            pool = run.parts.pools.pool
            while len(pool.pids()) < 2 or pool.native.batches < {batches}:
                time.sleep(0.01)
            print("ready", flush=True)
            run.wait()
            """
        )
    )
    before = set(os.listdir("/dev/shm"))
    process = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) == 3
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    wait_for(lambda: not any(is_alive(one) for one in family))
    assert set(os.listdir("/dev/shm")) <= before


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
