"""Two jobs, or a job and a run, that want one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import plait
from plait.checkpoints.job_folder import InUse
from plait.node_runtime.host.agent import NodeAgent
from plait.protocol.checkpoint_messages import Survey
from plait.testing import Feed
from tests.unit.node_runtime.host.test_node_checkpoints import Cluster, check, make_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    graph = make_job(tmp_path / "out", 40_000.0).graph()
    made = Cluster(graph, str(tmp_path / "saved"), run="first")
    yield made
    made.close()


def test_a_second_job_is_refused_and_the_first_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0, 1), 0)
    assert cluster.checkpoint()
    other = Cluster(cluster.graph, str(tmp_path / "saved"), run="second")
    try:
        other.agents[0] = NodeAgent(0, other.payload, "first")
        done = other.slow(0, Survey(attempt=1, run="second"), "survey", 1)
        assert done.fatal
        assert not done.lost_claim
        assert "are in use by a job on a cluster (node-0 on " in done.error
    finally:
        other.close()
    with pytest.raises(InUse, match=r"in use by a job on a cluster \(node-0 on .*, pid \d+, since"):
        plait.run(make_job(tmp_path / "other", None), checkpoint=str(tmp_path / "saved"))
    assert cluster.checkpoint()
    cluster.agents.pop(0).close()
    assert cluster.start((1, 2), 1).number == 2  # its own attempts are not refused
    check(cluster.finish(), tmp_path)
    again = plait.run(make_job(tmp_path / "out", None), checkpoint=str(tmp_path / "saved"))
    assert again.account.read == 60_000  # it has left: nothing is waited for


def test_a_job_is_refused_while_a_run_has_the_folder(cluster: Cluster, tmp_path: Path) -> None:
    job = plait.Job("nodes")
    feed = Feed({"k": int})
    job.source(feed, name="rows").sink(plait.Discard(), "out")
    running = plait.start(job, checkpoint=str(tmp_path / "saved"))
    cluster.agents[0] = NodeAgent(0, cluster.payload, "first")
    done = cluster.slow(0, Survey(attempt=1, run="first"), "survey", 1)
    assert done.fatal
    assert "are in use by a run on " in done.error
    assert running.savepoint("a") == 1
    feed.close()
    running.wait()


def test_a_job_that_comes_back_to_a_folder_that_was_taken_ends(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It was taken for dead. Its next seal finds out, and its next survey does not fight."""
    cluster.start((0,), 0)
    home = cluster.agents[0].keeper
    assert home is not None
    home.folder.leave()
    other = Cluster(cluster.graph, str(tmp_path / "saved"), run="second")
    try:
        other.agents[0] = NodeAgent(0, other.payload, "first")
        assert not other.slow(0, Survey(attempt=1, run="second"), "survey", 1).error
        cluster.attempt += 1
        survey = Survey(attempt=cluster.attempt, run="first")
        done = cluster.slow(0, survey, "survey", cluster.attempt)
        assert done.fatal
        assert "in use by" in done.error
    finally:
        other.close()
