"""Sums and arithmetic that are checked to fit int64, beside the same that wrap around.

The same rows in both, none of which fails: an expression, a running sum by key, one beside other
aggregates, tumbling windows and sessions. `price` is the part of the processor time of a row that
checking takes; below 0 it is less than what two runs differ by.
"""

from __future__ import annotations

from functools import partial
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.support.common import Options, budget_of, check_equal, interleave, replayed
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = 10_000
ONCE = 1 << 18
ROWS = 1 << 23
GAP_US = 1000
EXPRESSION = "expression"
JOBS: dict[str, Callable[[Any, Any], Any]] = {
    "running": lambda keyed, total: keyed.aggregate(total=total),
    "beside_others": lambda keyed, total: keyed.aggregate(
        total=total, least=plait.min("v"), n=plait.count()
    ),
    "tumbling": lambda keyed, total: keyed.tumbling("1s").aggregate(total=total),
    "session": lambda keyed, total: keyed.session(gap="1m").aggregate(total=total),
}
KINDS = (EXPRESSION, *JOBS)


def columns() -> dict[str, Any]:
    random = np.random.default_rng(7)
    times = (np.arange(ONCE) * GAP_US).astype("datetime64[us]")
    return {
        "key": random.integers(0, KEYS, ONCE),
        "v": random.integers(-1000, 1000, ONCE),
        "ts": times,
    }


def job(table: Any, kind: str, wrap: bool, sink: plait.Sink) -> Any:
    source = plait.stream(plait.Table(table), event_time="ts", out_of_order="1h")
    if kind == EXPRESSION:
        total = col("v") * 31 + col("key") - 7
        return source.select(total=plait.wrapping(total) if wrap else total).sink(sink)
    made = JOBS[kind](source.key_by("key"), plait.sum("v", wrap=wrap))
    return made.sink(sink)


def ns_of_row(table: Any, kind: str, wrap: bool) -> float:
    """The processor time of a row, over all threads."""
    made = job(table, kind, wrap, plait.Discard())
    began = process_time()
    plait.run(made, workers=2, progress=False)
    return (process_time() - began) * 1e9 / int(table.num_rows)


def run(options: Options) -> dict[str, Any]:
    given = columns()
    some = replayed(given, ONCE)
    for kind in KINDS:
        outputs = [
            plait.run(job(some, kind, wrap, plait.Collect(label="out")), progress=False).outputs
            for wrap in (False, True)
        ]
        check_equal(kind, outputs[0]["out"]["total"], outputs[1]["out"]["total"])
    table = replayed(given, ROWS // 4 if options.quick else ROWS)
    variants = {
        f"{kind}_{'wrapping' if wrap else 'checked'}": partial(ns_of_row, table, kind, wrap)
        for kind in KINDS
        for wrap in (False, True)
    }
    budget = budget_of(options)
    samples = interleave(variants, options.repeat(3, 15), budget, "sums")
    found: dict[str, Any] = {}
    for kind in KINDS:
        checked, wrapping = (
            min(samples[f"{kind}_{how}"].values) for how in ("checked", "wrapping")
        )
        found[kind] = {
            "checked_ns": round(checked, 2),
            "wrapping_ns": round(wrapping, 2),
            "price": round(checked / wrapping - 1, 3),
        }
    return found
