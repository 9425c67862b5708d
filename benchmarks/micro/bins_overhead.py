"""What it costs to cut keyed state into bins that can move: 2^4 .. 2^20 bins beside one.

A running count by key on one node with one worker, its tables cut as they are on many nodes, at
each number of bins in turn. `overhead_at_4096` is the part of the rate with a single bin that is
lost with 2^12 of them, in the steady state (the second half of a run), the worse of the key sets;
`from_empty` is over whole runs, in which the tables grow. `plait_run` is the same count by
`plait.run`, whose state never leaves the process: what is left between the two is the price of
being a node.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.micro.exchange import ROWS_ONCE, counting, draw
from benchmarks.support.common import (
    BUILD,
    Budget,
    Options,
    budget_of,
    interleave,
    millions,
    progress,
    ratio,
    worst,
)
from benchmarks.support.nodes import Nodes, Recipe, warm_rate
from plait.execution.local_run import start

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EPOCH = 16384
SHOWN = 12
"""The number of bins, as a power of two, that the figure is about."""


class WithBins:
    """The count on one node with 2 ** bits bins."""

    def __init__(self, nodes: Nodes, path: Path, rows: int, bits: int) -> None:
        self.nodes = nodes
        self.rows = rows
        settings = {"workers": 1, "epoch_records": EPOCH, "bin_bits": bits}
        self.recipe = Recipe(counting, (str(path), rows, None, False), settings)
        self.whole: list[float] = []
        """The rates from empty state."""

    def __call__(self) -> float:
        self.nodes.begin(self.recipe)
        warm = self.nodes.all("warm_rate", self.rows)[0]
        self.whole.append(self.nodes.finish().records_per_s)
        return float(warm)


class PlaitRun:
    """The count in this process."""

    def __init__(self, path: Path, rows: int) -> None:
        self.job = counting(str(path), rows, None, False)
        self.rows = rows
        self.whole: list[float] = []

    def __call__(self) -> float:
        running = start(self.job, workers=1, epoch_records=EPOCH)
        warm = warm_rate(running.engine, self.rows)
        self.whole.append(running.wait(progress=False).records_per_s)
        return warm


def measure(
    nodes: Nodes, name: str, path: Path, options: Options, budget: Budget
) -> dict[str, Any]:
    rows = ROWS_ONCE * options.pick(8, 32)
    bits = (4, 8, SHOWN, 16, 20) if options.quick else (4, 6, 8, 10, SHOWN, 14, 16, 18, 20)
    made: dict[str, WithBins | PlaitRun] = {
        "plait_run": PlaitRun(path, rows),
        "1": WithBins(nodes, path, rows, 0),
        **{str(1 << k): WithBins(nodes, path, rows, k) for k in bits},
    }
    made["1"]()  # the first run meets fresh memory; it is not counted
    made["1"].whole.clear()
    found = interleave(made, options.repeat(5, 9), budget, name)
    middle = {label: sample.median for label, sample in found.items()}
    whole = {label: median(one.whole) for label, one in made.items()}
    overhead = overheads(middle)
    return {
        "overhead_at_4096": overhead[str(1 << SHOWN)],
        "vs_plait_run": ratio(middle[str(1 << SHOWN)], middle["plait_run"]),
        "overhead": overhead,
        "overhead_from_empty": overheads(whole),
        "rates_m_per_s": {label: millions(rate) for label, rate in middle.items()},
        "from_empty_m_per_s": {label: millions(rate) for label, rate in whole.items()},
        "spread": {label: round(sample.spread, 3) for label, sample in found.items()},
        "rows": rows,
        "rounds": len(found["1"].values),
    }


def overheads(rates: Mapping[str, float]) -> dict[str, float]:
    """The part of the rate with one bin that is lost with more."""
    return {
        label: round(1 - rate / rates["1"], 3)
        for label, rate in rates.items()
        if label not in ("plait_run", "1")
    }


def run(options: Options) -> dict[str, Any]:
    budget = budget_of(options)
    BUILD.mkdir(parents=True, exist_ok=True)
    names = ("hot", "1e6")
    found: dict[str, dict[str, Any]] = {}
    with Nodes(1) as nodes:
        for i, name in enumerate(names):
            progress(f"{name}: keys")
            path = BUILD / f"bins_{name}.bin"
            draw(name, path)
            found[name] = measure(nodes, name, path, options, budget.part(len(names) - i))
            path.unlink()
    each = [found[name] for name in names]
    return {
        "overhead_at_4096": worst(each, "overhead_at_4096", least=False),
        "vs_plait_run": worst(each, "vs_plait_run"),
        "keys": found,
        "unit": "million rows a second on one worker",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    groups = {f"{name} keys": given["rates_m_per_s"] for name, given in figures["keys"].items()}
    bars(file, [("Running count, by the number of bins", "million rows a second", groups)])
