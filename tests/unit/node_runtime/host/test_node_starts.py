"""Where a job begins on nodes: at the newest checkpoint, at another one, at a savepoint, anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plait.protocol.checkpoint_messages import Retire, Seal
from tests.unit.node_runtime.host.test_node_bad_days import survey_alone
from tests.unit.node_runtime.host.test_node_checkpoints import Cluster, check, make_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[list[Cluster]]:
    made: list[Cluster] = []
    yield made
    for cluster in made:
        cluster.close()


def begin(clusters: list[Cluster], tmp_path: Path, start: str = "", out: str = "out") -> Cluster:
    graph = make_job(tmp_path / out, 40_000.0).graph()
    cluster = Cluster(graph, str(tmp_path / "saved"))
    clusters.append(cluster)
    cluster.first = cluster.start((0, 1), 0, start)
    return cluster


def name_checkpoint(cluster: Cluster, name: str) -> None:
    epoch = cluster.mark()
    assert epoch is not None
    command = Seal(
        number=cluster.number,
        epoch=epoch,
        parent=cluster.number - 1,
        parts=cluster.parts(),
        name=name,
    )
    assert not cluster.slow(0, command, "seal", cluster.number).error
    cluster.publish()


def lose(cluster: Cluster) -> None:
    """All nodes at once."""
    for rank in list(cluster.agents):
        cluster.agents.pop(rank).close()


def test_where_a_job_begins(clusters: list[Cluster], tmp_path: Path) -> None:
    first = begin(clusters, tmp_path)
    assert first.checkpoint()
    name_checkpoint(first, "a")
    assert first.checkpoint()
    assert first.checkpoint()
    first.slow(0, Retire(number=4, keep=2), "retire", 4)
    lose(first)
    url = str(tmp_path / "saved")
    other = make_job(tmp_path / "other", None).graph()
    missing = survey_alone(other, url, "savepoint:b")
    assert missing.fatal
    assert "has no savepoint 'b'; there are: a" in missing.error
    missing = survey_alone(other, url, "checkpoint:1")
    assert missing.fatal
    assert "no checkpoint 1; there are: 3, 4" in missing.error
    third = survey_alone(other, url, "checkpoint:3").found
    assert third is not None
    assert (third.number, third.newest) == (3, 4)
    anew = survey_alone(other, url, "new").found
    assert anew is not None
    assert (anew.number, anew.epoch, anew.newest) == (0, 0, 4)


def test_a_savepoint_outlives_its_checkpoint(clusters: list[Cluster], tmp_path: Path) -> None:
    """It is loaded by every node, and after a loss the job goes on from there again."""
    first = begin(clusters, tmp_path)
    name_checkpoint(first, "a")
    lose(first)
    second = begin(clusters, tmp_path)
    assert second.checkpoint()
    assert second.checkpoint()
    second.slow(0, Retire(number=second.number, keep=1), "retire", second.number)
    lose(second)
    for part in (tmp_path / "out").glob("part-*"):
        if part.name > "part-00000000.jsonl":
            part.unlink()  # what was shown since
    third = begin(clusters, tmp_path, "savepoint:a")
    assert third.first.number == 1
    assert third.first.newest >= 3
    assert third.start((0, 1), 1).number == 1
    assert third.checkpoint()
    assert third.start((0, 1), 0).number == third.number
    check(third.finish(), tmp_path)


def test_anew(clusters: list[Cluster], tmp_path: Path) -> None:
    first = begin(clusters, tmp_path, out="elsewhere")
    assert first.checkpoint()
    lose(first)
    second = begin(clusters, tmp_path, "new")
    assert (second.first.number, second.first.newest) == (0, 1)
    assert second.start((0, 1), 0).number == 0
    assert second.checkpoint()
    assert second.start((1, 2), 1).number == 2
    check(second.finish(), tmp_path)
