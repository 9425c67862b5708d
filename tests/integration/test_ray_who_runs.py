"""Who runs what, on two nodes of a real Ray cluster: schedulers, threading models, elastic workers,
worker processes, and functions that are awaited. None of it changes a result. make test takes the
`QUICK` ones, make test-long all.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col
from plait.testing import sequential
from plait.testing.check import compare_accounts, compare_letters, rows_of_arrow

if TYPE_CHECKING:
    from plait.testing.oracle import OracleResult

pytestmark = pytest.mark.integration

ROWS = 20_000
SETTINGS: dict[str, Any] = {"epoch_records": 256, "bin_bits": 4}


class Oldest(plait.Scheduler):
    """A scheduler of the user's, which goes to every node."""

    def pick(self, stages: tuple[plait.StageView, ...]) -> int | None:
        ready = [stage for stage in stages if stage.ready]
        return max(ready, key=lambda stage: stage.age_s).number if ready else None


@plait.operator
async def in_pairs(ctx: plait.Context) -> None:
    """Each two records in the opposite order."""
    while await ctx.wait_all(records=2):
        first, second = ctx.pop("records", 2)
        ctx.emit(second)
        ctx.emit(first)
    while ctx.size("records"):
        ctx.emit(ctx.pop("records"))


async def looked(record: Any) -> Any:
    await asyncio.sleep(0)
    if record.seq % 5_000 == 4_321:
        raise LookupError(f"{record.seq} is not there")
    return record


async def rate_of(k: int) -> int:
    await asyncio.sleep(0)
    return k * 10


def weight(seq: int) -> int:
    return sum(map(int, str(seq)))


def tens(record: Any) -> bool:
    return bool(record.seq % 10)


def numbers(name: str) -> tuple[plait.Job, Any]:
    job = plait.Job(name)
    read = job.source(plait.Rate(1e9, total=ROWS), name="numbers").select("seq")
    return job, read.with_columns(k=col("seq") % 11)


def native(s: Any) -> Any:
    return s.filter(col("seq") % 3 != 0).key_by("k").aggregate(n=plait.count(), t=plait.sum("seq"))


def regions(s: Any) -> Any:
    with plait.region("even", threading="dedicated"):
        even = s.filter(col("seq") % 2 == 0)
    with plait.region("odd", threading="manual"):
        odd = s.filter(col("seq") % 2 == 1).with_columns(k=col("k") + 1)
    return plait.union(even, odd).key_by("k").sum("seq")


def mixed(s: Any) -> Any:
    """A coroutine, functions that are awaited, worker processes and state by key in one job."""
    weighed = s.with_columns(w=weight, route="pool").filter(tens, route="pool")
    found = weighed.map_async(looked, schema=weighed.schema, on_error="dead_letter")
    rated = found.with_columns_async(rate=rate_of, concurrency=20)
    return in_pairs(rated).out.key_by("k").aggregate(w=plait.sum("w"), rate=plait.max("rate"))


JOBS = {"native": native, "regions": regions, "mixed": mixed}
WAYS: dict[str, dict[str, Any]] = {
    "lru": {"scheduler": "lru", "fuse": False},
    "et": {"scheduler": "et"},
    "max_queue": {"scheduler": "max_queue"},
    "of the user's": {"scheduler": Oldest()},
    "dedicated": {"threading": "dedicated"},
    "manual": {"threading": "manual"},
    "elastic": {"workers": "elastic", "max_workers": 3, "elastic_period_ms": 10},
    "elastic degrees": {"stage_parallelism": "elastic", "elastic_period_ms": 10, "workers": 2},
}

QUICK = {
    "test_the_answer_is_that_of_the_plain_loop[native-of the user's]",
    "test_the_answer_is_that_of_the_plain_loop[mixed-elastic]",
}


def job_of(name: str) -> plait.Job:
    job, read = numbers("who")
    JOBS[name](read).sink(plait.Collect(), name="out")
    return job


@cache
def answer(name: str) -> OracleResult:
    """The plain loop's, which takes longer than the cluster."""
    return sequential(job_of(name).graph(), epoch_records=SETTINGS["epoch_records"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", JOBS)
def test_the_answer_is_that_of_the_plain_loop(cluster: str, way: str, name: str) -> None:
    told = f"who-{name}-{list(WAYS).index(way)}"
    settings = {"workers": 2, "pool": 1, **SETTINGS, **WAYS[way]}
    handle = plait.submit(job_of(name), address=cluster, nodes=2, name=told, **settings)
    try:
        result = handle.result(timeout=120)
    finally:
        handle.forget()
    wanted = answer(name)
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    compare_accounts(told, result, wanted)
    compare_letters(told, result.dead_letters, wanted.dead_letters)
    if name == "mixed":
        assert len(result.dead_letters) == 4


def test_elastic_nodes_tell_their_levels(cluster: str) -> None:
    """Every node finds a level of its own while the job runs."""
    job = plait.Job("levels")
    read = job.source(plait.Rate(50_000, total=25_000), name="numbers")
    native(read.with_columns(k=col("seq") % 11)).sink(plait.Collect(), name="out")
    settings: dict[str, Any] = {"workers": "elastic", "max_workers": 4, "elastic_period_ms": 20}
    handle = plait.submit(job, address=cluster, nodes=2, name="levels", **settings)
    try:
        result = handle.result(timeout=120)
    finally:
        handle.forget()
    assert result.account.read == 25_000
    assert {step.node for step in result.levels} == {0, 1}
    assert {step.level for step in result.levels} <= {1, 2, 3, 4}
    assert min(step.level for step in result.levels) < 4
