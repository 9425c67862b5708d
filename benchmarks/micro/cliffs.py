"""Natural formulations beside a plain Python loop that does the same, and beside their neighbours.

Each runs on one worker. A rate is of the processor time of the process, over all of its threads, so
that it means the same on a busy machine: the least time of the rounds. `times_the_loop` below 1: a
`for` loop would have done better; `times_slower` is how much less the neighbour, which a user would
expect to cost about the same, takes for a row. The results of each are first compared with those of
its loop, row by row.
"""

from __future__ import annotations

from functools import partial
from time import process_time
from typing import TYPE_CHECKING, Any

import plait
from benchmarks.support.common import (
    CheckFailed,
    Options,
    budget_of,
    interleave,
    millions,
    progress,
    ratio,
)
from benchmarks.support.formulations import Formulation, data, native, python

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKED_ROWS = 30_000
LOOP_ROWS = 1 << 17
TABLE_ROWS = 1 << 21


def job(one: Formulation, table: Any, sink: plait.Sink) -> Any:
    source = plait.stream(plait.Table(table), event_time=one.time)
    return one.build(source).sink(sink)


def seconds(one: Formulation, table: Any) -> float:
    """The processor time of a row."""
    made = job(one, table, plait.Discard())
    began = process_time()
    plait.run(made, workers=1, progress=False)
    return (process_time() - began) / int(table.num_rows)


def loop_seconds(one: Formulation, given: dict[str, list[Any]], rows: int) -> float:
    began = process_time()
    one.loop(given)
    return (process_time() - began) / rows


def lists(table: Any) -> dict[str, list[Any]]:
    """The columns as Python lists; times as microseconds."""
    import pyarrow as pa

    return {
        name: (column.cast("int64") if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def check(one: Formulation, table: Any) -> None:
    made = job(one, table, plait.Collect(label="out"))
    out = lists(plait.run(made, workers=1, progress=False).outputs["out"].select(one.columns))
    found = [*zip(*out.values(), strict=True)]
    wanted = one.loop(lists(table))
    if found == wanted:
        return
    same = [a == b for a, b in zip(found, wanted, strict=False)]
    at = same.index(False) if False in same else len(same)
    raise CheckFailed(
        f"{one.name}: {len(found)} results, the loop has {len(wanted)}; from result {at} on"
        f" {found[at : at + 3]}, the loop's are {wanted[at : at + 3]}"
    )


def run(options: Options) -> dict[str, Any]:
    table = data(TABLE_ROWS)
    given = lists(table.slice(0, LOOP_ROWS))
    cases = [*native(), *python()]
    for one in cases:
        progress(f"checking {one.name}")
        check(one, table.slice(0, CHECKED_ROWS))
    variants: dict[str, Callable[[], float]] = {}
    for one in cases:
        rows = min(TABLE_ROWS, one.rows * options.pick(1, 4))
        variants[one.name] = partial(seconds, one, table.slice(0, rows))
        variants[f"{one.name} loop"] = partial(loop_seconds, one, given, LOOP_ROWS)
    samples = interleave(variants, options.repeat(2, 9), budget_of(options), "cliffs")
    times = {name: min(sample.values) for name, sample in samples.items()}
    return {
        "least_times_the_loop": min(
            ratio(times[f"{one.name} loop"], times[one.name]) for one in cases
        ),
        "most_times_slower": max(
            ratio(times[one.name], times[one.beside]) for one in cases if one.beside
        ),
        "rounds": len(samples[cases[0].name].values),
        "formulations": {one.name: figures(one, times, samples) for one in cases},
    }


def figures(one: Formulation, times: dict[str, float], samples: dict[str, Any]) -> dict[str, Any]:
    mine, loop = times[one.name], times[f"{one.name} loop"]
    found = {
        "m_per_s": millions(1 / mine),
        "loop_m_per_s": millions(1 / loop),
        "times_the_loop": ratio(loop, mine),
        "spread": round(samples[one.name].spread, 3),
    }
    if not one.beside:
        return found
    return found | {"beside": one.beside, "times_slower": ratio(mine, times[one.beside])}


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    found = figures["formulations"]
    rates = {
        name.replace("_", "\n"): {"plait": one["m_per_s"], "loop": one["loop_m_per_s"]}
        for name, one in found.items()
    }
    names = [*rates]
    thirds = [names[i::3] for i in range(3)]
    bars(
        file,
        [
            (f"formulations {i + 1} of 3", "M records/s", {name: rates[name] for name in part})
            for i, part in enumerate(thirds)
        ],
    )
