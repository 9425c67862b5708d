"""A plain Python function of a record on one and two cores: here, and in worker processes.

The function reads one of four columns and does nothing, or work of about 1, 10 and 100 us; batches
have 1,024 records and leave in order. `inline` is this process, where one thread at a time can be
inside Python; `pool` are one or two worker processes. Starting processes is not counted: a rate is
that of the records by which one run is longer than another. A speed-up is that of two processes
over the better number of workers inline. `handover_ns_per_record` is what the trip to two processes
costs beside one worker inline, in time of all processors together; `record_ns` is a trivial
function inline.

`fold_*` is the same with a fold over 10,007 keys, of no work and of about 1 us, in batches of 256,
1,024 and 4,096 records: each worker process has the state of a part of the keys.
"""

from __future__ import annotations

import resource
from functools import partial
from time import perf_counter
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

BATCH = 1024
CHECKED_ROWS = 20 * BATCH
WORK_US = {"trivial": 0, "1us": 1, "10us": 10, "100us": 100}
ROWS = {"trivial": 6_000_000, "1us": 1_000_000, "10us": 100_000, "100us": 10_000}
"""Of a quick run; a full one has three times as many."""


def worked(rounds: int) -> Callable[[int], int]:
    def work(v: int) -> int:
        x = v
        for _ in range(rounds):
            x = (x * 31 + 7) & 0xFFFFF
        return x

    return work


def trivial(v: int) -> int:
    return v + 1


def rounds_for(us: float) -> int:
    """How many rounds take so long here: the best of five, as a disturbance only ever adds."""
    probe = worked(10_000)
    best = float("inf")
    for _ in range(5):
        began = perf_counter()
        probe(1)
        best = min(best, perf_counter() - began)
    return max(1, round(us * 1e-6 / best * 10_000))


def columns() -> dict[str, Any]:
    numbers = np.arange(100_000)
    return {"n": numbers, "v": numbers % 1009, "f": numbers / 4, "s": [f"s{n}" for n in numbers]}


def timed(function: Any, route: Any, processes: int, table: Any, sink: plait.Sink) -> Any:
    made = plait.stream(plait.Table(table)).with_columns(w=function, route=route).sink(sink)
    workers = processes if route == "inline" else 2
    return made.run(workers=workers, pool=processes, epoch_records=BATCH, progress=False)


FOLD_BATCHES = (256, 1024, 4096)
FOLD_ROWS = {"trivial": 600_000, "1us": 300_000}
FOLD_KEYS = 10_007


def folded(work: Callable[[int], int]) -> Callable[[int, Any], int]:
    def step(total: int, record: Any) -> int:
        return (total + work(record.v)) & 0xFFFFF

    return step


def keyed_columns() -> dict[str, Any]:
    numbers = np.arange(100_000)
    return {"n": numbers, "k": numbers * 7919 % FOLD_KEYS, "v": numbers % 1009, "f": numbers / 4}


def timed_fold(
    step: Any, route: Any, processes: int, batch: int, table: Any, sink: plait.Sink
) -> Any:
    keyed = plait.stream(plait.Table(table)).key_by("k")
    made = keyed.fold(0, step, type=int, route=route).sink(sink)
    workers = processes if route == "inline" else 2
    return made.run(workers=workers, pool=processes, epoch_records=batch, progress=False)


def check_folds(functions: dict[str, Any], given: dict[str, Any]) -> None:
    table = replayed(given, CHECKED_ROWS)
    step = folded(functions["trivial"])
    totals: dict[int, int] = {}
    wanted = []
    for k, v in zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True):
        totals[k] = (totals.get(k, 0) + functions["trivial"](v)) & 0xFFFFF
        wanted.append(totals[k])
    for route, processes in (("inline", 1), ("pool", 1), ("pool", 2)):
        sink = plait.Collect(label="out")
        done = timed_fold(step, route, processes, BATCH, table, sink)
        check_equal(f"fold, {route} {processes}", done.outputs["out"]["value"], wanted)


