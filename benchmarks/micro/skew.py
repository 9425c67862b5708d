"""Hybrid, partitioned and shared queue, and plait's own lanes, under Gaussian skew (Fig. 9, 10).

Keys are made so that their bins, which are ranges of the hash, carry the mass of a Gaussian: the
smaller sigma is, the fewer bins hold most rows. It is the positive half of it, |N(0, sigma)| on
[0, 1], because the two halves of the whole one would be equal on two workers. As in the paper the
partitioned queue has one partition a worker and the others have many. The work of a record is
what happens to its state: 12 aggregates. Latency is that of a paced replay at half of the lowest
rate, uniform keys.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.common import (
    Options,
    budget_of,
    check_equal,
    interleave,
    millions,
    progress,
    ratio,
    replayed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 2
MANY = 64
ROWS = 200_000
DISTINCT = 20_000
SIGMAS = {"uniform": 0.0, "sigma_1": 1.0, "sigma_0.5": 0.5, "sigma_0.25": 0.25, "sigma_0.1": 0.1}
QUEUES: dict[str, dict[str, Any]] = {
    "hybrid": {"queue": "hybrid", "lanes": MANY},
    "partitioned": {"queue": "partitioned", "lanes": WORKERS},
    "shared": {"queue": "shared", "lanes": MANY},
    "lanes": {"queue": "lanes", "lanes": WORKERS},
    "lanes_many": {"queue": "lanes", "lanes": MANY},
}
EPOCHS = (64, 1024)
UNHASH = pow(0x9E3779B97F4A7C15, -1, 2**64)
"""The hash of an int64 key is one multiplication; this one takes it back."""


def keys_of(sigma: float, random: np.random.Generator) -> Any:
    """Keys whose hashes are spread over the bins as |N(0, sigma)| is over [0, 1]; 0: uniform."""
    places = random.random(DISTINCT)
    if sigma:
        drawn = np.abs(random.normal(0.0, sigma, 40 * DISTINCT))
        places = drawn[drawn < 1.0][:DISTINCT]
    hashes = (places * 2**53).astype(np.uint64) << np.uint64(11)
    with np.errstate(over="ignore"):
        keys = (hashes * np.uint64(UNHASH)).view(np.int64)
    return keys[random.integers(0, len(keys), ROWS)]


def aggregates() -> dict[str, Any]:
    kinds = (plait.sum, plait.min, plait.max, plait.mean, plait.first, plait.last)
    return {f"a{i}": kinds[i % len(kinds)]("v") for i in range(12)}


def job(table: Any, sink: plait.Sink, rate_per_s: float | None = None) -> Any:
    source = plait.Table(table, rate_per_s=rate_per_s)
    return plait.stream(source).key_by("key").aggregate(**aggregates()).sink(sink)


def hottest_part(keys: Any, parts: int) -> float:
    """The share of the rows that the fullest of equal ranges of the hash gets."""
    with np.errstate(over="ignore"):
        hashes = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    counts = np.bincount((hashes >> np.uint64(54)).astype(np.int64) // (1024 // parts))
    return round(float(counts.max() / len(keys)), 3)


def check(columns: dict[str, Any]) -> None:
    """Every queue gives the running sums of a loop, row by row."""
    rows = 20_000
    sums: dict[int, int] = {}
    wanted: list[int] = []
    pairs = zip(columns["key"][:rows].tolist(), columns["v"][:rows].tolist(), strict=True)
    for key, value in pairs:
        sums[key] = sums.get(key, 0) + value
        wanted.append(sums[key])
    table = replayed(columns, rows)
    for name, settings in QUEUES.items():
        for epoch in (1, 64):
            done = plait.run(
                job(table, plait.Collect(label="out")),
                workers=WORKERS,
                epoch_records=epoch,
                **settings,
            )
            check_equal(f"{name}, batches of {epoch}", done.outputs["out"]["a0"], wanted)


def run(options: Options) -> dict[str, Any]:
    random = np.random.default_rng(7)
    values = random.integers(0, 1000, ROWS)
    data = {name: {"key": keys_of(s, random), "v": values} for name, s in SIGMAS.items()}
    progress("checking all variants")
    check(data["sigma_0.25"])
    rows = options.pick(600_000, 3_000_000)
    tables = {name: replayed(columns, rows) for name, columns in data.items()}

    def rate(queue: str, skew: str, epoch: int) -> float:
        made = job(tables[skew], plait.Discard())
        settings = QUEUES[queue]
        return plait.run(
            made, workers=WORKERS, epoch_records=epoch, progress=False, **settings
        ).records_per_s

    variants: dict[str, Callable[[], float]] = {
        f"{skew}_{epoch}_{queue}": partial(rate, queue, skew, epoch)
        for skew in SIGMAS
        for epoch in EPOCHS
        for queue in QUEUES
    }
    budget = budget_of(options)
    budget.seconds -= 8 if options.quick else 0  # for the latencies
    found = interleave(variants, options.repeat(2, 7), budget, "skew")
    middle = {name: sample.median for name, sample in found.items()}
    throughput = {
        f"batch_{epoch}": {
            skew: {
                "hottest_of_2": hottest_part(data[skew]["key"], WORKERS),
                "hottest_of_64": hottest_part(data[skew]["key"], MANY),
                **{queue: millions(middle[f"{skew}_{epoch}_{queue}"]) for queue in QUEUES},
                "hybrid_over_partitioned": ratio(
                    middle[f"{skew}_{epoch}_hybrid"], middle[f"{skew}_{epoch}_partitioned"]
                ),
            }
            for skew in SIGMAS
        }
        for epoch in EPOCHS
    }
    skewed = f"batch_{EPOCHS[-1]}"
    return {
        "kept_under_skew": {
            queue: ratio(
                throughput[skewed]["sigma_0.1"][queue], throughput[skewed]["uniform"][queue]
            )
            for queue in QUEUES
        },
        "throughput_m_per_s": throughput,
        "latency_ms": latency(options, data["uniform"], middle),
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "rounds": min(len(sample.values) for sample in found.values()),
    }


def latency(options: Options, columns: dict[str, Any], rates: dict[str, float]) -> dict[str, Any]:
    """The same load for all queues: half of what the slowest of them can do."""
    made: dict[str, Any] = {}
    for epoch in EPOCHS:
        load = min(rates[f"uniform_{epoch}_{queue}"] for queue in QUEUES) / 2
        table = replayed(columns, int(load * (0.5 if options.quick else 2)))
        made[f"batch_{epoch}"] = {"load_m_per_s": millions(load)}
        for queue, settings in QUEUES.items():
            progress(f"skew latency, batches of {epoch}, {queue}")
            paced = job(table, plait.Discard(), rate_per_s=load)
            done = plait.run(
                paced, workers=WORKERS, epoch_records=epoch, progress=False, **settings
            )
            made[f"batch_{epoch}"][queue] = {
                "p50": round(done.latency.p50_ms, 3),
                "p99": round(done.latency.p99_ms, 3),
            }
    return made


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.plots import bars

    shown = f"batch_{EPOCHS[-1]}"
    rates = {
        skew.replace("_", " "): {queue: given[queue] for queue in QUEUES}
        for skew, given in figures["throughput_m_per_s"][shown].items()
    }
    waits = {
        batch.replace("_", " "): {queue: given[queue]["p50"] for queue in QUEUES}
        for batch, given in figures["latency_ms"].items()
    }
    bars(
        file,
        [
            ("Rate under skew (Fig. 9)", "million rows a second", rates),
            ("Median latency at the same load (Fig. 10)", "milliseconds", waits),
        ],
    )
