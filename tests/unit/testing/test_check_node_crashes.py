"""`check(..., nodes=, crash_at=)`: a lost node changes nothing, and one that forgets is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.errors import PlaitError
from plait.node_runtime.host import engine_host
from plait.node_runtime.host.agent import NodeAgent
from plait.node_runtime.host.checkpoint_keeper import CheckpointKeeper
from plait.testing import Capture, Rows, check, table
from plait.testing.changes import Crash, Join, Leave, Move, Save
from plait.testing.check_node_crashes import assert_same_after_node_crashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph.operators import Graph
    from plait.testing.changes import Change

BIDS = table("""
    auction | price
    1       | 10
    1       | 20
    2       | 5
    1       | 7
""")
SETTINGS = {"epoch_records": 1, "bin_bits": 3, "workers": 1}


def totals(bids: Any) -> Any:
    return bids.key_by("auction").sum("price")


@pytest.mark.parametrize("crash_at", [1, 3])
def test_a_lost_node_changes_nothing(crash_at: int) -> None:
    expect = [(1, 10), (1, 30), (2, 5), (1, 37)]
    check(totals, BIDS, expect=expect, workers=(1,), nodes=(2,), checkpoint=True, crash_at=crash_at)


def sums(rows: int = 30) -> Graph:
    """All kinds of state on all nodes, and one that a single node has."""
    job = plait.Job("sums")
    events = job.source(
        Rows({"k": int, "v": int}, [(i * 7 % 13, i) for i in range(rows)]), name="events"
    ).with_columns(ts=plait.col("v") * 1_000_000)
    good = events.filter(lambda row: 1 // (row.v % 7) >= 0, on_error="dead_letter")
    good.key_by("k").sum("v").sink(Capture(), "sums")
    good.key_by("k").fold(0, lambda state, row: state + row.v, type=int).sink(Capture(), "folds")
    return job.graph()


def windows() -> Graph:
    """One window without a key: its state is at one node, and the others have none."""
    import datetime

    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    rows = [(i, start + datetime.timedelta(seconds=i)) for i in range(30)]
    job = plait.Job("windows")
    source = Rows({"v": int, "ts": datetime.datetime}, rows)
    events = job.source(source, event_time="ts", name="events")
    events.tumbling("4s").sum("v").sink(Capture(), "windows")
    return job.graph()


def crash(graph: Graph, *changes: Change, nodes: int = 2) -> Any:
    return assert_same_after_node_crashes(graph, SETTINGS, nodes=nodes, changes=changes)


def test_state_that_only_one_node_has_is_found_again() -> None:
    run = crash(windows(), Save(at=6), Crash(ranks=None, joins=2, at=12), nodes=3)
    assert any("from checkpoint 1 at" in told for told in run.story)


def test_in_the_middle_of_everything() -> None:
    moving = Move(owners=dict.fromkeys(range(8), 1), how="fluid")
    run = crash(
        sums(),
        Save(at=3),
        moving,
        Crash(ranks=(0,), at=6, again="loaded"),
        Save(at=9, upto="sealed"),
        Crash(ranks=None, joins=2, at=12),
        Save(at=15, upto="marked", between=None),
        Crash(ranks=None, joins=1, again="begun", at=18),
    )
    assert run.crashes == 5


def test_what_a_node_did_before_it_left_is_counted() -> None:
    crash(
        sums(),
        Join(bins=(0, 1, 2), at=3),
        Leave(rank=2, at=6),
        Save(at=10),
        Crash(ranks=(0,), at=14),
    )


@pytest.mark.parametrize("left_at", [3, 14])
def test_a_finished_job_counts_what_a_node_did_before_it_left(left_at: int) -> None:
    """Once: what it did after the checkpoint to which the job went back was done again. The result
    is asked for when all who made it are gone."""
    leaves: tuple[Change, ...] = (Leave(rank=1, at=left_at), Crash(ranks=None, joins=2, at=18))
    run = assert_same_after_node_crashes(
        sums(),
        SETTINGS,
        nodes=2,
        changes=(Save(at=8), *leaves) if left_at > 8 else (*leaves[:1], Save(at=8), *leaves[1:]),
        crash_at_end="published",
    )
    assert run.finished
    assert run.past[0].left_at > 0


def forget_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_host, "put_bins", lambda *given: 0)


def load_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_host, "is_owned", lambda *given: lambda *place: False)


def count_twice(patch: pytest.MonkeyPatch) -> None:
    outcome_of = NodeAgent.outcome_of

    def with_base_everywhere(self: NodeAgent, *given: Any) -> Any:
        keeper, saver = self.keeper, self.saver
        if saver is not None and keeper is not None and keeper.manifest is not None:
            saver.base = keeper.manifest.counts
        return outcome_of(self, *given)

    patch.setattr(NodeAgent, "outcome_of", with_base_everywhere)


def absence_is_the_start(patch: pytest.MonkeyPatch) -> None:
    """What cannot be found is taken to be at 0."""
    first_rows = CheckpointKeeper.survey

    def from_the_start(self: CheckpointKeeper, *given: Any) -> Any:
        import dataclasses

        return dataclasses.replace(first_rows(self, *given), epoch=0, first_rows=(0,))

    patch.setattr(CheckpointKeeper, "survey", from_the_start)


@pytest.mark.parametrize("bug", [forget_state, load_nothing, count_twice, absence_is_the_start])
def test_planted_bugs_are_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, PlaitError)):
        crash(sums(), Save(at=6), Crash(ranks=(0,), at=12))
