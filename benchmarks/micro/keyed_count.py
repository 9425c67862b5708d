"""The running count by a 64-bit key, in total order, beside unordered C++ and a plain `for` loop.

Every run starts from empty state, so the rates include the growth of the tables; for 10^7 keys,
where growth is half of the work, `growth` and `warm` give the first pass over the data and the
passes behind it on their own. The C++ loop has plait's own table, hash and prefetch; its threads
share nothing and keep no order: `private` counts a part of the rows in each thread, `by_lane` a
part of the keys. Ratios: `speedup_2` and `price_of_order` (what order takes of the rate) are of the
engine alone, `vs_cpp` is ordered plait over unordered C++ (`private`), both on two threads. The
processor time of a row, over all threads, tells work from waiting, also on a machine that is not
idle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
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
    run_native,
    worst,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

CHECKED_ROWS = 200_000
LATENCY_EPOCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySet:
    """Keys as they come, in memory and in a file for the native program."""

    name: str
    keys: Any
    rows: int
    """How many rows a run counts: the keys, replayed."""
    path: Path

    def table(self, rows: int) -> Any:
        return replayed({"key": self.keys}, rows)


def draw(name: str, rows: int, random: np.random.Generator) -> Any:
    """Random 64-bit keys. Hot: half of the rows on 100 keys, half uniform over 10^5."""
    distinct = {"1e5": 10**5, "1e6": 10**6, "1e7": 10**7, "hot": 10**5}[name]
    keys = random.integers(-(2**63), 2**63 - 1, distinct, dtype=np.int64)
    chosen = random.integers(0, distinct, rows)
    if name == "hot":
        chosen = np.where(random.random(rows) < 0.5, chosen % 100, chosen)
    return keys[chosen]


def key_set(name: str, options: Options) -> KeySet:
    many = name == "1e7"
    once = 10_000_000 if many else 4_000_000
    passes = options.pick(2, 4 if many else 8)
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"keys_{name}.bin"
    keys = draw(name, once, np.random.default_rng(7))
    keys.tofile(path)
    return KeySet(name=name, keys=keys, rows=once * passes, path=path)


def counting(table: Any, sink: plait.Sink, rate_per_s: float | None = None) -> Any:
    source = plait.Table(table, rate_per_s=rate_per_s)
    return plait.stream(source).key_by("key").count().sink(sink)


class Engine:
    """plait on a table; remembers the processor time that each run took."""

    def __init__(self, table: Any, **settings: Any) -> None:
        self.table = table
        self.settings = settings
        self.cpu_ns: list[float] = []
        """A row, for every run."""

    def __call__(self) -> float:
        began = process_time()
        job = counting(self.table, plait.Discard())
        done = plait.run(job, progress=False, **self.settings)
        self.cpu_ns.append((process_time() - began) * 1e9 / self.table.num_rows)
        return done.records_per_s


def for_loop(keys: list[int]) -> list[int]:
    """What a user writes without an engine."""
    counts: dict[int, int] = {}
    results: list[int] = []
    for key in keys:
        seen = counts.get(key, 0) + 1
        counts[key] = seen
        results.append(seen)
    return results


def for_loop_rate(keys: list[int]) -> float:
    began = perf_counter()
    for_loop(keys)
    return len(keys) / (perf_counter() - began)


class Cpp:
    """The C++ loop on a key set: two passes over half of the rows each, from empty tables."""

    def __init__(self, given: KeySet, threads: int, variant: str) -> None:
        self.given = given
        self.threads = threads
        self.variant = variant
        self.passes: list[list[float]] = []
        """The seconds of the first and of the second pass, for every run."""
        self.cpu_ns: list[float] = []

    def __call__(self) -> float:
        half = self.given.rows // 2
        *seconds, cpu_s = run_native(
            "unordered_count", self.given.path, half, self.threads, self.variant
        )
        self.passes.append(seconds)
        self.cpu_ns.append(cpu_s * 1e9 / (2 * half))
        return 2 * half / sum(seconds)

    def pass_s(self, number: int) -> float:
        return median(seconds[number] for seconds in self.passes)


def check(given: KeySet) -> None:
    """Compares a shorter run of every variant, row by row, with the loop."""
    keys = given.keys[:CHECKED_ROWS]
    wanted = for_loop(keys.tolist())
    table = replayed({"key": keys}, len(keys))
    for workers in (1, 2):
        done = plait.run(counting(table, plait.Collect(label="out")), workers=workers)
        check_equal(f"{given.name}, {workers} workers: keys", done.outputs["out"]["key"], keys)
        check_equal(f"{given.name}, {workers} workers", done.outputs["out"]["count"], wanted)
    done = plait.run(counting(table, plait.Collect(label="out")), workers=2, order="none")
    pairs = zip(*(done.outputs["out"][name].to_pylist() for name in ("key", "count")), strict=True)
    same = Counter(pairs) == Counter(zip(keys.tolist(), wanted, strict=True))
    check_equal(f"{given.name}, order off", same, True)
    half = len(keys) // 2
    parts = [*for_loop(keys[:half].tolist()), *for_loop(keys[half:].tolist())]
    out = BUILD / "counts.bin"
    for threads, variant, right in (
        (1, "private", wanted),
        (2, "private", parts),
        (2, "by_lane", wanted),
    ):
        run_native("unordered_count", given.path, len(keys), threads, variant, out)
        check_equal(f"{given.name}, C++ {variant} {threads}", np.fromfile(out, np.int64), right)


def variants(given: KeySet, loop_rows: int, cpp_2: Cpp) -> dict[str, Callable[[], float]]:
    table = given.table(given.rows)
    half = given.table(given.rows // 2)
    keys = given.keys[:loop_rows].tolist()
    made: dict[str, Callable[[], float]] = {
        "plait_1": Engine(table, workers=1),
        "plait_2": Engine(table, workers=2),
        "plait_2_unordered": Engine(table, workers=2, order="none"),
        "cpp_1": Cpp(given, 1, "private"),
        "cpp_2": cpp_2,
        "cpp_2_by_lane": Cpp(given, 2, "by_lane"),
        "for_loop": lambda: for_loop_rate(keys),
    }
    if given.name == "1e7":
        made["first_half_1"] = Engine(half, workers=1)
        made["first_half_2"] = Engine(half, workers=2)
    return made


def p99_ms(given: KeySet, rate_per_s: float, seconds: float) -> float:
    """At half of the top rate, from the time each record was due."""
    table = given.table(int(rate_per_s / 2 * seconds))
    job = counting(table, plait.Discard(), rate_per_s=rate_per_s / 2)
    done = plait.run(job, workers=2, epoch_records=LATENCY_EPOCH, progress=False)
    return round(done.latency.p99_ms, 3)


def phases(given: KeySet, found: Mapping[str, Sample], cpp_2: Cpp) -> dict[str, Any]:
    """The first half of the rows, in which the tables grow, and the second half, apart."""
    half = given.rows // 2
    made: dict[str, Any] = {}
    for number, phase in enumerate(("growth", "warm")):
        spent = {workers: half / found[f"first_half_{workers}"].median for workers in (1, 2)}
        if phase == "warm":
            whole = {workers: given.rows / found[f"plait_{workers}"].median for workers in (1, 2)}
            # On a disturbed machine the whole may have been quicker than its half: no figure then.
            spent = {workers: max(0.0, whole[workers] - spent[workers]) for workers in (1, 2)}
        cpp_s = cpp_2.pass_s(number)
        made[phase] = {
            "rate_1": ratio(half / 1e6, spent[1]),
            "rate_2": ratio(half / 1e6, spent[2]),
            "cpp_2": ratio(half / 1e6, cpp_s),
            "vs_cpp": ratio(cpp_s, spent[2]),
        }
    return made


def measure(given: KeySet, options: Options, budget: Budget) -> dict[str, Any]:
    cpp_2 = Cpp(given, 2, "private")
    made = variants(given, options.pick(1_000_000, 4_000_000), cpp_2)
    made["plait_2"]()  # the first run meets fresh memory; it is not counted
    found = interleave(made, options.repeat(3, 9), budget, given.name)
    middle = {name: sample.median for name, sample in found.items()}
    cpu_ns = {
        name: median(variant.cpu_ns)
        for name, variant in made.items()
        if isinstance(variant, Engine | Cpp)
    }
    figures: dict[str, Any] = {
        "rate_1": millions(middle["plait_1"]),
        "rate_2": millions(middle["plait_2"]),
        "speedup_2": ratio(middle["plait_2"], middle["plait_1"]),
        "vs_cpp": ratio(middle["plait_2"], middle["cpp_2"]),
        "vs_cpp_by_lane": ratio(middle["plait_2"], middle["cpp_2_by_lane"]),
        "vs_cpp_1": ratio(middle["plait_1"], middle["cpp_1"]),
        "price_of_order": round(1 - middle["plait_2"] / middle["plait_2_unordered"], 3),
        "vs_for_loop": ratio(middle["plait_2"], middle["for_loop"]),
        "p99_ms_half_load": p99_ms(given, middle["plait_2"], options.pick(1, 2)),
        "rates_m_per_s": {name: millions(value) for name, value in middle.items()},
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "cpu_ns_per_row": {name: round(value, 2) for name, value in cpu_ns.items()},
        "rows": given.rows,
        "rounds": len(found["plait_2"].values),
    }
    return figures | (phases(given, found, cpp_2) if given.name == "1e7" else {})


def run(options: Options) -> dict[str, Any]:
    names = ("1e5", "1e6", "1e7", "hot")
    # The large key set first: its rounds are the longest, what it leaves is for the others.
    order = ("1e7", "1e5", "1e6", "hot")
    budget = budget_of(options)
    found: dict[str, dict[str, Any]] = {}
    for i, name in enumerate(order):
        progress(f"{name}: keys, and a check of all variants")
        given = key_set(name, options)
        check(given)
        share = Budget(budget.left * 0.5) if name == "1e7" else budget.part(len(order) - i)
        found[name] = measure(given, options, share)
        given.path.unlink()
    each = [found[name] for name in names]
    high = ("price_of_order", "p99_ms_half_load")
    low = ("rate_1", "rate_2", "speedup_2", "vs_cpp", "vs_for_loop")
    return {
        **{name: worst(each, name) for name in low},
        **{name: worst(each, name, least=False) for name in high},
        "keys": {name: found[name] for name in names},
        "unit": "million rows a second; every run from empty state",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    shown = ("plait_1", "plait_2", "plait_2_unordered", "cpp_1", "cpp_2", "for_loop")
    groups = {
        f"{name} keys": {label: given["rates_m_per_s"][label] for label in shown}
        for name, given in figures["keys"].items()
    }
    bars(file, [("Running count by key", "million rows a second", groups)])
