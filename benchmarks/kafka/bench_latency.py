"""How long a record takes from one topic through a job into another, at half load.

A process writes records at a rate and reads what the job makes of them; the latency is from when a
record was due to when a reader of committed records has it. The job decodes JSON, computes a column
and encodes JSON. Half load is half of the rate at which it works off a backlog without checkpoints.
`at_least_once` has none; with checkpoints every second rows are visible at these
(`exactly_once`), or, with `commit="100ms"`, every 0.1 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import plait
from benchmarks.support.common import CheckFailed, Options, progress
from plait.testing.broker import LocalBroker, broker

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {"n": int, "at": int}
JOBS: dict[str, dict[str, Any]] = {
    "at_least_once": {},
    "commit_100ms": {"checkpoint": True, "commit": "100ms"},
    "exactly_once": {"checkpoint": True},
}


def make_job(
    kafka: LocalBroker, topic_in: str, topic_out: str, commit: str | None = None, end: Any = None
) -> plait.Job:
    job = plait.Job(topic_out)
    source = plait.Kafka(topic_in, schema=COLUMNS, servers=kafka.servers, end=end)
    rows = job.source(source, "in").with_columns(twice=plait.col("n") * 2)
    rows.sink(plait.Kafka(topic_out, servers=kafka.servers, commit=commit), "out")
    return job


def capacity(kafka: LocalBroker, rows: int) -> float:
    """Records a second, of a backlog."""
    topic_in, topic_out = kafka.make_topic("backlog"), kafka.make_topic("out")
    kafka.produce(topic_in, [b'{"n": %d, "at": 1700000000000000}' % n for n in range(rows)])
    began = time.perf_counter()
    plait.run(make_job(kafka, topic_in, topic_out, end="latest"), workers=2, progress=False)
    return rows / (time.perf_counter() - began)


def latency(kafka: LocalBroker, how: dict[str, Any], rate: int, seconds: float) -> dict[str, float]:
    topic_in, topic_out = kafka.make_topic("in"), kafka.make_topic("out")
    job = make_job(kafka, topic_in, topic_out, how.get("commit"))
    client = [sys.executable, "-m", "benchmarks.kafka.client", kafka.servers, topic_in, topic_out]
    with tempfile.TemporaryDirectory() as folder:
        saved = plait.Checkpoint(folder, every="1s") if "checkpoint" in how else None
        running = plait.start(job, workers=2, checkpoint=saved)
        try:
            done = subprocess.run(
                [*client, str(rate), str(seconds)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                check=True,
                timeout=seconds + 120,
            )
        finally:
            running.stop()
            running.wait(progress=False)
    found: dict[str, Any] = json.loads(done.stdout)
    if "error" in found:
        raise CheckFailed(f"{topic_out}: {found['error']}")
    return found


def run(options: Options) -> dict[str, Any]:
    seconds = 6.0 if options.quick else 30.0
    with broker() as kafka:
        progress("kafka_latency: a backlog")
        most = max(capacity(kafka, 100_000) for _ in range(2))
        rate = int(most / 2)
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in JOBS}
        for turn in range(options.repeat(1, 5)):
            for name, how in JOBS.items():
                progress(f"kafka_latency {turn + 1} {name}")
                rounds[name].append(latency(kafka, how, rate, seconds))
    figures = {name: sorted(each, key=p99)[len(each) // 2] for name, each in rounds.items()}
    return {
        **{f"{name}_p99_ms": found["p99_ms"] for name, found in figures.items()},
        "latency": figures,
        "all": rounds,
        "rate_per_s": rate,
        "backlog_per_s": round(most),
        "seconds": seconds,
        "unit": "milliseconds from due to read; broker, job and client on the same machine",
    }


def p99(found: dict[str, float]) -> float:
    return found["p99_ms"]


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    shown = {
        name: {"median": found["p50_ms"], "99 %": found["p99_ms"]}
        for name, found in figures["latency"].items()
    }
    bars(file, [("Through two topics at half load", "milliseconds", shown)])
