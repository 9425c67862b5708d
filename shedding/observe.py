"""Makes a view of what nodes report: rows in, columns out; pure.

`SeenJob` is a job as it is known to whoever watches it (its process, or the coordinator). Names are
made into keys by a hash, so that a part or a query keeps its key when others come and go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from plait.shedding.view import Hosts, Pairs, Parts, Queries, Tasks, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.protocol.messages import TaskReport
    from plait.protocol.rates import SourceRate
    from plait.shedding.view import Floats, Ints

FRESHNESS_S = 5.0
"""Of a query that may be shed and does not say."""
TRUSTED = 0.5
"""A rate that is trusted less is not known."""
WARM_REPORTS = 2
WARM_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenHost:
    name: str
    cores: float
    used: float
    """Cores that all processes use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenQuery:
    label: str
    priority: int = 0
    floor: float = 1.0
    bound: float = 1.0
    freshness_s: float = 0.0
    suspends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPart:
    """A sub-pipeline; they are in the order of their numbers, each behind its inputs."""

    label: str
    inputs: tuple[int, ...]
    queries: tuple[str, ...]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRates:
    """What a sub-pipeline did on a node, in a second."""

    part: int
    cpu: float
    taken: float
    offered: float
    waiting: float = 0.0
    """Rows, now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTask:
    rates: TaskRates
    rank: int
    host: str
    share: float = 1.0
    most: float
    state_bytes: float = 0.0
    moves: bool = False
    warm: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    name: str
    queries: tuple[SeenQuery, ...]
    parts: tuple[SeenPart, ...]
    tasks: tuple[SeenTask, ...]
    sources: Mapping[str, SourceRate] = field(default_factory=dict)
    """Rates by label; a source without one is read as fast as its rows are taken."""
    changing: bool = False


@lru_cache(maxsize=1 << 18)
def key_of(*names: str) -> int:
    """A number for a name that is the same in every cycle and process."""
    data = "\0".join(names).encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1


def task_rates(
    before: Sequence[TaskReport], after: Sequence[TaskReport], seconds: float
) -> tuple[TaskRates, ...]:
    """From two reports of a node, `seconds` apart; nothing if they are not of one engine."""
    if seconds <= 0.0 or [one.part for one in before] != [one.part for one in after]:
        return ()
    return tuple(
        TaskRates(
            part=new.part,
            cpu=max(new.cpu_s - old.cpu_s, 0.0) / seconds,
            taken=max(done(new) - done(old), 0) / seconds,
            offered=max(new.offered - old.offered, new.taken - old.taken, 0) / seconds,
            waiting=float(new.waiting),
        )
        for old, new in zip(before, after, strict=True)
    )


def done(report: TaskReport) -> int:
    """Rows that went through: what waits between the stages of a part has not used its CPU yet."""
    return report.kept - report.waiting


def is_warm(reports: int, age_s: float) -> bool:
    """Whether a task has been measured where it runs, by the number of its reports since then."""
    return reports >= WARM_REPORTS or age_s >= WARM_S


def make_view(
    at: float,
    hosts: Sequence[SeenHost],
    jobs: Sequence[SeenJob],
    *,
    coming: int = 0,
    limits: tuple[int, int] = (0, 0),
) -> View:
    """The view of all jobs on these hosts."""
    place = {host.name: row for row, host in enumerate(hosts)}
    part_rows: list[tuple[int, SeenJob, SeenPart]] = []
    first_part: list[int] = []
    first_query: list[int] = []
    queries: list[tuple[int, SeenQuery]] = []
    behind: list[tuple[int, int]] = []
    edges: list[tuple[int, int]] = []
    tasks: list[tuple[int, SeenTask]] = []
    for number, job in enumerate(jobs):
        first_part.append(len(part_rows))
        first_query.append(len(queries))
        at_query = {query.label: len(queries) + row for row, query in enumerate(job.queries)}
        for row, part in enumerate(job.parts):
            here = first_part[number] + row
            behind += [(here, at_query[label]) for label in part.queries]
            edges += [(first_part[number] + given, here) for given in part.inputs]
            part_rows.append((number, job, part))
        queries += [(number, query) for query in job.queries]
        tasks += [
            (first_part[number] + task.rates.part, task) for task in job.tasks if task.host in place
        ]
    lag = [lag_of(job) for job in jobs]
    task_host = ints(place[task.host] for _, task in tasks)
    cpu = floats(task.rates.cpu for _, task in tasks)
    return View(
        at=at,
        jobs=tuple(job.name for job in jobs),
        hosts=Hosts(
            key=ints(key_of(host.name) for host in hosts),
            name=tuple(host.name for host in hosts),
            cores=floats(host.cores for host in hosts),
            used=floats(host.used for host in hosts),
            ours=np.bincount(task_host, weights=cpu, minlength=len(hosts)).astype(np.float64),
        ),
        parts=Parts(
            key=ints(key_of(job.name, part.label) for _, job, part in part_rows),
            label=tuple(part.label for _, _, part in part_rows),
            job=ints(number for number, _, _ in part_rows),
            injected=floats(injected(job, part) for _, job, part in part_rows),
            backlog=floats(backlog(job, part) for _, job, part in part_rows),
            reads=np.array([bool(part.sources) for _, _, part in part_rows], dtype=bool),
        ),
        queries=Queries(
            key=ints(key_of(jobs[number].name, query.label) for number, query in queries),
            label=tuple(query.label for _, query in queries),
            job=ints(number for number, _ in queries),
            priority=ints(query.priority for _, query in queries),
            floor=floats(query.floor for _, query in queries),
            bound=floats(query.bound for _, query in queries),
            sheds=np.array([query.floor < 1.0 for _, query in queries], dtype=bool),
            suspends=np.array([query.suspends for _, query in queries], dtype=bool),
            freshness_s=floats(query.freshness_s or FRESHNESS_S for _, query in queries),
            lag_s=floats(lag[number] for number, _ in queries),
        ),
        tasks=Tasks(
            part=ints(part for part, _ in tasks),
            host=task_host,
            rank=ints(task.rank for _, task in tasks),
            share=floats(task.share for _, task in tasks),
            cpu=cpu,
            taken=floats(task.rates.taken for _, task in tasks),
            offered=floats(task.rates.offered for _, task in tasks),
            waiting=floats(task.rates.waiting for _, task in tasks),
            most=floats(task.most for _, task in tasks),
            state_bytes=floats(task.state_bytes for _, task in tasks),
            moves=np.array([task.moves for _, task in tasks], dtype=bool),
            warm=np.array([task.warm for _, task in tasks], dtype=bool),
        ),
        behind=pairs(behind),
        edges=pairs(edges),
        changing=frozenset(number for number, job in enumerate(jobs) if job.changing),
        coming=coming,
        limits=limits,
    )


def known_rates(job: SeenJob, part: SeenPart) -> list[SourceRate]:
    """Of the sources of a part, those whose rate is known."""
    found = (job.sources.get(label) for label in part.sources)
    return [rate for rate in found if rate is not None and rate.trust >= TRUSTED]


def injected(job: SeenJob, part: SeenPart) -> float:
    rates = known_rates(job, part)
    return sum(rate.per_s for rate in rates) if rates else float("nan")


def backlog(job: SeenJob, part: SeenPart) -> float:
    return sum(rate.lag or 0.0 for rate in known_rates(job, part))


def lag_of(job: SeenJob) -> float:
    """How far a job is behind: all its queries go through the same epochs."""
    return max((rate.lag_s or 0.0 for rate in job.sources.values()), default=0.0)


def ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=np.float64)


def pairs(rows: Sequence[tuple[int, int]]) -> Pairs:
    return Pairs(left=ints(left for left, _ in rows), right=ints(right for _, right in rows))
