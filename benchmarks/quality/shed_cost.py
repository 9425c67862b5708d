"""What a shedder costs: by record and by key, from keeping everything to keeping a hundredth.

Processor time over all threads, for a record that was read. `pass` drops rows where next to nothing
else is done: `shed_ns` is the difference from the same job without a shedder. `keyed` is a running
count by key behind it: what is dropped is saved there. `free` is the rate of that count with a
shedder that keeps everything, as a share of its rate without any.
"""

from __future__ import annotations

from functools import partial
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.common import CheckFailed, Options, budget_of, interleave, replayed
from plait.execution.local_run import begin, running_of
from plait.shedding.plan import thresholds

if TYPE_CHECKING:
    from plait.graph.operators import Graph

KEYS = 100_000
ONCE = 1 << 18
ROWS = 1 << 24
RATIOS = (1.0, 0.9, 0.5, 0.1, 0.01)
WORKERS = (1, 2)


def columns() -> dict[str, Any]:
    random = np.random.default_rng(7)
    return {"key": random.integers(0, KEYS, ONCE), "v": random.integers(-1000, 1000, ONCE)}


def graph_of(table: Any, kind: str, by: str, shed: bool) -> Graph:
    """`pass`: the records meet a filter that lets none of them through to the count."""
    rows = plait.stream(plait.Table(table))
    if kind == "pass":
        rows = rows.filter(plait.col("v") > 1000)
    floor: dict[str, Any] = {"min_accuracy": 0.0, "shed": by} if shed else {}
    return rows.key_by("key").count().sink(plait.Discard(), "out", **floor).job.graph()


def cost(graph: Graph, rows: int, ratio: float | None, workers: int) -> float:
    """Processor time of a record, in nanoseconds; checked for the share that was kept."""
    wanted = 1.0 if ratio is None else ratio
    keeps = [(0, thresholds({0: wanted}, 1))] if wanted < 1 else []
    began = process_time()
    running = running_of(begin(graph, None, None, None, {"workers": workers}, keeps=keeps))
    result = running.wait(progress=False)
    spent = process_time() - began
    kept = 1 - result.account.shed / rows
    if abs(kept - wanted) > 0.02:
        raise CheckFailed(f"{kept:.4f} of the records were kept, not {wanted}")
    return spent * 1e9 / rows


def run(options: Options) -> dict[str, Any]:
    rows = ROWS // 4 if options.quick else ROWS
    table = replayed(columns(), rows)
    variants = {
        f"{kind} {by} {ratio} {workers}": partial(
            cost, graph_of(table, kind, by, ratio is not None), rows, ratio, workers
        )
        for kind in ("pass", "keyed")
        for by in ("records", "keys")
        for ratio in (None, *RATIOS)
        for workers in WORKERS
    }
    samples = interleave(variants, options.repeat(3, 11), budget_of(options), "shed_cost")
    least = {name: min(found.values) for name, found in samples.items()}
    figures: dict[str, Any] = {}
    for workers in WORKERS:
        for by in ("records", "keys"):
            bare = {kind: least[f"{kind} {by} None {workers}"] for kind in ("pass", "keyed")}
            here: dict[str, Any] = {
                str(ratio): {
                    "shed_ns": round(least[f"pass {by} {ratio} {workers}"] - bare["pass"], 2),
                    "keyed_ns": round(least[f"keyed {by} {ratio} {workers}"], 2),
                }
                for ratio in RATIOS
            }
            here["keyed_without_ns"] = round(bare["keyed"], 2)
            here["free"] = round(bare["keyed"] / least[f"keyed {by} 1.0 {workers}"], 3)
            figures[f"{by}, workers {workers}"] = here
    return figures


def plot(figures: dict[str, Any], file: str) -> None:
    """The cost of a record by the share that is kept, and what a running count costs behind it."""
    from benchmarks.support.charts import bars

    def panel(title: str, field: str) -> tuple[str, str, dict[str, dict[str, float]]]:
        cases = {name: one for name, one in figures.items() if name.endswith("workers 1")}
        groups = {
            f"keep {ratio}": {
                name.partition(",")[0]: one[str(ratio)][field] for name, one in cases.items()
            }
            for ratio in RATIOS
        }
        return title, "nanoseconds a record", groups

    bars(
        file,
        [
            panel("The shedder, one worker", "shed_ns"),
            panel("A running count with a shedder, one worker", "keyed_ns"),
        ],
    )
