"""What a killed process costs: a keyed count with a large state, at a steady rate, on two nodes.

One of the two nodes, the one with the sinks, or both get a SIGKILL. `detect_s` is until the
coordinator knows, then `halt_s`, `place_s` (new processes, if none is left), `survey_s`, `load_s`
(the state is read back) and `begin_s` as the job tells them; `first_output_s` is from the kill to
the first row behind the gap in the output, `caught_up_s` until rows come as soon after they were
due as before. `load_mb_per_s` is of each node. Every row that comes out is checked against what it
must be, so state that was lost or counted twice would end the benchmark. Flink, if Java and Maven
are there, does the same in processes of its own, in turns.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.micro.control import own_ray
from benchmarks.peers.flink_cluster import flink_round
from benchmarks.peers.programs import Unavailable
from benchmarks.support.common import CheckFailed, Options, Sample, progress
from benchmarks.support.outages import (
    TEXT_BYTES,
    Load,
    is_full,
    row_bytes,
    wait_for,
    wait_outage,
    wait_steady,
)

if TYPE_CHECKING:
    from plait.cluster.job_handle import JobHandle

NAMESPACE = "plait-recovery"
EVERY_S = 2.0
BATCH = 2_000
WHO = ("node", "home", "all")


class Due(plait.Source):
    """Records as they are due; those that are overdue at once."""

    bounded = False
    schema = plait.Schema.of({"seq": int, "key": int, "text": str})

    def __init__(self, load: Load) -> None:
        self.load = load

    def open(self, position: Any = None) -> plait.Reader:
        return DueReader(self.load, int(position or 0))


class DueReader(plait.Reader):
    def __init__(self, load: Load, seq: int) -> None:
        import pyarrow as pa

        self.load, self.seq = load, seq
        self.texts = pa.array(["x" * TEXT_BYTES] * BATCH)

    def poll(self, max_rows: int) -> Any:
        import pyarrow as pa

        due = int((time.time() - self.load.start) * self.load.rate) - self.seq
        count = min(due, max_rows, BATCH)
        if count <= 0:
            return plait.Wait(0.002)
        seq = np.arange(self.seq, self.seq + count)
        self.seq += count
        columns = [pa.array(seq), pa.array(seq % self.load.keys), self.texts.slice(0, count)]
        return pa.record_batch(columns, names=["seq", "key", "text"])

    def position(self) -> int:
        return self.seq

    def close(self) -> None:
        return


class Log(plait.Sink):
    """Writes down when which rows came, and how many were not what they must be."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def open(self, schema: Any) -> plait.Writer:
        return LogWriter(self.load)


