"""Clusters and jobs drawn from a seed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.sim.loads.cluster import Cluster, LoadedHost, LoadedPart, LoadedQuery, LoadedTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.shedding.words import QualityPolicy

CALM, RUSH, GONE = 10, 40, 70
"""Cycles at which the load rises, changes again, and is gone."""
END = 90
AT_ONCE = 200.0


def schedule(calm: float, rush: float, later: float) -> Callable[[int], float]:
    def rate(cycle: int) -> float:
        if cycle < CALM:
            return calm
        if cycle < RUSH:
            return rush
        return later if cycle < GONE else 0.2 * calm

    return rate


def draw(seed: int, policy: QualityPolicy, *, most_hosts: int = 4) -> Cluster:
    """One to three jobs of a source or two, branches with a query each, over some hosts."""
    random = Random(seed)
    cores = random.choice((1.0, 2.0, 4.0))
    hosts = [
        LoadedHost(key=at, cores=cores, others=random.choice((0.0, 0.0, 0.2)) * cores)
        for at in range(random.randint(1, most_hosts))
    ]
    parts: list[LoadedPart] = []
    queries: list[LoadedQuery] = []
    tasks: list[LoadedTask] = []
    jobs = random.randint(1, 3)
    for job in range(jobs):
        first = len(queries)
        count = random.randint(1, 3)
        for _ in range(count):
            lossless = random.random() < 0.1
            queries.append(
                LoadedQuery(
                    job=job,
                    priority=random.randint(0, 2),
                    floor=1.0 if lossless else random.choice((0.1, 0.2, 0.4, 0.6)),
                    freshness_s=random.choice((2.0, 5.0, 20.0)),
                    suspends=random.random() < 0.2,
                )
            )
        reached = list(range(first, first + count))
        sources = []
        load = cores * len(hosts) / jobs
        for _ in range(random.randint(1, 2)):
            sources.append(len(parts))
            calm = random.uniform(200.0, 400.0)
            rate = schedule(calm, calm * random.uniform(0.8, 4.0), calm * random.uniform(0.8, 4.0))
            parts.append(
                LoadedPart(
                    job=job,
                    queries=reached,
                    before=[],
                    each=random.uniform(0.01, 0.1) * load / calm,
                    base=0.0,
                    passes=1.0,
                    most=cores,
                    moves=False,
                    size=0.0,
                    rate=rate,
                )
            )
        for query in reached:
            parts.append(
                LoadedPart(
                    job=job,
                    queries=[query],
                    before=sources,
                    each=random.uniform(0.1, 0.6) * load / AT_ONCE / count / len(sources),
                    base=random.choice((0.0, 0.02)),
                    passes=random.choice((0.5, 1.0)),
                    most=cores,
                    moves=random.random() < 0.9,
                    size=random.choice((0.0, 1e6, 5e7)),
                )
            )
    for at, part in enumerate(parts):
        on = [random.randrange(len(hosts))]
        if part.rate is None and len(hosts) > 1 and random.random() < 0.4:
            on = random.sample(range(len(hosts)), 2)
        for rank, host in enumerate(on):
            tasks.append(LoadedTask(part=at, host=host, share=1.0 / len(on), rank=rank))
    return Cluster(
        hosts=hosts,
        parts=parts,
        queries=queries,
        tasks=tasks,
        jobs=jobs,
        random=random,
        policy=policy,
        limits=(1, len(hosts) + 2) if random.random() < 0.3 else (0, 0),
    )
