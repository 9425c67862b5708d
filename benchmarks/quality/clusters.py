"""A view of any size, made of columns."""

from __future__ import annotations

import numpy as np

from plait.shedding.view import Hosts, Pairs, Parts, Queries, Tasks, View

BRANCHES, SPREAD = 3, 4
"""Queries of a job, and tasks of each of its parts."""


def many(*, tasks: int, hosts: int, load: float = 1.6, seed: int = 1) -> View:
    """Jobs of a source and three branches, each part with four tasks on drawn hosts of four cores;
    together they need `load` times what there is."""
    rng = np.random.default_rng(seed)
    parts_of_job = 1 + BRANCHES
    jobs = max(tasks // (parts_of_job * SPREAD), 1)
    parts, queries = jobs * parts_of_job, jobs * BRANCHES
    part = np.arange(parts)
    job = part // parts_of_job
    reads = part % parts_of_job == 0
    source = job * parts_of_job
    of_query = np.arange(queries)
    own = (of_query // BRANCHES) * parts_of_job + 1 + of_query % BRANCHES
    task_part = np.repeat(part, SPREAD)
    count = len(task_part)
    cores = 4.0
    cpu = rng.uniform(0.5, 1.5, count) * load * hosts * cores / count
    rate = np.full(count, 250.0)
    host = rng.integers(0, hosts, count)
    return View(
        at=0.0,
        jobs=tuple(f"job-{at}" for at in range(jobs)),
        hosts=Hosts(
            key=np.arange(hosts),
            name=tuple(f"host-{at}" for at in range(hosts)),
            cores=np.full(hosts, cores),
            used=np.full(hosts, cores),
            ours=np.minimum(np.bincount(host, weights=cpu, minlength=hosts), cores),
        ),
        parts=Parts(
            key=part,
            label=tuple(f"part-{at}" for at in range(parts)),
            job=job,
            injected=np.where(reads, 1000.0, np.nan),
            backlog=np.zeros(parts),
            reads=reads,
        ),
        queries=Queries(
            key=of_query,
            label=tuple(f"query-{at}" for at in range(queries)),
            job=of_query // BRANCHES,
            priority=rng.integers(0, 5, queries),
            floor=rng.choice([0.05, 0.1, 0.2], queries),
            bound=np.ones(queries),
            sheds=np.ones(queries, dtype=bool),
            suspends=np.zeros(queries, dtype=bool),
            freshness_s=np.full(queries, 5.0),
            lag_s=np.zeros(queries),
        ),
        tasks=Tasks(
            part=task_part,
            host=host,
            rank=np.tile(np.arange(SPREAD), parts),
            share=np.full(count, 1.0 / SPREAD),
            cpu=cpu,
            taken=rate,
            offered=rate,
            waiting=np.zeros(count),
            most=np.full(count, cores),
            state_bytes=np.full(count, 1e6),
            moves=~reads[task_part],
            warm=np.ones(count, dtype=bool),
        ),
        behind=Pairs(
            left=np.concatenate((own, source[own])), right=np.concatenate((of_query, of_query))
        ),
        edges=Pairs(left=source[own], right=own),
    )
