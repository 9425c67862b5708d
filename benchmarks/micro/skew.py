"""Hybrid, partitioned and shared queue, and plait's own lanes, under Gaussian skew (Fig. 9, 10).

Keys are made so that their bins, which are ranges of the hash, carry the mass of a Gaussian: the
smaller sigma is, the fewer bins hold most rows. It is the positive half of it, |N(0, sigma)| on
[0, 1], because the two halves of the whole one would be equal on two workers. As in the paper the
partitioned queue has one partition a worker and the others have many. The work of a record is what
happens to its state: one sum, or 12 aggregates. Latency is that of a paced replay of uniform keys
at half of the lowest rate.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.common import (
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
TRIED_ROWS = 40_000
SIGMAS = {"uniform": 0.0, "sigma_1": 1.0, "sigma_0.5": 0.5, "sigma_0.25": 0.25, "sigma_0.1": 0.1}
QUICK_SIGMAS = ("uniform", "sigma_0.5", "sigma_0.1")
QUEUES: dict[str, dict[str, Any]] = {
    "hybrid": {"queue": "hybrid", "lanes": MANY},
    "partitioned": {"queue": "partitioned", "lanes": WORKERS},
    "shared": {"queue": "shared", "lanes": MANY},
    "lanes": {"queue": "lanes", "lanes": WORKERS},
    "lanes_many": {"queue": "lanes", "lanes": MANY},
}
SHAPES = {"sum_64": (1, 64), "sum_1024": (1, 1024), "twelve_4096": (12, 4096)}
"""How many aggregates a record goes into, and how many records a batch has."""
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


def aggregates(number: int) -> dict[str, Any]:
    kinds = (plait.sum, plait.min, plait.max, plait.mean, plait.first, plait.last)
    return {f"a{i}": kinds[i % len(kinds)]("v") for i in range(number)}


def job(table: Any, number: int, sink: plait.Sink, rate_per_s: float | None = None) -> Any:
    source = plait.Table(table, rate_per_s=rate_per_s)
    return plait.stream(source).key_by("key").aggregate(**aggregates(number)).sink(sink)


def run_once(
    table: Any, shape: str, queue: str, sink: plait.Sink, load: float | None = None
) -> plait.Result:
    number, epoch = SHAPES[shape]
    made = job(table, number, sink, load)
    settings = QUEUES[queue]
    return plait.run(made, workers=WORKERS, epoch_records=epoch, progress=False, **settings)


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
    for queue in QUEUES:
        for shape in SHAPES:
            done = run_once(table, shape, queue, plait.Collect(label="out"))
            check_equal(f"{queue}, {shape}", done.outputs["out"]["a0"], wanted)


def run(options: Options) -> dict[str, Any]:
    random = np.random.default_rng(7)
    values = random.integers(0, 1000, ROWS)
    skews = QUICK_SIGMAS if options.quick else tuple(SIGMAS)
    data = {name: {"key": keys_of(SIGMAS[name], random), "v": values} for name in skews}
    progress("checking all variants")
    check(data["sigma_0.5"])
    budget = budget_of(options)
    budget.seconds -= 9 if options.quick else 0  # for the latencies
    seconds = 0.12 if options.quick else 0.5

    tried = replayed(data["uniform"], TRIED_ROWS)
    rows: dict[tuple[str, str], int] = {}
    for shape in SHAPES:
        for queue in QUEUES:
            found_rate = run_once(tried, shape, queue, plait.Discard()).records_per_s
            rows[shape, queue] = int(max(TRIED_ROWS, found_rate * seconds))

    def rate(queue: str, skew: str, shape: str) -> float:
        table = replayed(data[skew], rows[shape, queue])
        return run_once(table, shape, queue, plait.Discard()).records_per_s

    variants: dict[str, Callable[[], float]] = {
        f"{skew}_{shape}_{queue}": partial(rate, queue, skew, shape)
        for skew in skews
        for shape in SHAPES
        for queue in QUEUES
    }
    found = interleave(variants, options.repeat(3, 7), budget, "skew")
    middle = {name: sample.median for name, sample in found.items()}
    throughput = {
        shape: {skew: compared(middle, skew, shape) for skew in skews} for shape in SHAPES
    }
    return {
        "kept_under_skew": {
            shape: {
                queue: ratio(
                    throughput[shape][skews[-1]][queue], throughput[shape]["uniform"][queue]
                )
                for queue in QUEUES
            }
            for shape in SHAPES
        },
        "throughput_m_per_s": throughput,
        "latency_ms": latency(options, data["uniform"], middle),
        "hottest_part_ratio": {
            skew: {
                f"of_{parts}": hottest_part(data[skew]["key"], parts) for parts in (WORKERS, MANY)
            }
            for skew in skews
        },
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "rounds": min(len(sample.values) for sample in found.values()),
    }


def compared(middle: dict[str, float], skew: str, shape: str) -> dict[str, float]:
    rates = {queue: middle[f"{skew}_{shape}_{queue}"] for queue in QUEUES}
    return {
        **{queue: millions(value) for queue, value in rates.items()},
        "hybrid_over_partitioned": ratio(rates["hybrid"], rates["partitioned"]),
        "hybrid_over_shared": ratio(rates["hybrid"], rates["shared"]),
        "lanes_over_hybrid": ratio(rates["lanes"], rates["hybrid"]),
    }


def latency(options: Options, columns: dict[str, Any], rates: dict[str, float]) -> dict[str, Any]:
    """The same load for all queues: half of what the slowest of them can do."""
    made: dict[str, Any] = {}
    for shape in SHAPES:
        load = min(rates[f"uniform_{shape}_{queue}"] for queue in QUEUES) / 2
        table = replayed(columns, int(load * (0.5 if options.quick else 2)))
        made[shape] = {"load_m_per_s": millions(load)}
        for queue in QUEUES:
            progress(f"skew latency, {shape}, {queue}")
            found = run_once(table, shape, queue, plait.Discard(), load).latency
            made[shape][queue] = {"p50": round(found.p50_ms, 3), "p99": round(found.p99_ms, 3)}
    return made


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    panels = []
    for shape in ("sum_1024", "twelve_4096"):
        rates = {
            skew.replace("_", " "): {queue: given[queue] for queue in QUEUES}
            for skew, given in figures["throughput_m_per_s"][shape].items()
        }
        panels.append((f"{shape.replace('_', ', batches of ')} (Fig. 9)", "million rows/s", rates))
    waits = {
        shape.replace("_", " "): {queue: given[queue]["p50"] for queue in QUEUES}
        for shape, given in figures["latency_ms"].items()
    }
    panels.append(("Median latency at the same load (Fig. 10)", "milliseconds", waits))
    bars(file, panels)