class LogWriter(plait.Writer):
    def __init__(self, load: Load) -> None:
        self.load = load
        self.file = Path(load.log).open("ab", buffering=0)  # noqa: SIM115

    def write(self, batch: Any) -> None:
        seq = batch.column("last").to_numpy()
        wrong = np.count_nonzero(batch.column("n").to_numpy() != seq // self.load.keys + 1)
        self.file.write(row_bytes(time.time(), int(seq[-1]), int(wrong)))

    def close(self) -> None:
        self.file.close()


def submit(name: str, load: Load, folder: str) -> JobHandle:
    job = plait.Job(name)
    keyed = job.source(Due(load), name="due").key_by("key")
    counted = keyed.aggregate(last=plait.last("seq"), n=plait.count(), text=plait.last("text"))
    counted.select("last", "n").sink(Log(load), name="log")
    saved = plait.Checkpoint(folder, every=f"{EVERY_S:g}s", max_age="10m")
    return plait.submit(
        job, address="local", nodes=2, namespace=NAMESPACE, workers=1, checkpoint=saved
    )


def kill(handle: JobHandle, who: str) -> None:
    view = handle.status()
    pids = {node.rank: node.pid for node in view.members}
    home = pids.pop(view.home)
    victims = {"node": list(pids.values()), "home": [home], "all": [home, *pids.values()]}
    for pid in victims[who]:
        os.kill(pid, signal.SIGKILL)


def is_ready(handle: JobHandle, attempt: int) -> bool:
    """Whether it runs on two nodes again, and has saved since."""
    view = handle.status()
    if view.over:
        raise CheckFailed(str(view))
    saved = view.checkpoint
    assert saved is not None
    moving = view.migration is not None and view.migration.phase not in ("done", "failed")
    fresh = saved.recovery is None or saved.number > saved.recovery.number + 1
    return (
        view.phase == "running"
        and len(view.members) == 2
        and not moving
        and saved.attempt >= attempt
        and saved.number >= 2
        and fresh
    )


def measure(handle: JobHandle, load: Load, who: str) -> dict[str, float]:
    """Kills once."""
    view = handle.status()
    assert view.checkpoint is not None
    attempt = view.checkpoint.attempt
    wait_for("two nodes", lambda: is_ready(handle, attempt))
    usual_s = wait_steady(load)
    killed_at, clock = time.time(), time.monotonic()
    kill(handle, who)
    found = wait_outage(load, killed_at, usual_s)
    wait_for("the way back", lambda: is_back(handle, attempt))
    saved = handle.status().checkpoint
    assert saved is not None
    assert saved.recovery is not None
    steps: dict[str, float] = {}
    for name, seconds in saved.recovery.steps:
        steps[name] = steps.get(name, 0.0) + seconds
    found["detect_s"] = saved.recovery.began_at - clock
    for name in ("halt", "place", "survey", "prepare", "load", "begin"):
        if name in steps:
            found[f"{name}_s"] = steps[name]
    nodes = 2 if who == "all" else 1
    found["load_mb_per_s"] = load.size_mb / nodes / max(steps.get("load", 0.0), 1e-3)
    return found


def is_back(handle: JobHandle, attempt: int) -> bool:
    saved = handle.status().checkpoint
    back = None if saved is None else saved.recovery
    return back is not None and back.attempt > attempt and back.ended_at is not None


def plait_round(size_mb: int, rate: int, turn: int) -> dict[str, dict[str, float]]:
    """A job of its own: the restart policy allows a few kills in a while."""
    with tempfile.TemporaryDirectory() as folder:
        load = Load(size_mb=size_mb, rate=rate, start=time.time() + 5.0, log=f"{folder}/log")
        handle = submit(f"recovery-{size_mb}-{turn}", load, f"{folder}/saved")
        try:
            wait_for("a full state", lambda: has_all(handle, load))
            found = {}
            for who in WHO:
                progress(f"recovery: plait, {size_mb} MB, {who}, {turn + 1}")
                found[who] = measure(handle, load, who)
            return found
        finally:
            with contextlib.suppress(plait.PlaitError):
                handle.cancel()
                handle.wait(60)
            handle.forget()


def has_all(handle: JobHandle, load: Load) -> bool:
    view = handle.status()
    if view.over:
        raise CheckFailed(str(view))
    return is_full(load)


def flink_rounds(size_mb: int, rate: int, turn: int) -> dict[str, dict[str, float]]:
    progress(f"recovery: Flink, {size_mb} MB, {turn + 1}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = Load(size_mb=size_mb, rate=rate, start=time.time() + 15.0, log=f"{name}/log")
        return flink_round(load, folder / "flink", EVERY_S)


def summarise(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The median of every figure, and the least and the greatest of those that users feel."""
    found: dict[str, Any] = {}
    for who in WHO:
        names = [name for name in rounds[0][who] if all(name in each[who] for each in rounds)]
        samples = {name: Sample(tuple(each[who][name] for each in rounds)) for name in names}
        found[who] = {name: round(sample.median, 3) for name, sample in samples.items()}
        for name in ("first_output_s", "caught_up_s"):
            values = samples[name].values
            found[who][f"{name[:-2]}_range_s"] = [round(min(values), 2), round(max(values), 2)]
    return found


def run(options: Options) -> dict[str, Any]:
    sizes = (64,) if options.quick else (64, 256, 1024)
    rate = 20_000
    rounds = options.repeat(1, 3)
    figures: dict[str, Any] = {"rate_per_s": rate, "every_s": EVERY_S, "rounds": rounds}
    with_flink = not options.quick
    # Ray says on stdout that a process was killed.
    with own_ray(), contextlib.redirect_stdout(sys.stderr):
        for size_mb in sizes:
            ours, theirs = [], []
            for turn in range(rounds):
                ours.append(plait_round(size_mb, rate, turn))
                if with_flink:
                    try:
                        theirs.append(flink_rounds(size_mb, rate, turn))
                    except Unavailable as reason:
                        figures["flink"] = f"not measured: {reason}"
                        with_flink = False
            figures[f"plait_{size_mb}mb"] = summarise(ours)
            if theirs:
                figures[f"flink_{size_mb}mb"] = summarise(theirs)
    return figures


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    sizes = {name: of for name, of in figures.items() if isinstance(of, dict)}
    first = {name: {who: of[who]["first_output_s"] for who in WHO} for name, of in sizes.items()}
    bars(file, [("After a kill", "seconds to the first row", first)])
