"""What a user waits for before the first record: `import plait`, and a first small job.

Every value is a whole new Python process with warm file caches; `over_bare_ms` takes off what
Python itself needs. NumPy and pyarrow stand beside it: plait loads neither before a job needs
them.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from time import perf_counter
from typing import Any

from benchmarks.support.common import ROOT, Options, budget_of, check_equal, interleave, ratio

JOB = """
import plait
print(plait.stream([{"k": 1}, {"k": 1}]).key_by("k").count().to_arrow()["count"].to_pylist())
"""
PROGRAMS = {
    "bare": "pass",
    "plait": "import plait",
    "plait_job": JOB,
    "numpy": "import numpy",
    "pyarrow": "import pyarrow",
}


def output(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout


def seconds(program: str) -> float:
    began = perf_counter()
    output(program)
    return perf_counter() - began


def run(options: Options) -> dict[str, Any]:
    check_equal("the first job", output(JOB).strip(), "[1, 2]")
    for program in PROGRAMS.values():
        output(program)  # fills the file caches
    variants = {name: partial(seconds, program) for name, program in PROGRAMS.items()}
    rounds = options.repeat(9, 25)
    found = interleave(variants, rounds, budget_of(options), "import_time")
    ms = {name: round(sample.median * 1e3, 1) for name, sample in found.items()}
    over = {name: round(value - ms["bare"], 1) for name, value in ms.items() if name != "bare"}
    return {
        "import_ms": over["plait"],
        "first_job_ms": over["plait_job"],
        "vs_numpy": ratio(over["plait"], over["numpy"]),
        "vs_pyarrow": ratio(over["plait"], over["pyarrow"]),
        "process_ms": ms,
        "over_bare_ms": over,
        "spread": {name: round(sample.spread, 3) for name, sample in found.items()},
        "rounds": len(found["bare"].values),
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    groups = {name: {"over bare Python": ms} for name, ms in figures["over_bare_ms"].items()}
    bars(file, [("Time of an import", "milliseconds", groups)])
