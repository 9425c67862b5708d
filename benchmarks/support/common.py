"""What every benchmark needs: options, interleaved repetitions, native baselines, ready-made jobs.

Variants that are compared run in turns, round by round, every second round backwards, so that a
disturbance of the machine meets all of them alike. A figure is the median of the rounds; the
spread stands beside it. A budget ends the rounds early on a slow machine instead of overrunning;
one round is always whole.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.support.machine import has_avx2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "benchmarks"
HEADERS = ROOT / "node_runtime" / "include"
NATIVE = ROOT / "benchmarks" / "native"

QUICK_S = 33.0
"""What a quick run may spend on its rounds; checks and data come on top."""


class CheckFailed(Exception):
    """A variant gave wrong results: its rate means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a benchmark is run."""

    quick: bool = False
    rounds: int | None = None
    """How often each variant is repeated; None: what the benchmark thinks right."""

    def repeat(self, quick: int, full: int) -> int:
        return self.rounds or (quick if self.quick else full)

    def pick(self, quick: int, full: int) -> int:
        return quick if self.quick else full


@dataclass(slots=True)
class Budget:
    """Seconds that may be spent, shared out over the parts of a benchmark."""

    seconds: float
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)

    def part(self, parts_left: int) -> Budget:
        """An equal share of what is left."""
        return Budget(max(0.0, self.left) / parts_left)


def budget_of(options: Options) -> Budget:
    return Budget(QUICK_S if options.quick else 3600.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one variant, a value a round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The distance of the quartiles, or of the extremes of few values, over the median."""
        low, high = min(self.values), max(self.values)
        if len(self.values) >= 5:
            low, _, high = statistics.quantiles(self.values, n=4)
        return (high - low) / self.median if self.median else 0.0


def interleave(
    variants: Mapping[str, Callable[[], float]], rounds: int, budget: Budget, note: str = ""
) -> dict[str, Sample]:
    """Runs every variant once a round; what each returns is its value."""
    values: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds):
        began = time.monotonic()
        names = list(variants)[:: 1 if turn % 2 == 0 else -1]
        for name in names:
            progress(f"{note} {turn + 1}/{rounds} {name}")
            values[name].append(variants[name]())
        if budget.left < time.monotonic() - began:
            break
    return {name: Sample(tuple(given)) for name, given in values.items()}


def progress(text: str) -> None:
    """One line on stderr; on a terminal it is written over by the next."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text.strip()}", end="", file=sys.stderr, flush=True)
    else:
        print(text.strip(), file=sys.stderr, flush=True)


def clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def compiler() -> str | None:
    """The system's C++ compiler."""
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    return None


def native(name: str) -> Path:
    """The program of `benchmarks/native/NAME.cpp`; compiled if a source is newer than it."""
    source, program = NATIVE / f"{name}.cpp", BUILD / name
    newest = max(path.stat().st_mtime for path in (source, *HEADERS.rglob("*.hpp")))
    if program.exists() and program.stat().st_mtime >= newest:
        return program
    found = compiler()
    if found is None:
        raise RuntimeError("the native baselines need a C++ compiler (c++, g++ or clang++)")
    progress(f"compiling {source.name}")
    BUILD.mkdir(parents=True, exist_ok=True)
    # -ffp-contract=off as in the engine: both sides round alike, so results can be compared.
    flags = ["-std=c++20", "-O3", "-ffp-contract=off", "-pthread", "-I", str(HEADERS)]
    flags += ["-mavx2"] if has_avx2() else []
    made = program.with_suffix(f".{os.getpid()}")
    subprocess.run([found, *flags, str(source), "-o", str(made)], check=True)
    made.replace(program)
    return program


def run_native(name: str, *arguments: object) -> list[float]:
    """Runs a native baseline and gives the numbers it prints."""
    command = [str(native(name)), *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def replayed(columns: Mapping[str, Any], rows: int) -> Any:
    """A pyarrow table of `rows` rows: the columns over and over, all in the same memory."""
    import pyarrow as pa

    once = pa.table(dict(columns))
    whole, rest = divmod(rows, once.num_rows)
    return pa.concat_tables([*[once] * whole, once.slice(0, rest)])


def check_equal(what: str, given: Any, wanted: Any) -> None:
    """Raises unless two arrays hold the same, row by row."""
    import numpy as np

    if not np.array_equal(np.asarray(given), np.asarray(wanted)):
        raise CheckFailed(f"{what}: the results are wrong")


def ratio(a: float, b: float) -> float:
    return round(a / b, 3) if b else 0.0


def millions(value: float) -> float:
    return round(value / 1e6, 3)


def worst(figures: Sequence[Mapping[str, float]], name: str, least: bool = True) -> float:
    found = [float(given[name]) for given in figures]
    return min(found) if least else max(found)
