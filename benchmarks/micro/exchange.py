"""A keyed count over two nodes of one worker, beside one process with two workers.

Both read the same table and drop the results at the end. In total order all results go to the
sinks of one node; with order="key" each node has its own. `total_vs_one_process` and
`key_vs_one_process` are rates over the rate of one process, each at its best epoch length, the
worse of the key sets; `p50_ms` and `p99_ms` are those of total order at half of its top rate, from
the time each record was due. An epoch of E records here means E records a node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.common import (
    BUILD,
    Budget,
    Options,
    Sample,
    budget_of,
    check_equal,
    interleave,
    millions,
    progress,
    ratio,
    replayed,
    worst,
)
from benchmarks.support.nodes import Nodes, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

NODES = 2
CHECKED_ROWS = 200_000
ROWS_ONCE = 4_000_000
LATENCY_EPOCH = 4096


@lru_cache(maxsize=2)
def keys_of(path: str) -> Any:
    return np.fromfile(path, np.int64)


def counting(path: str, rows: int, rate_per_s: float | None, collect: bool) -> Any:
    """The job, made in the process that runs it."""
    keys = keys_of(path)
    source = plait.Table(replayed({"key": keys}, rows), rate_per_s=rate_per_s)
    sink = plait.Collect(label="out") if collect else plait.Discard()
    return plait.stream(source).key_by("key").count().sink(sink)


def draw(name: str, path: Path) -> None:
    """Random 64-bit keys. Hot: half of the rows on 100 keys, half uniform over 10^5."""
    random = np.random.default_rng(7)
    distinct = 10**5 if name == "hot" else 10**6
    keys = random.integers(-(2**63), 2**63 - 1, distinct, dtype=np.int64)
    chosen = random.integers(0, distinct, ROWS_ONCE)
    if name == "hot":
        chosen = np.where(random.random(ROWS_ONCE) < 0.5, chosen % 100, chosen)
    keys[chosen].tofile(path)


def settings(order: str, epoch: int, **more: Any) -> dict[str, Any]:
    return {"workers": 1, "order": order, "epoch_records": epoch * NODES, **more}


class OverNodes:
    """The count over the nodes."""

    def __init__(self, nodes: Nodes, path: Path, rows: int, order: str, epoch: int) -> None:
        self.nodes = nodes
        self.recipe = Recipe(counting, (str(path), rows, None, False), settings(order, epoch))

    def __call__(self) -> float:
        self.nodes.begin(self.recipe)
        return self.nodes.finish().records_per_s


class OneProcess:
    """The same count in this process, with as many workers."""

    def __init__(self, path: Path, rows: int, epoch: int) -> None:
        self.job = counting(str(path), rows, None, False)
        self.epoch = epoch

    def __call__(self) -> float:
        done = plait.run(self.job, workers=NODES, epoch_records=self.epoch, progress=False)
        return done.records_per_s


def check(nodes: Nodes, path: Path) -> None:
    """Compares a shorter run with the one process: row by row, and per key."""
    given = (str(path), CHECKED_ROWS, None, True)
    wanted = plait.run(counting(*given), workers=1).outputs["out"]
    nodes.begin(Recipe(counting, given, settings("total", 1024)))
    found = nodes.finish().outputs["out"]
    for column in ("key", "count"):
        check_equal(f"total order: {column}", found[column], wanted[column])
    nodes.begin(Recipe(counting, given, settings("key", 1024)))
    found = nodes.finish().outputs["out"]
    by_key = [("key", "ascending")]
    # The sort of each key's counts would hide a wrong order: numbered rows keep it.
    for name, table in (("order per key", found), ("one process", wanted)):
        numbers = np.argsort(np.asarray(table["key"]), kind="stable")
        grouped = table.take(numbers)
        check_equal(f"{name}: keys", grouped["key"], wanted.sort_by(by_key)["key"])
        counts = np.asarray(wanted["count"])[np.argsort(np.asarray(wanted["key"]), kind="stable")]
        check_equal(f"{name}: counts", grouped["count"], counts)


def latency(nodes: Nodes, path: Path, order: str, rate: float, seconds: float) -> dict[str, float]:
    """At this rate, from the time each record was due."""
    given = (str(path), int(rate * seconds), rate, False)
    nodes.begin(Recipe(counting, given, settings(order, LATENCY_EPOCH)))
    found = nodes.finish().latency
    return {
        "p50_ms": round(found.p50_ms, 3),
        "p99_ms": round(found.p99_ms, 3),
        "max_ms": round(found.max_ms, 3),
        "rate_m_per_s": millions(rate),
    }


def best(found: Mapping[str, Sample], prefix: str) -> float:
    return max(sample.median for name, sample in found.items() if name.startswith(prefix))


def measure(
    nodes: Nodes, name: str, path: Path, options: Options, budget: Budget
) -> dict[str, Any]:
    rows = ROWS_ONCE * options.pick(8, 16)
    epochs = (4096, 16384) if options.quick else (1024, 4096, 16384, 65536)
    made: dict[str, Callable[[], float]] = {}
    for epoch in epochs:
        made[f"one_{epoch}"] = OneProcess(path, rows, epoch)
        for order in ("total", "key"):
            made[f"{order}_{epoch}"] = OverNodes(nodes, path, rows, order, epoch)
    for warm in (f"one_{epochs[0]}", f"total_{epochs[0]}"):
        made[warm]()  # the first run meets fresh memory; it is not counted
    found = interleave(made, options.repeat(3, 7), budget, name)
    tops = {prefix: best(found, prefix) for prefix in ("one_", "total_", "key_")}
    seconds = options.pick(2, 5)
    by_order = {
        order: latency(nodes, path, order, found[f"{order}_{LATENCY_EPOCH}"].median / 2, seconds)
        for order in ("total", "key")
    }
    return {
        "total_vs_one_process": ratio(tops["total_"], tops["one_"]),
        "key_vs_one_process": ratio(tops["key_"], tops["one_"]),
        "p50_ms": by_order["total"]["p50_ms"],
        "p99_ms": by_order["total"]["p99_ms"],
        "latency_half_load": by_order,
        "rates_m_per_s": {label: millions(sample.median) for label, sample in found.items()},
        "spread": {label: round(sample.spread, 3) for label, sample in found.items()},
        "rows": rows,
        "rounds": len(next(iter(found.values())).values),
    }


def run(options: Options) -> dict[str, Any]:
    budget = budget_of(options)
    names = ("hot", "1e6")
    found: dict[str, dict[str, Any]] = {}
    BUILD.mkdir(parents=True, exist_ok=True)
    with Nodes(NODES) as nodes:
        for i, name in enumerate(names):
            progress(f"{name}: keys, and a check")
            path = BUILD / f"exchange_{name}.bin"
            draw(name, path)
            check(nodes, path)
            found[name] = measure(nodes, name, path, options, budget.part(len(names) - i))
            path.unlink()
    each = [found[name] for name in names]
    return {
        "total_vs_one_process": worst(each, "total_vs_one_process"),
        "key_vs_one_process": worst(each, "key_vs_one_process"),
        "p50_ms": worst(each, "p50_ms", least=False),
        "p99_ms": worst(each, "p99_ms", least=False),
        "keys": found,
        "unit": "million rows a second over both nodes; epochs in records a node",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    rates = {f"{name} keys": given["rates_m_per_s"] for name, given in figures["keys"].items()}
    late = {
        f"{name} keys, {order}": {
            label: value for label, value in given.items() if label in ("p50_ms", "p99_ms")
        }
        for name, found in figures["keys"].items()
        for order, given in found["latency_half_load"].items()
    }
    bars(
        file,
        [
            ("Two nodes beside one process", "million rows a second", rates),
            ("Latency at half load", "milliseconds", late),
        ],
    )
