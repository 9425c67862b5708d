"""Many rescales of one job under load, on a real Ray of this machine: `make soak RESCALES=200`.

The number of nodes goes up and down, by every strategy in turn. At the end the output must be what
the oracle gives for the records that were read, and nothing may grow (`growth.py`): processes, open
files and memory of everything that was started, each time the job is back at its first size.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import plait
from plait import col
from plait.testing.oracle import sequential
from tests.soak.growth import Sample, growth, second_half, slopes, take_sample

if TYPE_CHECKING:
    from plait.coordinator.messages.requests import Strategy

RATE = 4_000
KEYS = 1009
SIZES = (3, 2, 4, 2, 1, 2)
"""Sizes of the job, again and again; it begins with two nodes."""
STRATEGIES: tuple[Strategy, ...] = ("fluid", "batched", "optimised", "all_at_once")
PATIENCE_S = 300.0
TRIES = 5
"""A rescale whose new nodes are not made in time, on a machine with much to do, is asked for again;
the job must have gone on without them."""
COLUMNS = ("key", "seq", "n")
SMALL_CACHES = {
    "RAY_LOG_MONITOR_MAX_OPEN_FILES": "10",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_maximum_gcs_destroyed_actor_cached_count": "10",
}
"""Ray keeps things of processes that have ended, up to a number: log files (200), records of calls
(100,000), actors (100,000). They would fill all the time, and hide what grows without end."""


class Digest(plait.Sink):
    """Keeps no rows: their number, and a digest of each column."""

    def open(self, schema: Any) -> DigestWriter:
        return DigestWriter()


class DigestWriter(plait.Writer):
    """The digests do not depend on how rows are cut into batches."""

    def __init__(self) -> None:
        self.rows = 0
        self.digests = {name: hashlib.blake2b(digest_size=16) for name in COLUMNS}

    def write(self, batch: Any) -> None:
        self.rows += batch.num_rows
        for name, digest in self.digests.items():
            digest.update(batch.column(name).to_numpy().astype("<i8").tobytes())

    def close(self) -> list[Any]:
        return [self.rows, *(digest.hexdigest() for digest in self.digests.values())]


def running_count(source: Any, sink: Any) -> plait.Job:
    job = plait.Job("soak")
    keyed = job.source(source).with_columns(key=col("seq") * 7919 % KEYS).key_by("key")
    keyed.aggregate(seq=plait.last("seq"), n=plait.count()).sink(sink, name="out")
    return job


def right_answer(records: int) -> list[Any]:
    """What the oracle gives for so many records, as the sink would tell it."""
    import pyarrow as pa

    job = running_count(plait.Rate(RATE, total=records), plait.Collect())
    rows = sequential(job.graph()).outputs["out"]
    writer = DigestWriter()
    for start in range(0, len(rows), 100_000):
        part = zip(*rows[start : start + 100_000], strict=True)
        writer.write(pa.RecordBatch.from_arrays([pa.array(one) for one in part], names=COLUMNS))
    return writer.close()


def line(one: Sample) -> str:
    return json.dumps({name: round(value) for name, value in asdict(one).items()})


def rescale(handle: plait.JobHandle, size: int, strategy: Strategy) -> int:
    """Until the job has this size; how often it was given up before."""
    for given_up in range(TRIES):
        try:
            handle.rescale(size, strategy=strategy).wait(PATIENCE_S)
        except plait.JobError as error:
            print(f"{error}\n{handle.status()}", flush=True)
            if handle.status().phase != "running":
                raise
        else:
            return given_up
    raise plait.JobError(f"{TRIES} times no rescale to {size} nodes came to its end")


def soak(rescales: int, minutes: float | None) -> tuple[list[Sample], list[str], dict[str, Any]]:
    """Samples, what is wrong, and figures."""
    handle = plait.submit(
        running_count(plait.Rate(RATE), Digest()),
        address="local",
        nodes=2,
        workers=1,
        epoch_records=512,
        silence="60s",
        wait="running",
    )
    samples, took_s = [take_sample(0, 0)], []
    print(line(samples[0]), flush=True)
    end = None if minutes is None else time.monotonic() + minutes * 60
    steps = zip(itertools.cycle(SIZES), itertools.cycle(STRATEGIES), range(1, rescales + 1))
    size_before, done, ended, given_up = 2, 0, 0, 0
    for size, strategy, done in steps:
        began = time.monotonic()
        given_up += rescale(handle, size, strategy)
        took_s.append(time.monotonic() - began)
        ended += max(size_before - size, 0)
        size_before = size
        if done % len(SIZES) == 0:
            samples.append(take_sample(done, ended))
            print(line(samples[-1]), flush=True)
            if end is not None and time.monotonic() > end:
                break
    handle.stop()
    result = handle.result(PATIENCE_S)
    got = result.outputs["out"]
    wrong = growth(samples)
    if got != right_answer(result.account.read):
        wrong.append(f"the output is not that of the oracle for {result.account.read:,} records")
    if result.account.difference:
        wrong.append(f"the account is off by {result.account.difference}")
    figures = {
        "rescales": done,
        "given_up": given_up,
        "records": result.account.read,
        "median_s": round(statistics.median(took_s), 2),
        "longest_s": round(max(took_s), 2),
    }
    handle.forget()
    return samples, wrong, figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--rescales", type=int, default=200, metavar="N")
    parser.add_argument("--minutes", type=float, help="end earlier, after this time")
    given = parser.parse_args()
    # A short path: Ray puts sockets into it, whose names may not be long.
    with tempfile.TemporaryDirectory(prefix="pl", dir="/tmp") as folder:
        os.environ |= {
            "RAY_TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            **SMALL_CACHES,
        }
        os.environ.pop("RAY_ADDRESS", None)
        logging.disable(logging.WARNING)
        try:
            samples, wrong, figures = soak(given.rescales, given.minutes)
        finally:
            ray = sys.modules.get("ray")
            if ray is not None:
                ray.shutdown()
    print(f"half-way:   {line(second_half(samples)[0])}")
    print(f"at the end: {line(samples[-1])}")
    print("from there to there, with each rescale (Ray: with each node that has ended):")
    print(json.dumps({name: round(value, 3) for name, value in slopes(samples).items()}))
    print(json.dumps(figures))
    print("\n".join(f"wrong: {one}" for one in wrong) or "right and flat")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
