"""One map of a float column, written in the four ways a user may write it, beside C++.

`expression` and `compiled` run natively on all workers; `batches` is one call of Python for a
batch of 4,096 rows, `python` one for every record, and only one worker at a time can be inside
Python. The C++ loop maps blocks of 4,096 rows into memory that is used again, as a batch would
be. All variants give the same bits; `vs_cpp` compares on two threads.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.common import (
    BUILD,
    Options,
    budget_of,
    check_equal,
    interleave,
    millions,
    progress,
    ratio,
    replayed,
    run_native,
)
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

ONCE = 1_000_000
CHECKED_ROWS = 50_000
NAMES = ("expression", "compiled", "batches", "python")


@plait.compiled
def scaled(price: float) -> float:
    return (price * 0.908 + 2.5) * price


def scaled_batch(table: Any) -> Any:
    import pyarrow as pa

    price = table["price"].to_numpy()
    return pa.table({"price": (price * 0.908 + 2.5) * price})


def scaled_plain(price: float) -> float:
    return (price * 0.908 + 2.5) * price


def mapped(name: str, table: Any, sink: plait.Sink) -> Any:
    prices = plait.stream(plait.Table(table))
    price = col("price")
    made = {
        "expression": lambda: prices.select(price=(price * 0.908 + 2.5) * price),
        "compiled": lambda: prices.select(price=scaled(price)),
        "batches": lambda: prices.map_batches(scaled_batch),
        "python": lambda: prices.with_columns(price=scaled_plain),
    }[name]()
    return made.sink(sink)


def for_loop_rate(prices: list[float]) -> float:
    results: list[float] = []
    began = perf_counter()
    for price in prices:
        results.append(scaled_plain(price))
    return len(prices) / (perf_counter() - began)


def check(prices: Any) -> None:
    given = prices[:CHECKED_ROWS]
    wanted = scaled_plain(given)
    table = replayed({"price": given}, len(given))
    for name in NAMES:
        for workers in (1, 2):
            done = plait.run(mapped(name, table, plait.Collect(label="out")), workers=workers)
            check_equal(f"{name}, {workers} workers", done.outputs["out"]["price"], wanted)
    source, out = BUILD / "prices.bin", BUILD / "mapped.bin"
    given.tofile(source)
    run_native("map", source, len(given), 2, out)
    check_equal("C++", np.fromfile(out, np.float64), wanted)


def run(options: Options) -> dict[str, Any]:
    BUILD.mkdir(parents=True, exist_ok=True)
    prices = np.random.default_rng(7).random(ONCE) * 1000
    progress("checking all variants")
    check(prices)
    source = BUILD / "prices.bin"
    prices.tofile(source)
    native_rows = options.pick(100_000_000, 400_000_000)
    rows = {
        "expression": native_rows,
        "compiled": native_rows,
        "batches": options.pick(10_000_000, 40_000_000),
        "python": options.pick(500_000, 2_000_000),
    }

    def rate(name: str, workers: int) -> float:
        table = replayed({"price": prices}, rows[name])
        job = mapped(name, table, plait.Discard())
        return plait.run(job, workers=workers, progress=False).records_per_s

    def cpp(threads: int) -> float:
        return native_rows / run_native("map", source, native_rows, threads)[0]

    variants: dict[str, Callable[[], float]] = {
        f"{name}_{workers}": partial(rate, name, workers) for name in NAMES for workers in (1, 2)
    }
    listed = prices.tolist()
    variants["cpp_1"] = lambda: cpp(1)
    variants["cpp_2"] = lambda: cpp(2)
    variants["for_loop"] = lambda: for_loop_rate(listed)
    found = interleave(variants, options.repeat(3, 9), budget_of(options), "functions")
    source.unlink()
    middle = {name: sample.median for name, sample in found.items()}
    return {
        **{
            name: {
                "rate_1": millions(middle[f"{name}_1"]),
                "rate_2": millions(middle[f"{name}_2"]),
                "speedup_2": ratio(middle[f"{name}_2"], middle[f"{name}_1"]),
                "vs_cpp": ratio(middle[f"{name}_2"], middle["cpp_2"]),
                "vs_for_loop": ratio(middle[f"{name}_2"], middle["for_loop"]),
            }
            for name in NAMES
        },
        "rates_m_per_s": {name: millions(value) for name, value in middle.items()},
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "rounds": len(found["cpp_1"].values),
        "unit": "million rows a second",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    rates = figures["rates_m_per_s"]
    native = {
        name: {f"{n}": rates[f"{name}_{n}"] for n in (1, 2)}
        for name in ("expression", "compiled", "cpp")
    }
    python = {name: {f"{n}": rates[f"{name}_{n}"] for n in (1, 2)} for name in NAMES[2:]}
    python["for loop"] = {"1": rates["for_loop"]}
    unit = "million rows a second"
    bars(file, [("Native, by workers", unit, native), ("In Python, by workers", unit, python)])
