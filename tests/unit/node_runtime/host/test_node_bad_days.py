"""Bad days of a store and of checkpoints on nodes: what is said, and that nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.node_runtime.host.agent import NodeAgent
from plait.protocol.checkpoint_messages import Publish, Seal, Survey
from tests.unit.checkpoints.stores import FlakyStore
from tests.unit.node_runtime.host.test_node_checkpoints import Cluster, check, make_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from plait.protocol.checkpoint_messages import Finished


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    graph = make_job(tmp_path / "out", 40_000.0).graph()
    made = Cluster(graph, str(tmp_path / "saved"))
    yield made
    made.close()


def flaky(cluster: Cluster, rank: int) -> FlakyStore:
    keeper = cluster.agents[rank].keeper
    assert keeper is not None
    if not isinstance(keeper.folder.store, FlakyStore):
        keeper.folder.store = FlakyStore(keeper.folder.store)
    return keeper.folder.store


def try_to_seal(cluster: Cluster) -> Finished:
    epoch = cluster.mark()
    assert epoch is not None
    number = cluster.number
    command = Seal(number=number, epoch=epoch, parent=number - 1, parts=cluster.parts())
    return cluster.slow(cluster.home, command, "seal", number)


def saved_by(cluster: Cluster, rank: int) -> bool | None:
    part = cluster.agents[rank].report().saved
    return True if part is not None and part.number == cluster.number else None


def survey_alone(graph: Any, url: str, start: str = "", **settings: Any) -> Finished:
    """What a node says that is to begin the job."""
    other = Cluster(graph, url, **settings)
    try:
        other.agents[0] = NodeAgent(0, other.payload, "first")
        return other.slow(0, Survey(attempt=1, start=start), "survey", 1)
    finally:
        other.close()


@pytest.mark.parametrize("after", [True, False])
def test_a_seal_with_an_unknown_outcome(cluster: Cluster, tmp_path: Path, after: bool) -> None:
    """The next checkpoint follows what is there."""
    cluster.start((0, 1), 0)
    assert cluster.checkpoint()
    flaky(cluster, 0).fail("create", "manifests/", after=after)
    sealed = try_to_seal(cluster)
    assert "it fails" in sealed.error
    assert not sealed.fatal
    flaky(cluster, 0).heal()
    assert cluster.checkpoint()
    assert cluster.start((0, 1), 1).number == 3
    check(cluster.finish(), tmp_path)


def test_a_store_that_is_full_for_one_node(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0, 1), 0)
    flaky(cluster, 1).fail("write", "chunks/")
    assert cluster.mark() is not None

    def failed() -> str | None:
        report = cluster.agents[1].report()
        return report.save_error if report.save_failed == cluster.number else None

    words = cluster.wait(failed)
    cluster.wait(lambda: saved_by(cluster, 0))  # as a coordinator does, before the next mark
    assert words.startswith("StoreFailed: cannot write nodes/chunks/")
    flaky(cluster, 1).heal()
    assert cluster.checkpoint()
    assert cluster.start((0, 1), 0).number == 2
    check(cluster.finish(), tmp_path)


@pytest.mark.parametrize("verb", ["list", "read"])
def test_a_store_that_is_away_while_it_is_surveyed(
    cluster: Cluster, tmp_path: Path, verb: str
) -> None:
    cluster.start((0, 1), 0)
    assert cluster.checkpoint()
    flaky(cluster, 0).fail(verb)
    cluster.attempt += 1
    done = cluster.slow(0, Survey(attempt=cluster.attempt), "survey", cluster.attempt)
    assert "it fails" in done.error
    assert not done.fatal
    flaky(cluster, 0).heal()
    assert cluster.start((0, 1), 0).number == 1
    check(cluster.finish(), tmp_path)


def test_a_store_that_is_away_while_output_is_shown(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0, 1), 0)
    assert cluster.checkpoint()
    assert not try_to_seal(cluster).error
    flaky(cluster, 0).fail("list")
    done = cluster.slow(0, Publish(number=cluster.number), "publish", cluster.number)
    assert "it fails" in done.error
    flaky(cluster, 0).heal()
    assert cluster.start((0, 1), 0).number == 2
    check(cluster.finish(), tmp_path)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_manifest_is_passed_over(cluster: Cluster, tmp_path: Path) -> None:
    """One whose output was not shown: the one before is as good."""
    cluster.start((0, 1), 0)
    assert cluster.checkpoint()
    assert not try_to_seal(cluster).error
    (newest,) = (tmp_path / "saved" / "nodes" / "manifests").glob("000002-*")
    flip(newest)
    assert cluster.start((0, 1), 0).number == 1
    check(cluster.finish(), tmp_path)


def test_a_chunk_with_flipped_bits_is_never_loaded(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0,), 0)
    assert cluster.checkpoint()
    for chunk in (tmp_path / "saved" / "nodes" / "chunks").rglob("*.pls"):
        flip(chunk)
    with pytest.raises(AssertionError, match=r"could not be loaded: StateError: .* is damaged"):
        cluster.start((0,), 0)


def test_when_nothing_can_be_read_nothing_begins(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0,), 0)
    assert cluster.checkpoint()
    for manifest in (tmp_path / "saved" / "nodes" / "manifests").iterdir():
        flip(manifest)
    cluster.agents.pop(0).close()
    done = survey_alone(cluster.graph, str(tmp_path / "saved"))
    assert done.fatal
    assert "no checkpoint of job 'nodes' can be restored" in done.error


def test_a_checkpoint_of_another_version(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0,), 0)
    assert cluster.checkpoint()
    cluster.agents.pop(0).close()
    url = str(tmp_path / "saved")
    other = plait.Job("nodes")
    rows = other.source([{"k": 1, "v": 2}], name="rows")
    rows.key_by("k").max("v").sink(plait.Collect(), name="sums")
    done = survey_alone(other.graph(), url)
    assert done.fatal
    assert "the job cannot go on from this checkpoint" in done.error
    done = survey_alone(cluster.graph, url, bin_bits=5)
    assert not done.error
    assert done.found is not None
    assert set(done.found.bins) <= set(range(32))


def test_input_that_is_no_longer_what_it_was(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"v": {n}}}\n' for n in range(200_000)))
    job = plait.Job("nodes")
    job.source(plait.Files(source, schema={"v": int}), name="rows").sink(plait.Collect(), name="o")
    cluster = Cluster(job.graph(), str(tmp_path / "saved"))
    try:
        cluster.start((0,), 0)
        assert cluster.checkpoint()
        source.write_text('{"v": 1}\n')
        with pytest.raises(AssertionError, match=r"loaded: SourceError: .* has changed"):
            cluster.start((0,), 0)
    finally:
        cluster.close()
