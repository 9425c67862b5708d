"""The control plane: how much the coordinator can decide, and how long users wait for it.

`commands_per_s` is the manager's own work (decide, journal, send) with nodes that answer at once,
by the processor time of its thread. The other figures are of real jobs on a Ray of our own on this
machine: `submit_s` until a job on two nodes runs, `rescale_s` until it runs on three, with all that
moved, `notice_killed_s` and `notice_silent_s` until a job knows that a node's process has ended, or
does not answer any more. `coordinator_cpu_ratio` is the manager's part of one core while such a job
runs; its process has Ray's threads as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

import plait
from benchmarks.support.common import CheckFailed, Options, progress
from plait import col
from plait.coordinator.journal.store import FileJournal
from plait.coordinator.messages.requests import Rejected, Rescale, Submit
from plait.coordinator.messages.spec import JobSpec, SourceSpec
from plait.coordinator.shell.local_gateway import LocalGateway
from plait.coordinator.shell.manager import JobManager
from plait.protocol.messages import BinLoad, Commit, Done, NodeReport, Peer, Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.cluster.job_handle import JobHandle
    from plait.coordinator.shell.manager import ManagerStats
    from plait.protocol.messages import Answer, Command, Rank

PATIENCE_S = 120.0
LOOK_S = 0.01
EPOCHS_PER_S = 1000.0
BIN_BITS = 10
NAMESPACE = "plait-benchmark"


class Figurehead:
    """A node that does all at once: its epochs go by with the clock."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.leaves_at: int | None = None

    def epoch(self) -> int:
        return int(time.monotonic() * EPOCHS_PER_S)

    def peer(self) -> Peer:
        return Peer(rank=self.rank, host="127.0.0.1", port=1)

    def apply(self, command: Command) -> Answer:
        if isinstance(command, Commit):
            for layout in command.layouts:
                if self.rank not in layout.members:
                    self.leaves_at = layout.epoch
        return Done(epoch=self.epoch() + 1) if isinstance(command, Promise) else Done()

    def report(self, loads: bool = False) -> NodeReport:
        weights = (
            tuple(BinLoad(bin=bin, records=1, size_bytes=1_000_000) for bin in range(1 << BIN_BITS))
            if loads
            else ()
        )
        return NodeReport(
            rank=self.rank,
            phase="running" if self.leaves_at is None else "left",
            epoch=self.epoch(),
            delivered_epoch=self.epoch(),
            ready=1 << 60,
            loads=weights,
        )

    def close(self) -> None:
        return


def waited_for(what: str, holds: Callable[[], bool]) -> float:
    """The seconds until something holds."""
    began = time.perf_counter()
    while not holds():
        if time.perf_counter() - began > PATIENCE_S:
            raise CheckFailed(f"{what} did not happen within {PATIENCE_S:.0f} s")
        time.sleep(LOOK_S)
    return time.perf_counter() - began


def decided(nodes: int, moves: int) -> dict[str, float]:
    """A job on many nodes that answer at once; all its bins are spread anew, back and forth."""
    with tempfile.TemporaryDirectory() as folder:
        gateway = LocalGateway(lambda job, rank, spec: Figurehead(rank))
        manager = JobManager(FileJournal(Path(folder) / "journal"), gateway)
        try:
            spec = JobSpec(
                name="many",
                payload="",
                token="",
                bin_bits=BIN_BITS,
                sources=(SourceSpec(label="source", splits=True),),
                nodes=nodes,
                bounded=False,
            )
            reply = manager.request(Submit(spec=spec), timeout=PATIENCE_S)
            if isinstance(reply, Rejected):
                raise CheckFailed(reply.reason)
            manager.wait("many", lambda view: view is not None and view.phase == "running", 60.0)
            before = manager.stats
            began = time.perf_counter()
            for number in range(moves):
                wanted = nodes - nodes // 2 if number % 2 == 0 else nodes
                reply = manager.request(
                    Rescale(job="many", nodes=wanted, strategy="fluid"), timeout=PATIENCE_S
                )
                if isinstance(reply, Rejected):
                    raise CheckFailed(reply.reason)
                waited_for("a rescale", lambda: settled(manager))
            seconds = time.perf_counter() - began
            return rates(before, manager.stats, seconds)
        finally:
            manager.close()
            gateway.shut_down()


def settled(manager: JobManager) -> bool:
    view = manager.view("many")
    if view is None or view.over:
        raise CheckFailed(f"the job of many nodes ended: {view}")
    return view.phase == "running" and (
        view.migration is None or view.migration.phase in ("done", "failed")
    )


def rates(before: ManagerStats, after: ManagerStats, seconds: float) -> dict[str, float]:
    if after.failures:
        raise CheckFailed(f"the manager failed: {after.last_failure}")
    cpu_s = after.cpu_s - before.cpu_s
    return {
        "commands_per_s": round((after.commands - before.commands) / cpu_s),
        "events_per_s": round((after.events - before.events) / cpu_s),
        "facts_per_s": round((after.facts - before.facts) / cpu_s),
        "commands": after.commands - before.commands,
        "cpu_s": round(cpu_s, 3),
        "seconds": round(seconds, 3),
    }


