"""Small views, written as tables of named rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from plait.shedding.view import Floats, Hosts, Ints, Pairs, Parts, Queries, Tasks, View


@dataclass(kw_only=True)
class Host:
    name: str = "host-1"
    cores: float = 1.0
    others: float = 0.0


@dataclass(kw_only=True)
class Part:
    name: str
    queries: tuple[str, ...]
    after: tuple[str, ...] = ()
    injected: float = float("nan")
    backlog: float = 0.0
    job: str = "job"


@dataclass(kw_only=True)
class Query:
    name: str
    priority: int = 0
    floor: float = 1.0
    bound: float = 1.0
    suspends: bool = False
    freshness_s: float = 5.0
    lag_s: float = 0.0
    job: str = "job"


@dataclass(kw_only=True)
class Task:
    part: str
    cpu: float
    """At what it takes now."""
    taken: float
    offered: float
    host: str = "host-1"
    rank: int = 0
    share: float = 1.0
    waiting: float = 0.0
    most: float = 1.0
    size: float = 0.0
    moves: bool = True
    warm: bool = True


@dataclass(kw_only=True)
class Table:
    hosts: list[Host] = field(default_factory=lambda: [Host()])
    parts: list[Part]
    queries: list[Query]
    tasks: list[Task]
    changing: frozenset[int] = frozenset()
    coming: int = 0
    limits: tuple[int, int] = (0, 0)


def floats(values: list[float]) -> Floats:
    return np.array(values, dtype=np.float64)


def ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def pairs(rows: list[tuple[int, int]]) -> Pairs:
    return Pairs(left=ints([left for left, _ in rows]), right=ints([right for _, right in rows]))


def view_of(table: Table, at: float = 0.0) -> View:
    jobs = list(dict.fromkeys(part.job for part in table.parts))
    hosts = [host.name for host in table.hosts]
    parts = [part.name for part in table.parts]
    queries = [query.name for query in table.queries]
    ours = [sum(task.cpu for task in table.tasks if task.host == name) for name in hosts]
    return View(
        at=at,
        jobs=tuple(jobs),
        hosts=Hosts(
            key=ints([hash(name) for name in hosts]),
            name=tuple(hosts),
            cores=floats([host.cores for host in table.hosts]),
            used=floats([o + host.others for o, host in zip(ours, table.hosts, strict=True)]),
            ours=floats(ours),
        ),
        parts=Parts(
            key=ints([hash((part.job, part.name)) for part in table.parts]),
            label=tuple(parts),
            job=ints([jobs.index(part.job) for part in table.parts]),
            injected=floats([part.injected for part in table.parts]),
            backlog=floats([part.backlog for part in table.parts]),
            reads=np.array([not part.after for part in table.parts], dtype=bool),
        ),
        queries=Queries(
            key=ints([hash((query.job, query.name)) for query in table.queries]),
            label=tuple(queries),
            job=ints([jobs.index(query.job) for query in table.queries]),
            priority=ints([query.priority for query in table.queries]),
            floor=floats([query.floor for query in table.queries]),
            bound=floats([query.bound for query in table.queries]),
            sheds=np.array([query.floor < 1.0 for query in table.queries], dtype=bool),
            suspends=np.array([query.suspends for query in table.queries], dtype=bool),
            freshness_s=floats([query.freshness_s for query in table.queries]),
            lag_s=floats([query.lag_s for query in table.queries]),
        ),
        tasks=Tasks(
            part=ints([parts.index(task.part) for task in table.tasks]),
            host=ints([hosts.index(task.host) for task in table.tasks]),
            rank=ints([task.rank for task in table.tasks]),
            share=floats([task.share for task in table.tasks]),
            cpu=floats([task.cpu for task in table.tasks]),
            taken=floats([task.taken for task in table.tasks]),
            offered=floats([task.offered for task in table.tasks]),
            waiting=floats([task.waiting for task in table.tasks]),
            most=floats([task.most for task in table.tasks]),
            state_bytes=floats([task.size for task in table.tasks]),
            moves=np.array([task.moves for task in table.tasks], dtype=bool),
            warm=np.array([task.warm for task in table.tasks], dtype=bool),
        ),
        behind=pairs(
            [
                (at, queries.index(name))
                for at, part in enumerate(table.parts)
                for name in part.queries
            ]
        ),
        edges=pairs(
            [
                (parts.index(before), at)
                for at, part in enumerate(table.parts)
                for before in part.after
            ]
        ),
        changing=table.changing,
        coming=table.coming,
        limits=table.limits,
    )


def taxi(
    *,
    cores: float = 1.0,
    floors: tuple[float, float] = (0.4, 0.6),
    priorities: tuple[int, int] = (0, 0),
    more_hosts: int = 0,
    load: float = 1.0,
    freshness_s: float = 0.0,
) -> Table:
    """Taxi drives: two sources, two sinks that use both, the second with two tasks. At full
    accuracy the sources need 0.05 cores each, the first sink 0.8, the second 0.6 twice."""
    both = ("snk1", "snk2")

    def task(part: str, cpu: float, share: float = 1.0, rank: int = 0) -> Task:
        rate = (100.0 if part.startswith("src") else 200.0) * share * load
        return Task(part=part, cpu=cpu * load, taken=rate, offered=rate, share=share, rank=rank)

    return Table(
        hosts=[
            Host(name="host-1", cores=cores),
            *(Host(name=f"host-{at + 2}", cores=cores) for at in range(more_hosts)),
        ],
        parts=[
            Part(name="src1", queries=both, injected=100.0 * load),
            Part(name="src2", queries=both, injected=100.0 * load),
            Part(name="part1", queries=("snk1",), after=("src1", "src2")),
            Part(name="part2", queries=("snk2",), after=("src1", "src2")),
        ],
        queries=[
            Query(name="snk1", floor=floors[0], priority=priorities[0], freshness_s=freshness_s),
            Query(name="snk2", floor=floors[1], priority=priorities[1], freshness_s=freshness_s),
        ],
        tasks=[
            task("src1", 0.05),
            task("src2", 0.05),
            task("part1", 0.8),
            task("part2", 0.6, 0.5),
            task("part2", 0.6, 0.5, 1),
        ],
    )
