"""What checkpoints cost: the rate with one every second and every ten over the rate without, the
worst latency at half load, size and time of a checkpoint, and the speed of a restore.

Running counts of 10^5, 10^6 and (in full) 10^7 keys and of 10^7 keys with twelve aggregates (1 GB),
NEXMark's queries 5 and 8, and a fold in Python. Runs are of a fixed time, after a start that is not
counted and in which every key comes: rows are read over and over from the same memory, with event
time going on. `pause_ms` is the worst latency with a checkpoint every second less the worst one
without, both at half of the rate without; `hold_ms` is the longest time for which one turn of a
checkpoint kept a lane to itself. Beside it stands the design that lost, `copied`: all state is
copied at the mark, and compared with the last copy later. A quick run has no checkpoints every ten
seconds.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from benchmarks.nexmark.native import tables
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.schema import Shape
from benchmarks.support.common import (
    CheckFailed,
    Options,
    budget_of,
    check_equal,
    interleave,
    progress,
    ratio,
)
from plait import col
from plait.testing.crashes import abandon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from plait.execution.local_run import LocalRun

GAP_US = 20
AGGREGATES: dict[str, Any] = {f"s{n}": plait.sum(col("v") + n) for n in range(12)}
EVENTS = 1_000_000
WARM_S = 20.0
"""The longest that a run may take until every key has come."""
MEASURED_S = {("1s", True): 3.4, ("1s", False): 8.4, ("10s", False): 33.0}
"""How long a run is measured, by interval and whether it is quick: so long that it holds three
checkpoints or more."""
OUT_OF_ORDER = "1s"
EPOCH = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A job, and the rows that its sources read over and over."""

    name: str
    streams: Mapping[str, Any]
    build: Callable[[Mapping[str, plait.Stream]], plait.Stream]

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.streams.values())

    def job(self, sink: plait.Sink, rows: int, rate: float | None = None) -> plait.Job:
        """Over so many rows of all streams together; `rate`: of all of them a second."""
        made = plait.Job(self.name)
        given = {}
        for name, table in self.streams.items():
            share = table.num_rows / self.rows
            source = plait.Table(
                repeated(table, int(rows * share)),
                rate_per_s=None if rate is None else rate * share,
            )
            timed: dict[str, Any] = {}
            if is_timed(table):
                timed = {"event_time": "ts", "out_of_order": OUT_OF_ORDER}
            most = max(other.num_rows for other in self.streams.values())
            epoch = max(1, EPOCH * table.num_rows // most)  # so that event times go on together
            given[name] = made.source(source, name=name, epoch_records=epoch, **timed)
        self.build(given).sink(sink, "out")
        return made


def is_timed(table: Any) -> bool:
    return "ts" in table.column_names


def repeated(table: Any, rows: int) -> Any:
    """The table over and over, in the same memory but for the times, which go on."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_timed(table):
        whole, rest = divmod(rows, table.num_rows)
        return pa.concat_tables([*[table] * whole, table.slice(0, rest)])
    times = pa.concat_arrays(table["ts"].chunks)
    span = pc.max(times).value - pc.min(times).value + GAP_US
    raw = times.view(pa.int64())
    at = table.schema.get_field_index("ts")
    pieces = []
    for turn in itertools.count():
        left = rows - turn * table.num_rows
        if left <= 0:
            break
        shifted = pc.add(raw, turn * span).view(times.type)
        pieces.append(table.set_column(at, "ts", shifted).slice(0, left))
    return pa.concat_tables(pieces)


def counted(keys: int) -> Any:
    """Rows in which every one of so many keys comes, in no order."""
    import pyarrow as pa

    random = np.random.default_rng(7)
    rows = max(1 << 20, keys)
    return pa.table(
        {
            "key": random.permutation(rows) % keys,
            "v": random.integers(-1000, 1000, rows),
        }
    )


def loads(quick: bool) -> Iterator[Load]:
    def count(rows: Mapping[str, plait.Stream]) -> plait.Stream:
        return rows["rows"].key_by("key").count()

    def wide(rows: Mapping[str, plait.Stream]) -> plait.Stream:
        return rows["rows"].key_by("key").aggregate(**AGGREGATES)

    def fold(rows: Mapping[str, plait.Stream]) -> plait.Stream:
        return rows["rows"].key_by("key").fold(0, lambda n, row: n + row.v, type=int)

    yield Load(name="count_1e5", streams={"rows": counted(10**5)}, build=count)
    yield Load(name="count_1e6", streams={"rows": counted(10**6)}, build=count)
    yield Load(name="fold_1e5", streams={"rows": counted(10**5)}, build=fold)
    made = tables(Shape(events=EVENTS))
    for name in ("q5", "q8"):
        query = QUERIES[name]
        yield Load(name=name, streams={s: made[s] for s in query.streams}, build=query.over)
    if not quick:
        yield Load(name="count_1e7", streams={"rows": counted(10**7)}, build=count)
        yield Load(name="wide_1e7", streams={"rows": counted(10**7)}, build=wide)


@dataclass(slots=True)
class Told:
    """What one run said."""

    rate: float
    worst_ms: float
    taken: int = 0
    bytes: int = 0
    seconds: float = 0.0
    hold_ms: float = 0.0


class CopiesAtMarks:
    """An engine whose checkpoints copy all state at the mark."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def control(self, kind: str, *, last: bool, **_: Any) -> Any:
        return self.engine.control("snapshot", last=last)


def end(running: LocalRun) -> None:
    """Nothing more is wanted of it."""
    if running.saved is not None:
        return abandon(running)
    running.abort()
    running.end_workers()
    return None


def worst_since(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> float:
    """The upper edge, in ms, of the highest bucket of latencies that came to something since."""
    seen = dict(before)
    return max((edge for edge, count in after if count > seen.get(edge, 0)), default=0) / 1e6


def wait_for(running: LocalRun, rows: int) -> None:
    began = time.monotonic()
    while running.engine.records_read() < rows and not running.engine.wait(0.005):
        if time.monotonic() - began > WARM_S:
            break


def measure(
    load: Load,
    every: str | None,
    seconds: float,
    most: float,
    rate: float | None = None,
    *,
    copied: bool = False,
) -> Told:
    """One run: its rate and worst latency after a start, and what its checkpoints were. `most`: a
    rate that it does not reach."""
    rows = int(load.rows + (seconds + 3) * most)
    with tempfile.TemporaryDirectory() as folder:
        saved = None if every is None else plait.Checkpoint(folder, every=every)
        running = plait.start(load.job(plait.Discard(), rows, rate), checkpoint=saved, workers=2)
        try:
            engine = running.engine
            if copied and running.saved is not None:
                running.saved.saver.parts = SimpleNamespace(engine=CopiesAtMarks(engine))  # type: ignore[assignment]
            # At half load the keys come by and by: the state is as large as it gets all the same.
            wait_for(running, load.rows if rate is None else int(min(load.rows, 2 * rate)))
            read, buckets, began = engine.records_read(), engine.latency_buckets()[0], now()
            if engine.wait(seconds):
                raise CheckFailed(f"{load.name}: {rows} rows were too few for {seconds} s")
            told = Told(
                rate=(engine.records_read() - read) / (now() - began),
                worst_ms=worst_since(buckets, engine.latency_buckets()[0]),
            )
            if running.saved is not None:
                stats = running.saved.stats
                told.taken, told.bytes, told.seconds = (
                    stats.taken, stats.last_bytes, stats.last_seconds
                )  # fmt: skip
                told.hold_ms = stats.longest_hold_ms
        finally:
            end(running)
    return told


def now() -> float:
    return time.perf_counter()


def restore(load: Load) -> dict[str, float]:
    """A checkpoint of all the state, and a run that begins with it."""
    with tempfile.TemporaryDirectory() as folder:
        saved = plait.Checkpoint(folder, every="1h")
        # All keys have come, and much is left.
        rows = 6 * load.rows
        running = plait.start(load.job(plait.Discard(), rows), checkpoint=saved, workers=2)
        wait_for(running, load.rows)
        assert running.saved is not None
        manifest = running.saved.take()
        stats = running.saved.stats
        abandon(running)
        if manifest is None:
            return {}
        began = now()
        empty = plait.start(load.job(plait.Discard(), rows), workers=2)
        start_s = now() - began
        end(empty)
        began = now()
        again = plait.start(load.job(plait.Discard(), rows), checkpoint=saved, workers=2)
        restored_s = now() - began
        abandon(again)
        return {
            "whole_mb": round(stats.last_bytes / 1e6, 2),
            "whole_s": round(stats.last_seconds, 3),
            "start_s": round(start_s, 3),
            "restore_s": round(restored_s, 3),
            "restore_mb_per_s": round(stats.last_bytes / 1e6 / restored_s, 1),
        }


def check(load: Load) -> None:
    """With checkpoints all the time the output is the same."""
    rows = min(load.rows, 1 << 17)
    plain = plait.run(load.job(plait.Collect(), rows), progress=False).outputs["out"]
    with tempfile.TemporaryDirectory() as folder:
        saved = plait.Checkpoint(folder, every="5ms", max_age="1h")
        made = plait.run(load.job(plait.Collect(), rows), checkpoint=saved, progress=False)
    for name in plain.column_names:
        check_equal(f"{load.name} {name}", made.outputs["out"][name], plain[name])


def rough_rate(load: Load) -> float:
    """About how many rows a second, in a short run."""
    rows = 1 << 20
    while True:
        began = now()
        plait.run(load.job(plait.Discard(), rows), workers=2, progress=False)
        if (took_s := now() - began) > 0.8:
            return rows / took_s
        rows *= 4


def figures_of(load: Load, options: Options) -> dict[str, Any]:
    check(load)
    most = (2.5 if is_timed(next(iter(load.streams.values()))) else 20) * rough_rate(load)
    runs: list[tuple[str, Told]] = []

    def one(name: str, every: str | None, seconds: float, rate: float | None = None) -> float:
        copied = name.endswith("copied")
        runs.append((name, measure(load, every, seconds, rate or most, rate, copied=copied)))
        return runs[-1][1].rate

    short = MEASURED_S["1s", options.quick]
    variants = {
        "off": partial(one, "off", None, short),
        "1s": partial(one, "1s", "1s", short),
        "1s_copied": partial(one, "1s_copied", "1s", short),
    }
    if not options.quick:
        variants["10s"] = partial(one, "10s", "10s", MEASURED_S["10s", False])
    budget = budget_of(options)
    rates = interleave(variants, options.repeat(2, 5), budget, f"checkpoint {load.name}")
    half = rates["off"].median / 2
    paced = {
        "half_off": partial(one, "half_off", None, short, half),
        "half_1s": partial(one, "half_1s", "1s", short, half),
        "half_copied": partial(one, "half_copied", "1s", short, half),
    }
    interleave(paced, options.repeat(1, 3), budget, f"checkpoint {load.name}")

    def of(name: str, field: str) -> float:
        return float(median(getattr(told, field) for said, told in runs if said == name))

    if not of("1s", "taken"):
        raise CheckFailed(f"{load.name}: no checkpoint in a run of {short} s")
    progress(f"checkpoint {load.name} restore")
    return {
        "off_m_per_s": round(rates["off"].median / 1e6, 3),
        "spread_off": round(rates["off"].spread, 3),
        **{
            f"rate_{name}_over_off": ratio(rates[name].median, rates["off"].median)
            for name in variants
            if name != "off"
        },
        "worst_off_ms": round(of("half_off", "worst_ms"), 2),
        "pause_ms": round(of("half_1s", "worst_ms") - of("half_off", "worst_ms"), 2),
        "pause_copied_ms": round(of("half_copied", "worst_ms") - of("half_off", "worst_ms"), 2),
        "hold_ms": round(of("half_1s", "hold_ms"), 3),
        "taken_1s": of("1s", "taken"),
        "last_mb": round(of("half_1s", "bytes") / 1e6, 2),
        "last_s": round(of("half_1s", "seconds"), 3),
        **restore(load),
    }


def run(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {"cores": os.cpu_count()}
    for load in loads(options.quick):
        found[load.name] = figures_of(load, options)
    return found