@contextlib.contextmanager
def own_ray() -> Iterator[None]:
    """The surroundings of a Ray of our own; it ends with this block."""
    # A short path: Ray puts sockets into it, whose names may not be long.
    with tempfile.TemporaryDirectory(prefix="pl", dir="/tmp") as folder:
        token = Path(folder) / "token"
        token.write_text("0123456789abcdef" * 4 + "\n", encoding="ascii")
        token.chmod(0o600)
        ours = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield
        finally:
            if "ray" in sys.modules:
                sys.modules["ray"].shutdown()
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def submitted(name: str) -> tuple[JobHandle, float]:
    """A job on two nodes that runs until it is ended, and the seconds until it ran."""
    job = plait.Job(name)
    numbers = job.source(plait.Rate(100_000.0))
    keyed = numbers.with_columns(key=col("seq") * 7919 % 10_007).key_by("key")
    keyed.count().sink(plait.Discard())
    began = time.perf_counter()
    handle = plait.submit(job, address="local", nodes=2, namespace=NAMESPACE, workers=1)
    waited_for("the start of a job", lambda: phase(handle) == "running")
    return handle, time.perf_counter() - began


def phase(handle: JobHandle) -> str:
    view = handle.status()
    if view.phase == "failed":
        raise CheckFailed(f"{handle.name}: {view.error}")
    return view.phase


def noticed(handle: JobHandle, sign: signal.Signals) -> float:
    """The seconds from a signal to a node's process until the job says that the node is lost."""
    victim = next(node for node in handle.status().members if node.rank == 1)
    os.kill(victim.pid, sign)
    seconds = waited_for("the loss of a node", lambda: handle.status().over)
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim.pid, signal.SIGKILL)
    handle.forget()
    return seconds


def coordinator_cpu(seconds: float) -> dict[str, float]:
    """The parts of a core that the manager's thread and its whole process take."""
    from plait.cluster.ray_link import connect

    link = connect("local", NAMESPACE)
    process = psutil.Process(link.ask("pid"))
    process.cpu_percent()
    before = link.ask("stats")
    began = time.perf_counter()
    time.sleep(seconds)
    after = link.ask("stats")
    passed = time.perf_counter() - began
    return {
        "thread": round((after.cpu_s - before.cpu_s) / passed, 4),
        "process": round(process.cpu_percent() / 100.0, 4),
    }


def on_ray(options: Options) -> dict[str, Any]:
    submit_s: list[float] = []
    rescale_s: list[float] = []
    back_s: list[float] = []
    killed_s: list[float] = []
    silent_s: list[float] = []
    cpu: dict[str, float] = {}
    # Ray says on stdout that a process was killed.
    with own_ray(), contextlib.redirect_stdout(sys.stderr):
        progress("control: a Ray of our own, and a first job")
        first, first_s = submitted("first")
        cpu = coordinator_cpu(options.pick(2, 10))
        first.cancel()
        for turn in range(options.repeat(1, 3)):
            progress(f"control: rescale and a killed node {turn + 1}")
            handle, seconds = submitted(f"killed-{turn}")
            submit_s.append(seconds)
            rescale_s.append(rescaled(handle, 3))
            back_s.append(rescaled(handle, 2))
            killed_s.append(noticed(handle, signal.SIGKILL))
            progress(f"control: a silent node {turn + 1}")
            handle, seconds = submitted(f"silent-{turn}")
            submit_s.append(seconds)
            silent_s.append(noticed(handle, signal.SIGSTOP))
    return {
        "submit_s": round(median(submit_s), 3),
        "rescale_s": round(median(rescale_s), 3),
        "rescale_back_s": round(median(back_s), 3),
        "notice_killed_s": round(median(killed_s), 3),
        "notice_silent_s": round(median(silent_s), 3),
        "coordinator_cpu_ratio": cpu["thread"],
        "manager_process_cpu_ratio": cpu["process"],
        "ray_and_first_submit_s": round(first_s, 3),
        "rounds": len(killed_s),
    }


def rescaled(handle: JobHandle, nodes: int) -> float:
    began = time.perf_counter()
    handle.rescale(nodes=nodes, strategy="optimised").wait(PATIENCE_S)
    return time.perf_counter() - began


def run(options: Options) -> dict[str, Any]:
    progress("control: decisions")
    found = [decided(options.pick(16, 64), options.pick(2, 6)) for _ in range(options.repeat(2, 5))]
    return {
        "commands_per_s": median(one["commands_per_s"] for one in found),
        **on_ray(options),
        "decisions": found[-1],
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    names = ("submit_s", "rescale_s", "rescale_back_s", "notice_killed_s", "notice_silent_s")
    bars(file, [("The control plane", "seconds", {"": {name: figures[name] for name in names}})])