def check(functions: dict[str, Any], given: dict[str, Any]) -> None:
    table = replayed(given, CHECKED_ROWS)
    for name in ("trivial", "1us"):
        wanted = [functions[name](int(v)) for v in table["v"].to_pylist()]
        for route in ("inline", "pool"):
            for processes in (1, 2):
                done = timed(functions[name], route, processes, table, plait.Collect(label="out"))
                check_equal(f"{name}, {route} {processes}", done.outputs["out"]["w"], wanted)


def processor_s() -> float:
    """Time of all processors in this process and those that it has started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(options: Options) -> dict[str, Any]:
    functions: dict[str, Any] = {
        name: worked(rounds_for(us)) if us else trivial for name, us in WORK_US.items()
    }
    given = columns()
    progress("checking all variants")
    check(functions, given)
    keyed = keyed_columns()
    check_folds(functions, keyed)
    cost_ns: dict[str, list[float]] = {"inline": [], "pool": []}

    def rate(name: str, route: str, processes: int) -> float:
        rows = options.pick(1, 3) * ROWS[name]
        seconds, used = [], []
        for count in (rows // 10, rows):
            before = processor_s()
            done = timed(functions[name], route, processes, replayed(given, count), plait.Discard())
            seconds.append(done.seconds)
            used.append(processor_s() - before)
        more = rows - rows // 10
        if name == "trivial" and processes == (2 if route == "pool" else 1):
            cost_ns[route].append((used[1] - used[0]) / more * 1e9)
        return float(more / max(1e-9, seconds[1] - seconds[0]))

    def fold_rate(name: str, route: str, processes: int, batch: int) -> float:
        rows = options.pick(1, 3) * FOLD_ROWS[name]
        step = folded(functions[name])
        seconds = []
        for count in (rows // 10, rows):
            table = replayed(keyed, count)
            done = timed_fold(step, route, processes, batch, table, plait.Discard())
            seconds.append(done.seconds)
        return float((rows - rows // 10) / max(1e-9, seconds[1] - seconds[0]))

    variants: dict[str, Callable[[], float]] = {
        f"{name}_{route}_{processes}": partial(rate, name, route, processes)
        for name in WORK_US
        for route in ("inline", "pool")
        for processes in (1, 2)
    }
    variants |= {
        f"fold_{name}_{batch}_{route}_{processes}": partial(
            fold_rate, name, route, processes, batch
        )
        for name in FOLD_ROWS
        for batch in FOLD_BATCHES
        for route in ("inline", "pool")
        for processes in (1, 2)
    }
    found = interleave(variants, options.repeat(3, 9), budget_of(options), "python_functions")
    middle = {name: sample.median for name, sample in found.items()}
    handed = float(np.median(cost_ns["pool"]) - np.median(cost_ns["inline"]))
    return {
        **{
            f"pool_speedup_{name}": ratio(
                middle[f"{name}_pool_2"], max(middle[f"{name}_inline_{n}"] for n in (1, 2))
            )
            for name in WORK_US
        },
        **{
            f"fold_speedup_{name}{'' if batch == BATCH else f'_{batch}'}": ratio(
                middle[f"fold_{name}_{batch}_pool_2"],
                max(middle[f"fold_{name}_{batch}_inline_{n}"] for n in (1, 2)),
            )
            for name in FOLD_ROWS
            for batch in FOLD_BATCHES
        },
        "handover_ns_per_record": round(handed, 1),
        "record_ns": round(1e9 / middle["trivial_inline_1"], 1),
        "rates_m_per_s": {name: millions(value) for name, value in middle.items()},
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "rounds": len(found["trivial_inline_1"].values),
        "unit": "million records a second",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    rates = figures["rates_m_per_s"]
    panels = [
        (
            f"{name} of work a record",
            "million records a second",
            {
                route: {f"{n}": rates[f"{name}_{route}_{n}"] for n in (1, 2)}
                for route in ("inline", "pool")
            },
        )
        for name in WORK_US
    ]
    bars(file, panels)
