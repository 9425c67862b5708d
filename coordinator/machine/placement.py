"""Which host gets a task: of those that have none of the job yet, the one whose processors are used
least, by all processes on it.

A job spreads first: a measurement of a tenth of a second says too little to put two of its nodes on
one host while another has none. Nothing is reserved: what counts is measured use, and one core for
every task whose use is not yet known. A task that prefers hosts goes to the best of them, unless
none has the processors it needs. Hosts that are equally good are drawn from a source with a seed,
so the same facts and the same seed give the same placement.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from plait.coordinator.messages.hosts import ASSUMED_CORES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from plait.coordinator.messages.hosts import HostView

EQUAL_RATIO = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAsk:
    """A task that needs a host."""

    task: str
    cores_needed: float | None = None
    """None: not measured."""
    prefer: tuple[str, ...] = ()
    """Hosts it would rather run on, for example where its data is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    task: str
    host: str
    address: str
    fits: bool
    """Whether the host has the processors left; if not, it is still the best one."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    task: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The decision, in the order in which the tasks were asked for."""

    assignments: tuple[Assignment, ...]
    infeasible: tuple[Unplaced, ...]


def place(
    tasks: Sequence[TaskAsk], hosts: Sequence[HostView], seed: int, taken: Collection[str] = ()
) -> Placement:
    """A host for every task of a job. Tasks placed here count as use for those that follow.
    `taken`: hosts that have tasks of this job already."""
    random = Random(seed)
    with_task = set(taken)
    able = {one.host: one for one in sorted(hosts, key=lambda one: one.host) if one.cores > 0}
    used = {host: one.used_cores for host, one in able.items()}
    assignments: list[Assignment] = []
    infeasible: list[Unplaced] = []
    for ask in tasks:
        if not able:
            why = f"none of {len(hosts)} hosts has a core" if hosts else "there is no host"
            infeasible.append(Unplaced(task=ask.task, reason=why))
            continue
        needed = ASSUMED_CORES if ask.cores_needed is None else ask.cores_needed
        preferred = [
            host
            for host in able
            if host in ask.prefer and able[host].cores - used[host] >= needed - EQUAL_RATIO
        ]
        allowed = preferred or list(able)
        empty = [host for host in allowed if host not in with_task]
        ratios = {host: used[host] / able[host].cores for host in empty or allowed}
        best = min(ratios.values())
        equal = [host for host, ratio in ratios.items() if ratio <= best + EQUAL_RATIO]
        host = equal[0] if len(equal) == 1 else random.choice(equal)
        fits = able[host].cores - used[host] >= needed - EQUAL_RATIO
        assignments.append(
            Assignment(
                task=ask.task,
                host=host,
                address=able[host].address,
                fits=fits,
                reason=reason(ask, bool(preferred), best, len(equal), fits, len(empty)),
            )
        )
        used[host] += needed
        with_task.add(host)
    return Placement(assignments=tuple(assignments), infeasible=tuple(infeasible))


def reason(ask: TaskAsk, preferred: bool, ratio: float, equal: int, fits: bool, empty: int) -> str:
    """Why this host, in a few words. `empty`: hosts that had no task of the job."""
    parts = [f"lowest CPU use ({ratio:.0%})"]
    if preferred:
        parts[0] += " of the preferred hosts"
    elif ask.prefer:
        parts.append(f"no room on {', '.join(ask.prefer)}")
    if empty == 0:
        parts.append("every host has one of the job")
    if equal > 1:
        parts.append(f"drawn from {equal} equal hosts")
    if ask.cores_needed is None:
        parts.append("one core assumed")
    if not fits:
        parts.append("the host is full")
    return "; ".join(parts)
