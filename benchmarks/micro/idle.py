"""What a job takes that has little to do: processor time and latency by rate and number of nodes.

A keyed count in total order, a process of one worker for each node. At 0 records a second its
source, in Python, is read by one node and has nothing; at other rates all nodes read their part.
`cpu_percent` is of one core, over all nodes, from when the job runs; `no_job` is that of the same
processes before. `idle_cpu_percent` is the job without records on most nodes; `p50_ms` the worst
of the slow rates (1 and 100 a second), from the time each record was due.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plait
from benchmarks.support.common import Options, budget_of, check_equal, interleave, progress
from benchmarks.support.nodes import Nodes, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = (1, 2, 3)
RATES = (0, 1, 100, 10_000)
SLOW = ("1", "100")
KEYS = 97
CHECKED_ROWS = 500
CHECKED_PER_S = 1000.0
SETTLE_S = 0.3
"""Until links are up and the first records are through."""
SETTINGS: dict[str, Any] = {"workers": 1}


class NothingReader(plait.Reader):
    """Says that it has nothing, once a second."""

    def poll(self, max_rows: int) -> Any:
        return plait.Wait(1.0)


class Nothing(plait.Source):
    """A source without records that does not end."""

    bounded = False
    label = "nothing"

    def __init__(self) -> None:
        self.schema = plait.Schema.of({"seq": plait.Type.INT64})

    def open(self, position: Any = None) -> plait.Reader:
        return NothingReader()


def counting(rate: int) -> Any:
    source = plait.Rate(rate) if rate else Nothing()
    return keyed_count(source).sink(plait.Discard())


def checked(rows: int, per_s: float) -> Any:
    return keyed_count(plait.Rate(per_s, total=rows)).sink(plait.Collect(label="out"))


def keyed_count(source: plait.Source) -> Any:
    return plait.stream(source).key_by(key=plait.col("seq") % KEYS).count()


def cpu_s(pid: int) -> float:
    """The processor time of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def cpu_percent(nodes: Nodes, seconds: float) -> float:
    """What the nodes take of a core, together, from now on."""
    pids = [child.process.pid for child in nodes.children]
    before, began = sum(map(cpu_s, pids)), time.perf_counter()
    time.sleep(seconds)
    return 100.0 * (sum(map(cpu_s, pids)) - before) / (time.perf_counter() - began)


class Variant:
    """A rate on some nodes; keeps the latencies beside."""

    def __init__(self, nodes: Nodes, rate: int, seconds: float) -> None:
        self.nodes = nodes
        self.recipe = Recipe(counting, (rate,), SETTINGS)
        self.readers = None if rate else (0,)
        self.seconds = seconds
        self.latency: Any = None

    def __call__(self) -> float:
        self.nodes.begin(self.recipe, readers=self.readers)
        time.sleep(SETTLE_S)
        percent = cpu_percent(self.nodes, self.seconds)
        self.latency = self.nodes.stop().latency
        return percent


def check(nodes: Nodes) -> None:
    """A short job gives the counts of a plain loop."""
    nodes.begin(Recipe(checked, (CHECKED_ROWS, CHECKED_PER_S), SETTINGS))
    found = nodes.finish().outputs["out"]
    numbers = range(CHECKED_ROWS)
    check_equal("keys", found["key"], [number % KEYS for number in numbers])
    check_equal("counts", found["count"], [number // KEYS + 1 for number in numbers])


def run(options: Options) -> dict[str, Any]:
    seconds = 1.5 if options.quick else 10.0
    with ExitStack() as stack:
        groups = {count: stack.enter_context(Nodes(count)) for count in NODES}
        no_job: dict[str, float] = {}
        for count, nodes in groups.items():
            progress(f"{count} nodes: a check")
            check(nodes)
            nodes.all("close")
            no_job[str(count)] = round(cpu_percent(nodes, 1.0), 2)
        variants: dict[str, Variant] = {
            f"{count}/{rate}": Variant(nodes, rate, seconds)
            for count, nodes in groups.items()
            for rate in RATES
        }
        made: dict[str, Callable[[], float]] = {**variants}
        found = interleave(made, options.repeat(1, 3), budget_of(options))
    figures: dict[str, dict[str, Any]] = {str(count): {} for count in NODES}
    for name, sample in found.items():
        on, rate = name.split("/")
        latency = variants[name].latency
        figures[on][rate] = {"cpu_percent": round(sample.median, 2)}
        if rate != "0":
            figures[on][rate] |= {
                "p50_ms": round(latency.p50_ms, 3),
                "p99_ms": round(latency.p99_ms, 3),
            }
    return {
        "idle_cpu_percent": figures[str(max(NODES))]["0"]["cpu_percent"],
        "p50_ms": max(each[rate]["p50_ms"] for each in figures.values() for rate in SLOW),
        "nodes": figures,
        "no_job": no_job,
        "cores": os.cpu_count(),
        "seconds": seconds,
        "rounds": len(next(iter(found.values())).values),
        "unit": "percent of one core over all nodes; records a second over all nodes",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    def panel(name: str) -> dict[str, dict[str, float]]:
        return {
            f"{rate} records/s": {
                f"{count} nodes": given[str(rate)].get(name, 0.0)
                for count, given in figures["nodes"].items()
            }
            for rate in RATES
        }

    bars(
        file,
        [
            ("A job with little to do", "percent of a core", panel("cpu_percent")),
            ("Its latency", "median, milliseconds", panel("p50_ms")),
        ],
    )
