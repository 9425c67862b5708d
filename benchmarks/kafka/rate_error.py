"""How well the rate of a source is estimated: topics on a real broker, records by a schedule.

An injector in a process of its own sends a steady rate, twice and half of it, a ramp, a sine and
bursts, to topics of 1 and of 8 partitions (the last of which is idle), without transactions and
with some. A job that does nothing else reads each topic. Five times a second its estimate is
compared with what the injector counted in the same second: `mean` and `deviation` of the signed
error, and `p90` of its amount, in percent; in `settled` without the two seconds after a phase
began, where the second that is compared lies in two phases. `step_s` is how long after a step the
estimate came within 5 % of the new rate. `paper` is the estimate from lag metrics over the last
second, on the same looks. Every record that was sent must have been read, and no lag left.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.common import ROOT, CheckFailed, Options, progress
from plait.testing.broker import broker

if TYPE_CHECKING:
    from plait.testing.broker import LocalBroker

Phase = tuple[str, float, str, float, float]
TOPICS = {"1": (1, 0, False), "8_one_idle": (8, 1, False), "8_transactions": (8, 0, True)}
"""Partitions, how many of them are idle, and whether there are transactions."""
RATE = 4000.0
PROGRAM = (sys.executable, "-m", "benchmarks.support.injector")
LOOK_S = 0.2
WITHIN = 0.05
SETTLE_S = 2.0
PATIENCE_S = 30.0


def phases(seconds: float) -> list[Phase]:
    return [
        ("constant", seconds, "constant", RATE, RATE),
        ("double", seconds, "constant", 2 * RATE, RATE),
        ("half", seconds, "constant", RATE, RATE),
        ("ramp", seconds, "ramp", RATE, 2 * RATE),
        ("sine", seconds, "sine", RATE, RATE),
        ("bursts", seconds, "bursts", RATE / 2, RATE * 3),
    ]


class Topic:
    """A topic with its injector and the job that reads it."""

    def __init__(self, kafka: LocalBroker, name: str, plan: list[Phase], folder: Path) -> None:
        partitions, idle, transactions = TOPICS[name]
        self.name = name
        self.topic = kafka.make_topic("rate", partitions)
        self.file = folder / f"{name}.counts"
        source = plait.Kafka(self.topic, format="bytes", servers=kafka.servers, label="topic")
        self.running = started(f"rate-{name}", source)
        given = [kafka.servers, self.topic, partitions, idle, int(transactions), self.file]
        self.injector = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.support.injector",
                *map(str, given),
                json.dumps(plan),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.partitions = partitions
        self.looks: list[tuple[float, float, float, float]] = []
        """When, the estimate, the greatest lag of a partition, and how many were read."""
        assert self.injector.stdout is not None
        self.injector.stdout.readline()

    def begin(self) -> None:
        assert self.injector.stdin is not None
        self.injector.stdin.write("go\n")
        self.injector.stdin.flush()

    def look(self) -> None:
        rate = self.running.rates().get("topic")
        if rate is None:
            return
        lag_max = max((each.lag or 0.0 for _, each in rate.partitions), default=0.0)
        read = self.running.engine.records_read()
        self.looks.append((time.monotonic(), rate.per_s, lag_max, float(read)))

    def finish(self) -> None:
        """Waits until all is read, and checks it."""
        if self.injector.wait(PATIENCE_S) != 0:
            raise CheckFailed(f"{self.name}: the injector failed")
        sent = int(self.counts()[1][-1])
        until = time.monotonic() + PATIENCE_S
        while True:
            lag = self.running.rates()["topic"].lag
            if self.running.engine.records_read() == sent and lag == 0.0:
                break
            if time.monotonic() > until:
                read = self.running.engine.records_read()
                raise CheckFailed(f"{self.name}: {sent} sent, {read} read, lag {lag}")
            time.sleep(LOOK_S)
        self.running.stop()
        self.running.wait(progress=False)

    def counts(self) -> tuple[Any, Any]:
        rows = np.fromfile(self.file, "<f8").reshape(-1, 2)
        return rows[:, 0], rows[:, 1]

    def end(self) -> None:
        self.injector.kill()
        self.injector.wait()
        for pipe in (self.injector.stdin, self.injector.stdout):
            if pipe is not None:
                pipe.close()


def started(name: str, source: plait.Kafka) -> Any:
    """A job that reads a topic. A broker needs a moment until partitions of a new one are led."""
    job = plait.Job(name)
    job.source(source).sink(plait.Discard(), "out")
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return plait.start(job, workers=1)
        except plait.SourceError:
            if time.monotonic() > until:
                raise
            time.sleep(LOOK_S)


def run(options: Options) -> dict[str, Any]:
    plan = phases(float(options.pick(6, 30)))
    with tempfile.TemporaryDirectory(prefix="plait-rate-") as folder, broker() as kafka:
        topics: list[Topic] = []
        try:
            for name in TOPICS:
                topics.append(Topic(kafka, name, plan, Path(folder)))
            for topic in topics:
                topic.begin()
            began = time.monotonic()
            while (at := time.monotonic() - began) < sum(phase[1] for phase in plan):
                progress(f"rate_error {at:.0f} s")
                for topic in topics:
                    topic.look()
                time.sleep(LOOK_S)
            for topic in topics:
                topic.finish()
            figures = {topic.name: figures_of(topic, plan) for topic in topics}
        finally:
            for topic in topics:
                topic.end()
    return {"phase_s": plan[0][1], "rate_per_s": RATE, **figures}


def figures_of(topic: Topic, plan: list[Phase]) -> dict[str, Any]:
    times, counts = topic.counts()
    looks = np.array(topic.looks)
    at, ours = looks[:, 0], looks[:, 1]
    real = np.interp(at, times, counts) - np.interp(at - 1.0, times, counts)
    papers = paper_estimates(looks, topic.partitions)
    began = float(times[0])
    made: dict[str, Any] = {}
    all_ours, all_papers, all_settled = [], [], []
    for name, seconds, _, rate, _ in plan:
        skipped = 1.0 if name == plan[0][0] else 0.0  # before, there was no second to count
        inside = (at >= began + skipped) & (at < began + seconds) & (real > 0.0)
        settled = inside & (at >= began + SETTLE_S)
        errors, papers_errors = ours[inside] / real[inside] - 1, papers[inside] / real[inside] - 1
        all_ours += list(errors)
        all_papers += list(papers_errors)
        all_settled += list(ours[settled] / real[settled] - 1)
        made[name] = {**errors_of(errors), "settled": errors_of(ours[settled] / real[settled] - 1)}
        made[name]["paper"] = errors_of(papers_errors)
        if name in ("double", "half"):
            made[name]["step_s"] = step_s(at - began, ours, rate, seconds)
        began += seconds
    return {
        "all": errors_of(all_ours),
        "settled": errors_of(all_settled),
        "paper": errors_of(all_papers),
        "phases": made,
    }


def paper_estimates(looks: Any, partitions: int) -> Any:
    """By lag metrics whose windows are a second."""
    from plait.shedding.rates import by_lag_metrics

    at, lag_max, read = looks[:, 0], looks[:, 2], looks[:, 3]
    found = []
    for now, lag, count in zip(at, lag_max, read, strict=True):
        before = max(now - 1.0, float(at[0]))
        seconds = max(now - before, 1e-9)
        consumed = (count - float(np.interp(before, at, read))) / seconds
        found.append(
            by_lag_metrics(
                lag_max_before=float(np.interp(before, at, lag_max)),
                lag_max=lag,
                seconds=seconds,
                consumed_per_s=consumed,
                assigned=partitions,
                partitions=partitions,
            )
        )
    return np.array(found)


def errors_of(errors: Any) -> dict[str, float]:
    values = [100.0 * float(error) for error in errors]
    if len(values) < 2:
        return {}
    return {
        "mean": round(statistics.fmean(values), 2),
        "deviation": round(statistics.stdev(values), 2),
        "p90": round(float(np.percentile(np.abs(values), 90)), 2),
    }


def step_s(since: Any, ours: Any, rate: float, most: float) -> float | None:
    """From the step until the first estimate that is near; None: it never was."""
    near = (since >= 0.0) & (since < most) & (np.abs(ours / rate - 1.0) <= WITHIN)
    return round(float(since[near][0]), 2) if near.any() else None


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support import charts

    groups = {
        name: {topic: figures[topic]["phases"][name].get("p90", 0.0) for topic in TOPICS}
        for name in figures["1"]["phases"]
    }
    charts.bars(file, [("error of estimated rates, p90", "%", groups)])
