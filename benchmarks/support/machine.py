"""Facts of the machine that stand beside every result: without them a number says nothing.

`others_cpu_ratio` is the part of the machine's processor time that went to other processes while
the benchmark ran. When it is not near 0, the rates are those of a busy machine.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds since the machine started, and those of this process and its children."""

    at: float
    busy_s: float
    own_s: float

    @classmethod
    def now(cls) -> Usage:
        times = psutil.cpu_times()
        own = os.times()
        return cls(
            at=time.monotonic(),
            busy_s=sum(times) - times.idle - getattr(times, "iowait", 0.0),
            own_s=own.user + own.system + own.children_user + own.children_system,
        )


def others_cpu_ratio(before: Usage, after: Usage) -> float:
    """The part of the machine that other processes took between two readings."""
    seconds = (after.at - before.at) * (os.cpu_count() or 1)
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return round(max(0.0, others / seconds), 3) if seconds > 0 else 0.0


def cpu_lines() -> dict[str, str]:
    """What /proc/cpuinfo says of the first core; empty where there is none."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().split("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in first)
    return {name.strip(): value.strip() for name, _, value in pairs}


def has_avx2() -> bool:
    return "avx2" in cpu_lines().get("flags", "").split()


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compiler_version(command: str | None) -> str:
    if command is None:
        return "none"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.stdout else command


def load_average() -> float:
    return round(os.getloadavg()[0], 2)


def facts(command: str | None) -> dict[str, Any]:
    """The machine as it is before the run; `command` is the compiler of the native baselines."""
    import numpy
    import pyarrow

    import plait

    cpu = cpu_lines().get("model name") or platform.processor() or platform.machine()
    return {
        "cpu": cpu,
        "cores": usable_cores(),
        "avx2": has_avx2(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "compiler": compiler_version(command),
        "plait": plait.__version__,
        "numpy": numpy.__version__,
        "pyarrow": pyarrow.__version__,
        "load_before": load_average(),
    }
