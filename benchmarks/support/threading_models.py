"""A thousand operators under each threading model: a row, a fan, and ten rows of a hundred.

The shapes and costs follow Fig. 9 and 10 of the paper on low-synchronisation scheduling: every
operator spins for a known time on every record (next to nothing, 0.1 us, 1 us). Manual is one
thread, dedicated is a thread for each operator, dynamic is so many workers that share a free list
(`scheduler="lru"`); `dynamic_ct` is the default scheduler, which looks at all stages for each
decision. Nothing is fused: each operator has its worklist. In the fan each branch sees every record
and passes on its own share of them, so that one order comes out behind the union.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.burn import burn, burnt, round_ns, rounds_for
from benchmarks.support.common import (
    Options,
    budget_of,
    check_equal,
    interleave,
    progress,
    ratio,
    replayed,
)
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph.operators import Graph

SHAPES = {"chain": (1, 1000), "wide": (1000, 1), "mixed": (10, 100)}
"""Branches, and operators in each."""
COSTS_US = (0.0, 0.1, 1.0)
EPOCH = 64
OPERATORS = 1000
BASE = "manual"


def variants() -> dict[str, dict[str, Any]]:
    """The settings of each model. The runs are short, and so is the period of elastic workers."""
    return {
        "manual": {"threading": "manual"},
        "dedicated": {"threading": "dedicated"},
        "dynamic_1": {"scheduler": "lru", "workers": 1},
        "dynamic_2": {"scheduler": "lru", "workers": 2},
        "dynamic_4": {"scheduler": "lru", "workers": 4},
        "dynamic_ct": {"scheduler": "ct", "workers": 2},
        "dynamic_elastic": {
            "scheduler": "lru",
            "workers": "elastic",
            "max_workers": 4,
            "elastic_period_ms": 10,
        },
    }


def job(rows: int, shape: tuple[int, int], rounds: int, sink: plait.Sink, times: int = 1) -> Graph:
    """`rows` records through the operators; `times` smaller, to check it."""
    branches, depth = max(1, shape[0] // times), max(1, shape[1] // times)
    table = replayed({"row": np.arange(rows), "v": np.arange(rows)}, rows)
    source = plait.stream(plait.Table(table))
    made = []
    for number in range(branches):
        branch = source
        for _ in range(depth - 1):
            branch = branch.with_columns(v=burn(col("v"), rounds))
        if branches == 1:
            made.append(branch.with_columns(v=burn(col("v"), rounds)))
        else:  # the last of a branch: the same work, and its own records
            worked = burn(col("v"), rounds) != 0
            made.append(branch.filter(worked & (col("row") % branches == number)))
    out = made[0] if branches == 1 else plait.union(*made)
    return out.sink(sink).job.graph()


def check() -> None:
    rows, rounds, times = 640, 2, 20
    for name, shape in SHAPES.items():
        branches, depth = max(1, shape[0] // times), max(1, shape[1] // times)
        passes = depth if branches == 1 else depth - 1
        values = burnt(np.arange(rows), rounds * passes)
        wanted = np.arange(rows)[burnt(values, rounds) != 0] if branches > 1 else np.arange(rows)
        for variant, settings in variants().items():
            graph = job(rows, shape, rounds, plait.Collect(label="out"), times)
            out = plait.run(graph, fuse=False, epoch_records=EPOCH, **settings).outputs["out"]
            check_equal(f"{name}, {variant}: rows", out["row"], wanted)
            check_equal(f"{name}, {variant}: values", out["v"], values[wanted])


def run(options: Options) -> dict[str, Any]:
    progress("checking all variants")
    check()
    budget = budget_of(options)
    figures: dict[str, Any] = {}
    spread: dict[str, float] = {}
    done_rounds = []
    settings = variants()
    parts = [(shape, cost) for shape in SHAPES for cost in COSTS_US]
    for number, (shape, cost) in enumerate(parts):
        rounds = rounds_for(cost) if cost else 1
        per_record_s = OPERATORS * max(rounds * round_ns(), 5.0) * 1e-9
        seconds = 0.15 if options.quick else 1.0
        rows = max(16 * EPOCH, round(seconds / per_record_s / EPOCH) * EPOCH)
        graph = job(rows, SHAPES[shape], rounds, plait.Discard())

        def rate(graph: Graph, given: dict[str, Any]) -> float:
            return plait.run(
                graph, fuse=False, epoch_records=EPOCH, progress=False, **given
            ).records_per_s

        timed: dict[str, Callable[[], float]] = {
            name: partial(rate, graph, given) for name, given in settings.items()
        }
        note = f"threading {shape} at {cost} us"
        found = interleave(timed, options.repeat(2, 7), budget.part(len(parts) - number), note)
        middle = {name: sample.median for name, sample in found.items()}
        figures.setdefault(shape, {})[f"cost_{cost:g}_us"] = {
            "k_records_per_s": {name: round(value / 1e3, 3) for name, value in middle.items()},
            "dynamic_2_vs_manual": ratio(middle["dynamic_2"], middle[BASE]),
            "dynamic_2_vs_dedicated": ratio(middle["dynamic_2"], middle["dedicated"]),
            "dynamic_2_vs_ct": ratio(middle["dynamic_2"], middle["dynamic_ct"]),
            "rows": rows,
        }
        spread |= {f"{shape}_{cost:g}_{n}": round(s.spread, 3) for n, s in found.items()}
        done_rounds.append(min(len(sample.values) for sample in found.values()))
    return {
        **figures,
        "operators": OPERATORS,
        "epoch_records": EPOCH,
        "spread": spread,
        "rounds": min(done_rounds),
        "unit": "thousand records a second, each through 1,000 operators",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    titles = {
        "chain": "1,000 operators in a row",
        "wide": "1,000 operators side by side",
        "mixed": "10 rows of 100 operators",
    }
    bars(
        file,
        [
            (
                title,
                "thousand records a second",
                {
                    f"{c:g} us": figures[shape][f"cost_{c:g}_us"]["k_records_per_s"]
                    for c in COSTS_US
                },
            )
            for shape, title in titles.items()
        ],
    )
