"""Jobs on a real Ray cluster that change while records flow: nodes come, leave and die."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col
from plait.errors import ClusterError
from tests.integration.conftest import PATIENCE_S, until

if TYPE_CHECKING:
    from plait.cluster.job_handle import JobHandle

pytestmark = pytest.mark.integration

RATE = 20_000


def endless(name: str) -> plait.Job:
    """A running count by key that goes on until it is stopped."""
    job = plait.Job(name)
    given = job.source(plait.Rate(RATE))
    keyed = given.with_columns(key=col("seq") * 7919 % 101).key_by("key")
    keyed.aggregate(seq=plait.last("seq"), n=plait.count()).sink(plait.Collect(), name="out")
    return job


def right(records: int) -> list[tuple[int, int, int]]:
    """What a plain loop gives for so many records."""
    seen: dict[int, int] = {}
    rows: list[tuple[int, int, int]] = []
    for seq in range(records):
        key = seq * 7919 % 101
        seen[key] = seen.get(key, 0) + 1
        rows.append((key, seq, seen[key]))
    return rows


def check_whole(result: Any) -> None:
    """Every record that was read is there, once, in order, with the right count."""
    table = result.outputs["out"]
    got = list(zip(*(table.column(name).to_pylist() for name in ("key", "seq", "n")), strict=True))
    assert len(got) == result.account.read > 0
    assert got == right(len(got))
    assert result.account.difference == 0


def started(cluster: str, name: str, nodes: int) -> JobHandle:
    handle = plait.submit(
        endless(name), address=cluster, nodes=nodes, workers=1, epoch_records=512, bin_bits=6
    )
    until(lambda: handle.metrics()["delivered"] > 0, handle)
    return handle


def stopped(handle: JobHandle) -> Any:
    handle.stop()
    return handle.result(PATIENCE_S)


def members(handle: JobHandle) -> list[int]:
    return [node.rank for node in handle.status().nodes if node.phase == "member"]


def test_from_one_node_to_three_and_back_to_two(cluster: str) -> None:
    handle = started(cluster, "rescaled", 1)
    plan = handle.rescale(3, dry_run=True)
    assert "bins" in str(plan)
    plan.start().wait(PATIENCE_S)
    assert members(handle) == [0, 1, 2]
    assert all(node.bins > 0 for node in handle.status().nodes)
    [rate] = handle.status().sources.values()
    assert (rate.per_s, rate.trust) == (RATE, 1.0)
    handle.rescale(2, strategy="batched").wait(PATIENCE_S)
    assert len(members(handle)) == 2
    check_whole(stopped(handle))
    handle.forget()


def test_a_node_is_drained(cluster: str) -> None:
    handle = started(cluster, "drained", 3)
    handle.drain("node-1", strategy="all_at_once").wait(PATIENCE_S)
    assert members(handle) == [0, 2]
    check_whole(stopped(handle))
    handle.forget()


def test_a_cancelled_job_ends_at_once(cluster: str) -> None:
    handle = started(cluster, "cancelled", 2)
    handle.cancel()
    with pytest.raises(plait.Interrupted, match="cancelled"):
        handle.result(PATIENCE_S)
    assert handle.status().phase == "cancelled"
    handle.forget()


def test_the_manager_is_killed_and_comes_back(cluster: str) -> None:
    handle = started(cluster, "managed", 2)
    link: Any = handle._link
    first = link.ask("pid")
    os.kill(first, signal.SIGKILL)
    assert handle.status().phase == "running"  # as the next one knows from the journal
    assert link.ask("pid") != first
    handle.rescale(1).wait(PATIENCE_S)
    check_whole(stopped(handle))
    handle.forget()


def test_a_node_that_dies_fails_the_job_in_clear_words(cluster: str) -> None:
    handle = started(cluster, "killed", 2)
    victim = next(node for node in handle.status().nodes if node.rank == 1)
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(ClusterError, match="node-1") as raised:
        handle.result(PATIENCE_S)
    assert "checkpoint" in str(raised.value)
    assert victim.host in str(raised.value)
    handle.forget()
