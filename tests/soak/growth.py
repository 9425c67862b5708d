"""What there is of everything that a soak started, and whether it grows.

The first half of a run warms up: caches fill, memory is cut into pieces. In the second half the
*slope* of each figure, how much it grows with each rescale, must not be above its limit. The slope
is the median over all pairs of samples, so single samples that are far off do not count.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN_LIMITS = {
    "processes": 0.02,
    "files": 0.1,
    "sinks_kb": 40.0,
}
"""Of plait's own processes, for each rescale: a process in fifty, a file in ten, 40 kB."""
RAY_LIMITS = {"manager_kb": 130.0, "gcs_kb": 600.0, "raylet_kb": 200.0, "ray_rest_kb": 300.0}
"""Of Ray's daemons, and of the manager, which is Ray's client: for each node that has ended, which
is an actor to Ray. What is kept of it is Ray's; README.md has what was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Figures at one moment, when the job has its first size."""

    rescales: int
    ended: int
    """Nodes that have ended so far."""
    processes: int
    files: int
    """Open files of all processes."""
    manager_kb: float
    """Memory of the manager of jobs, that is its own and not shared."""
    sinks_kb: float
    """Of the node with the sinks, which is there from the first rescale to the last."""
    gcs_kb: float
    """Of Ray's control service."""
    raylet_kb: float
    ray_rest_kb: float
    """Of Ray's other processes, together."""


def take_sample(rescales: int, ended: int) -> Sample:
    """Of all that this process has started."""
    processes = files = 0
    memory_kb = dict.fromkeys(("manager", "sinks", "gcs", "raylet", "ray_rest"), 0.0)
    started = psutil.Process().children(recursive=True)
    for process in sorted(started, key=psutil.Process.create_time):
        try:
            with process.oneshot():
                own_kb = process.memory_full_info().uss / 1e3
                opened, name = process.num_fds(), " ".join(process.cmdline())
        except psutil.Error:
            continue  # it has just ended
        processes += 1
        files += opened
        kind = kind_of(name)
        if kind == "node" and not memory_kb["sinks"]:
            kind = "sinks"  # the first that was started
        if kind in memory_kb:
            memory_kb[kind] += own_kb
    return Sample(
        rescales=rescales,
        ended=ended,
        processes=processes,
        files=files,
        manager_kb=memory_kb["manager"],
        sinks_kb=memory_kb["sinks"],
        gcs_kb=memory_kb["gcs"],
        raylet_kb=memory_kb["raylet"],
        ray_rest_kb=memory_kb["ray_rest"],
    )


def kind_of(command: str) -> str:
    if command.startswith("ray::RayManager"):
        return "manager"
    if command.startswith("ray::RayNode"):
        return "node"
    program = command.split(" ", 1)[0]
    if program.endswith("gcs_server"):
        return "gcs"
    return "raylet" if program.endswith("raylet") else "ray_rest"


def slope(points: Sequence[tuple[float, float]]) -> float:
    """How much the second grows with the first; 0 of fewer than two points."""
    found = [(b - y) / (a - x) for (x, y), (a, b) in combinations(points, 2) if a != x]
    return statistics.median(found) if found else 0.0


def second_half(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[len(samples) // 2 :]


def slopes(samples: Sequence[Sample]) -> dict[str, float]:
    """Of the second half, in units for each rescale, or of Ray for each node that has ended."""
    late = [asdict(one) for one in second_half(samples)]
    found = {}
    for name in OWN_LIMITS:
        found[name] = slope([(one["rescales"], one[name]) for one in late])
    for name in RAY_LIMITS:
        found[name] = slope([(one["ended"], one[name]) for one in late])
    return found


def growth(samples: Sequence[Sample]) -> list[str]:
    """What grows faster than it may, in words."""
    found = []
    for name, measured in slopes(samples).items():
        limit = OWN_LIMITS.get(name, RAY_LIMITS.get(name, 0.0))
        unit = "rescale" if name in OWN_LIMITS else "ended node"
        if measured > limit:
            found.append(f"{name} grows by {measured:,.3g} with each {unit}, {limit:g} is allowed")
    return found
