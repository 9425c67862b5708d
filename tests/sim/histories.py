"""Random histories: what users do and what breaks, drawn from one seed.

Half of the seeds have no fault but a bad network and crashes of the coordinator: then nothing may
be lost, and the job must end well. The others lose nodes too: then it either ends well or fails
with words that name the node, and in both cases no bin was processed twice or by two.

Requests without meaning are drawn here, too: of every kind in the union `Request` with all its
fields, so that a new request is covered from its first day.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from random import Random
from typing import Any, get_args

from plait.coordinator.messages.requests import (
    AbortMigration,
    Cancel,
    Drain,
    Forget,
    PauseMigration,
    Request,
    Rescale,
    ResumeMigration,
    Shed,
    Stop,
    Strategy,
    Submit,
    Throttle,
)
from tests.sim.directed import QUERIES
from tests.sim.nodes import Violation
from tests.sim.simulator import Faults, Simulator, spec_of

KINDS: tuple[type[Any], ...] = get_args(Request)
NONSENSE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2.5,
    10**6,
    10**30,
    float("nan"),
    float("inf"),
    1e-300,
    "",
    "3",
    "flud",
    "../x",
    "x" * 10_000,
    "\x00",
    b"bytes",
    [],
    (1, 2),
    ("a",),
    {"a": 1},
    object(),
    replace(spec_of("other"), nodes=2.5),  # type: ignore[arg-type]
    replace(spec_of("other"), sources=("a",)),  # type: ignore[arg-type]
    replace(spec_of("other"), bin_bits=64),
)
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


def history(seed: int) -> Simulator:
    """One whole life of one job."""
    draw = Random(f"history {seed}")
    bad = draw.random()
    faults = Faults(
        loss=draw.choice((0.0, 0.02, 0.08)) * bad,
        twice=draw.choice((0.0, 0.05, 0.3)) * bad,
        slow=draw.choice((0.0, 0.05)) * bad,
        not_made=draw.choice((0.0, 0.0, 0.1)),
    )
    sim = Simulator(seed=seed, faults=faults, epochs=draw.randint(100, 300))
    nodes, splits = draw.randint(1, 4), draw.random() < 0.3
    spec = spec_of(nodes=nodes, splits=splits, seed=seed, queries=QUERIES)
    sim.ask(Submit(spec=spec))
    at = 0.0
    for _ in range(draw.randint(1, 6)):
        at += draw.expovariate(1.0)
        sim.after(at, partial(sim.ask, wish(draw)))
    for _ in range(draw.choice((0, 1, 3))):
        shed = Shed(job="job", query="out", ratio=draw.choice((None, 0.1, 0.5, 1.0)))
        sim.after(draw.uniform(0.0, 6.0), partial(sim.ask, shed))
    for _ in range(draw.choice((0, 0, 1, 2, 3))):
        sim.after(draw.uniform(0.0, 6.0), partial(sim.crash, draw.uniform(0.05, 3.0)))
    if seed % 2:
        for _ in range(draw.choice((1, 1, 2))):
            rank, when = draw.randint(0, 5), draw.uniform(0.0, 5.0)
            what = draw.random()
            if what < 0.45:
                sim.after(when, partial(sim.kill, rank))
            elif what < 0.55:
                sim.after(when, partial(sim.fail, rank))
            else:
                sim.after(when, partial(sim.freeze, rank, draw.uniform(0.5, 5.0)))
    sim.after(30.0, partial(sim.ask, ResumeMigration(job="job")))
    return finish(sim)


def wish(draw: Random) -> Request:
    """Something a user may ask for."""
    strategy = draw.choice(STRATEGIES)
    gap = draw.choice((0, 0, 3))
    choice = draw.random()
    if choice < 0.55:
        return Rescale(
            job="job",
            nodes=draw.randint(1, 5),
            strategy=strategy,
            gap_epochs=gap,
            balance=draw.random() < 0.5,
            throttle_bytes_per_s=draw.choice((None, None, 5e6)),
            dry_run=draw.random() < 0.1,
        )
    if choice < 0.7:
        return Drain(job="job", rank=draw.randint(0, 4), strategy=strategy, gap_epochs=gap)
    others: tuple[Request, ...] = (
        PauseMigration(job="job"),
        ResumeMigration(job="job"),
        AbortMigration(job="job"),
        Throttle(job="job", bytes_per_s=draw.choice((None, 1e6))),
        Shed(job="job", query="out", ratio=draw.choice((None, 0.1, 0.5))),
        Stop(job="job"),
        Cancel(job="job"),
    )
    return draw.choice(others)


def finish(sim: Simulator) -> Simulator:
    """Until the job is over, and then: was it right?"""
    sim.run(sim.over, 300.0)
    sim.judge()
    job = sim.job()
    if job.phase == "failed" and not sim.faults.not_made and "node-" not in job.error:
        raise Violation(f"seed {sim.seed}: failed without saying which node: {job.error}")
    sim.asked(Forget(job="job"))
    sim.run(lambda: all(node.stopped for node in sim.nodes.values()), 60.0)
    return sim


def nonsense(draw: Random, kind: type[Any] | None = None, job: str = "job") -> Any:
    """A request of this kind, or of any, that cannot be accepted by a job that runs, has no
    checkpoints, no queries and no migration. With only a job to name, it names another one."""
    kind = kind or draw.choice(KINDS)
    given = {field.name: draw.choice(NONSENSE) for field in fields(kind)}
    if "job" in given and len(given) > 1 and draw.random() < 0.8:
        given["job"] = job
    if kind is Stop and given["finish"] is None:
        given["finish"] = "flud"  # without a wish it would be right
    return kind(**given)
