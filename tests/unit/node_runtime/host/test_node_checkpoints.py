"""Checkpoints on nodes in this process: save, seal, publish, halt, load, other nodes and homes.

The commands are those of a coordinator, given by hand, so that every crash is where it is wanted.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow as pa
import pytest

import plait
from plait import col
from plait.connectors.splitting import splitting
from plait.model.settings import Settings
from plait.node_runtime.host.agent import NodeAgent
from plait.protocol.checkpoint_messages import (
    Finished,
    Halt,
    Mark,
    PartRef,
    Publish,
    Restore,
    Seal,
    Survey,
    Surveyed,
)
from plait.protocol.messages import (
    EVERYONE,
    Begin,
    Command,
    Commit,
    Done,
    End,
    Layout,
    Lift,
    Prepare,
    Promise,
    Refused,
)
from plait.results.outcomes import merge_outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from plait.graph.operators import Graph
    from plait.results.outcomes import NodeOutcome

PATIENCE_S = 60.0


class Cluster:
    """Nodes of one job, told by hand what a coordinator would tell them."""

    def __init__(self, graph: Graph, url: str, run: str = "", **settings: Any) -> None:
        self.graph = graph
        self.run = run
        self.settings = Settings(workers=1, **settings)
        self.payload = cloudpickle.dumps((graph, self.settings, url))
        self.agents: dict[int, NodeAgent] = {}
        self.attempt = 0
        self.round = 0
        self.number = 0
        self.members: tuple[int, ...] = ()
        self.home = 0
        self.outcomes: list[NodeOutcome] = []
        self.first: Surveyed

    def close(self) -> None:
        for agent in self.agents.values():
            agent.close()

    def must(self, rank: int, command: Command) -> Done:
        answer = self.agents[rank].apply(command)
        assert isinstance(answer, Done), (command, answer)
        return answer

    def wait(self, found: Callable[[], Any]) -> Any:
        until = time.monotonic() + PATIENCE_S
        while (answer := found()) is None:
            assert time.monotonic() < until, [a.report() for a in self.agents.values()]
            time.sleep(0.005)
        return answer

    def slow(self, rank: int, command: Command, what: str, number: int) -> Finished:
        self.must(rank, command)

        def finished() -> Finished | None:
            told = self.agents[rank].report().finished
            return next((f for f in told if (f.what, f.number) == (what, number)), None)

        answer: Finished = self.wait(finished)
        return answer

    def start(self, members: Sequence[int], home: int, start: str = "") -> Surveyed:
        """A new attempt on these nodes."""
        self.attempt += 1
        for rank in members:
            if rank not in self.agents:
                self.agents[rank] = NodeAgent(rank, self.payload, "first")
            elif self.attempt > 1:
                self.must(rank, Halt(attempt=self.attempt))
        survey = Survey(attempt=self.attempt, run=self.run, start=start)
        surveyed = self.slow(home, survey, "survey", self.attempt)
        assert not surveyed.error, surveyed.error
        found = surveyed.found
        assert found is not None
        self.number = max(self.number, found.newest)
        self.members, self.home = tuple(members), home
        layout = self.layout(found)
        restore = Restore(
            lineage=found.lineage, claim=found.claim, number=found.number, epoch=found.epoch
        )
        for rank in members:
            peers = tuple(self.agents[other].peer() for other in members if other != rank)
            prepare = Prepare(
                rank=rank,
                layout=layout,
                peers=peers,
                home=home,
                attempt=self.attempt,
                token=f"token-{self.attempt}",
                restore=restore,
            )
            self.must(rank, prepare)
            self.must(rank, prepare)  # repeated: it changes nothing
        for rank in members:
            self.wait(partial(self.is_loaded, rank))
        for rank in members:
            self.must(rank, Begin(layout=layout))
        return found

    def is_loaded(self, rank: int) -> bool | None:
        report = self.agents[rank].report()
        assert report.phase != "failed", report.error
        return True if report.restored == self.attempt else None

    def layout(self, found: Surveyed) -> Layout:
        members = self.members
        bins = range(1 << self.settings.bin_bits)
        return Layout(
            epoch=found.epoch,
            members=members,
            owners=tuple(members[bin % len(members)] for bin in bins),
            readers=tuple(
                EVERYONE if splits else self.home
                for splits in splitting(self.graph, self.settings.order)
            ),
            epoch_records=found.epoch_records or 256,
        )

    def mark(self, *, last: bool = False) -> int | None:
        """A mark on all nodes; its epoch, or None if a node is at its end."""
        self.round += 1
        answers = [
            self.agents[rank].apply(Promise(round=self.round, margin_s=0.0))
            for rank in self.members
        ]
        if any(isinstance(answer, Refused) for answer in answers):
            for rank in self.members:
                self.must(rank, Lift(round=self.round))
            return None
        epoch = max(answer.epoch for answer in answers if isinstance(answer, Done))
        self.number += 1
        mark = Mark(number=self.number, epoch=epoch, last=last)
        for rank in self.members:
            self.must(rank, Commit(round=self.round, mark=mark))
        return epoch

    def parts(self) -> tuple[PartRef, ...]:
        def saved(rank: int) -> PartRef | None:
            report = self.agents[rank].report()
            assert report.save_failed != self.number, report.save_error
            assert report.phase != "failed", report.error
            part = report.saved
            return part if part is not None and part.number == self.number else None

        return tuple(self.wait(partial(saved, rank)) for rank in self.members)

    def seal(self, epoch: int, *, finished: bool = False) -> None:
        command = Seal(
            number=self.number,
            epoch=epoch,
            parent=self.number - 1,
            parts=self.parts(),
            finished=finished,
        )
        sealed = self.slow(self.home, command, "seal", self.number)
        assert not sealed.error, sealed.error

    def publish(self) -> None:
        done = self.slow(self.home, Publish(number=self.number), "publish", self.number)
        assert not done.error, done.error

    def checkpoint(self) -> bool:
        epoch = self.mark()
        if epoch is None:
            return False
        self.seal(epoch)
        self.publish()
        return True

    def finish(self) -> plait.Result:
        """Waits for the end, takes the last checkpoint, and gives the result."""

        def ended(rank: int) -> bool | None:
            report = self.agents[rank].report()
            assert report.phase != "failed", report.error
            return True if report.phase == "ended" else None

        for rank in self.members:
            self.wait(partial(ended, rank))
        self.number += 1
        self.round += 1
        epoch = max(self.agents[rank].cluster.next_epoch() for rank in self.members) + 1
        mark = Mark(number=self.number, epoch=epoch, finished=True, ended=True)
        for rank in self.members:
            self.must(rank, Commit(round=self.round, mark=mark))
        self.seal(epoch, finished=True)
        self.publish()
        return self.end()

    def end(self) -> plait.Result:
        for rank in self.members:
            self.must(rank, End(good=True))
        found = [self.agents[rank].outcome() for rank in self.members]
        outcomes = [outcome for outcome in found if outcome is not None]
        for outcome in outcomes:
            assert outcome.error is None, outcome.error
        result = merge_outcomes(self.graph.name, outcomes)
        assert result.account.difference == 0, result.account
        return result


ROWS = 60_000


def make_job(out: Path, rate: float | None) -> plait.Job:
    table = pa.table(
        {
            "k": [i * 7 % 13 for i in range(ROWS)],
            "v": list(range(ROWS)),
            "ts": pa.array([i * 1000 for i in range(ROWS)], pa.timestamp("us", "UTC")),
        }
    )
    job = plait.Job("nodes")
    rows = job.source(plait.Table(table, rate_per_s=rate), name="rows", event_time="ts")
    rows.key_by("k").sum("v").sink(plait.Collect(), name="sums")
    rows.count().sink(plait.Collect(), name="counts")
    rows.key_by("k").tumbling("1s").count().sink(plait.Collect(), name="windows")
    rows.key_by("k").fold(0, lambda a, r: a + r.v).sink(plait.Collect(), name="folds")
    rows.filter(col("v") % 100 == 0).sink(plait.Files(out, format="jsonl"), name="files")
    return job


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    graph = make_job(tmp_path / "out", 40_000.0).graph()
    made = Cluster(graph, str(tmp_path / "saved"))
    yield made
    made.close()


def check(result: plait.Result, tmp_path: Path) -> None:
    """The result is that of a plain loop, and files have each row once."""
    expected = make_job(tmp_path / "plain", None).run(workers=1)
    for name in ("sums", "counts", "windows", "folds"):
        assert result.outputs[name].equals(expected.outputs[name]), name
    assert result.account == expected.account
    rows = [
        json.loads(line)["v"]
        for path in sorted((tmp_path / "out").iterdir())
        for line in path.read_text().splitlines()
    ]
    assert rows == list(range(0, ROWS, 100))
    assert result.outputs["counts"].column(0).to_pylist() == list(accumulate([1] * ROWS))


def test_goes_on_after_a_lost_node(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.start((0, 1), 0).number == 0
    assert cluster.checkpoint()
    assert cluster.checkpoint()
    cluster.agents.pop(1).close()
    assert cluster.start((0,), 0).number == 2
    assert cluster.checkpoint()
    check(cluster.finish(), tmp_path)


def test_one_that_joins_has_loaded_when_it_is_prepared(cluster: Cluster) -> None:
    """It is told to begin next, at an epoch that is agreed on: it must be able to. What it reads
    takes until it is waited for."""
    found = cluster.start((0, 1), 0)
    assert cluster.checkpoint()
    joiner = cluster.agents[2] = NodeAgent(2, cluster.payload, "first")
    keeper, waited = joiner.keeper, threading.Event()
    assert keeper is not None
    wait_idle, load = keeper.wait_idle, joiner.load

    def note_wait(seconds: float) -> bool:
        waited.set()
        return wait_idle(seconds)

    def load_late(command: Prepare) -> None:
        waited.wait(PATIENCE_S)
        load(command)

    keeper.wait_idle, joiner.load = note_wait, load_late  # type: ignore[method-assign]
    layout = replace(cluster.layout(found), members=(0, 1, 2))
    prepare = Prepare(
        rank=2,
        layout=layout,
        peers=tuple(cluster.agents[rank].peer() for rank in (0, 1)),
        home=0,
        attempt=cluster.attempt,
        token=f"token-{cluster.attempt}",
        restore=Restore(
            lineage=found.lineage, claim=found.claim, number=found.number, epoch=found.epoch
        ),
    )
    cluster.must(2, prepare)
    assert joiner.parts is not None
    waited.set()


def test_goes_on_with_another_home_and_more_nodes(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0, 1), 0)
    assert cluster.checkpoint()
    cluster.agents.pop(0).close()
    assert cluster.start((1, 2, 3), 2).number == 1
    assert cluster.checkpoint()
    assert cluster.start((3, 4), 4).number == 2
    check(cluster.finish(), tmp_path)


def test_a_sealed_checkpoint_counts_before_it_is_published(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start((0, 1), 0)
    assert cluster.checkpoint()
    epoch = cluster.mark()
    assert epoch is not None
    cluster.seal(epoch)
    assert cluster.start((0, 1), 1).number == 2
    check(cluster.finish(), tmp_path)


def test_a_checkpoint_that_was_given_up_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0, 1), 0)
    assert cluster.mark() is not None
    cluster.parts()
    assert cluster.checkpoint()
    assert cluster.mark() is not None
    assert cluster.start((0, 1), 0).number == 2
    check(cluster.finish(), tmp_path)


def test_stops_at_the_last_mark(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0, 1), 0)
    epoch = cluster.mark(last=True)
    assert epoch is not None
    cluster.seal(epoch)
    cluster.publish()
    assert cluster.start((0, 1), 0).epoch == epoch
    check(cluster.finish(), tmp_path)


def test_a_finished_job_gives_its_result_again(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0, 1), 0)
    cluster.finish()
    again = Cluster(cluster.graph, str(tmp_path / "saved"))
    try:
        again.agents[0] = NodeAgent(0, again.payload, "first")
        again.attempt, again.members = 1, (0,)
        found = again.slow(0, Survey(attempt=1), "survey", 1).found
        assert found is not None
        assert found.finished
        check(again.end(), tmp_path)
    finally:
        again.close()
