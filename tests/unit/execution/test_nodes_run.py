"""Jobs on several nodes of this process: each kind of change by itself, and how runs end."""

from __future__ import annotations

import datetime
import itertools
import random
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.protocol.messages import Layout
from plait.testing import Capture, Feed, check, table
from plait.testing.changes import (
    Break,
    Change,
    Join,
    Leave,
    Move,
    Stop,
    moving_layouts,
    owners_without,
)
from plait.testing.check import graph_of
from plait.testing.check_nodes import assert_same_on_nodes, compare_parts
from plait.testing.nodes import run_on_nodes
from plait.testing.oracle import sequential

if TYPE_CHECKING:
    from plait.graph.operators import Graph
    from plait.testing.changes import Change, How

ROWS = 300
FEW: dict[str, Any] = {"epoch_records": 8, "bin_bits": 3, "workers": 2}
WAYS: tuple[How, ...] = ("all_at_once", "fluid", "optimised")


def listed(state: list[int], record: Any) -> list[int]:
    return [*state[-3:], record.v]


def states() -> Graph:
    """Native state by key and of all, and Python state by key and of all, over the same rows."""
    rows = {"k": [n * 7919 % 31 for n in range(ROWS)], "v": list(range(ROWS))}
    job = plait.Job("states")
    given = job.source(plait.Table(pa.table(rows)), name="given")
    given.key_by("k").aggregate(n=plait.count(), s=plait.sum("v")).sink(Capture(), name="keyed")
    given.aggregate(n=plait.count(), s=plait.sum("v")).sink(Capture(), name="all")
    given.key_by("k").fold([], listed, type=object).sink(Capture(), name="python")
    given.fold([], listed, type=object).sink(Capture(), name="python-all")
    return job.graph()


@pytest.mark.parametrize("how", WAYS)
def test_all_bins_go_to_the_other_node_and_back(how: How) -> None:
    away = dict.fromkeys(range(8), 1)
    back = dict.fromkeys(range(8), 0)
    changes = (Move(owners=away, how=how, at=2), Move(owners=back, how=how, gap=2, at=15))
    assert_same_on_nodes(states(), FEW, nodes=2, changes=changes)


@pytest.mark.parametrize("how", WAYS)
def test_a_node_joins_and_leaves(how: How) -> None:
    changes = (Join(bins=range(8), how=how, at=3), Leave(rank=1, how=how, at=15))
    assert_same_on_nodes(states(), FEW, nodes=1, changes=changes)


def test_a_node_that_joins_reads_its_share() -> None:
    """Also at the first epoch that it can, and with rows that are not divided evenly."""
    changes = (Join(at=1), Join(at=2), Join(at=7))
    assert_same_on_nodes(states(), {**FEW, "epoch_records": 7}, nodes=1, changes=changes)


@pytest.mark.parametrize(
    "change", [Join(bins=range(8)), Leave(rank=1), Stop(), Break(one=0, other=1)]
)
def test_a_change_at_the_end_of_the_sources(change: Change) -> None:
    changes: list[Any] = [Move(owners={0: 0}, at=39), change]
    assert_same_on_nodes(states(), FEW, nodes=2, changes=changes)


def test_broken_connections_lose_nothing() -> None:
    moves = [Move(owners={bin: bin % 2 for bin in range(8)}, how="fluid", at=at) for at in (3, 20)]
    breaks = [Break(one=0, other=1), Break(one=1, other=0)]
    changes: tuple[Change, ...] = (
        breaks[0],
        moves[0],
        breaks[1],
        breaks[0],
        moves[1],
        *breaks,
    )
    assert_same_on_nodes(states(), FEW, nodes=2, changes=changes)


def test_a_stop_delivers_what_comes_first() -> None:
    job = plait.Job("stopped")
    numbers = job.source(plait.Table(pa.table({"n": list(range(ROWS))})), name="numbers")
    numbers.sink(plait.Collect(), name="out")
    changes = (Move(owners={0: 1}, at=4), Stop())
    result = run_on_nodes(job, 2, changes=changes, **FEW)
    found = result.outputs["out"]["n"].to_pylist()
    assert found == list(range(len(found)))
    assert 4 * 8 <= len(found) < ROWS


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("how", ["abandoned", "astray"])
def test_a_copy_that_comes_to_nothing(nodes: int, how: How) -> None:
    """Copied, not given or given to another node, moved whole, and copied again."""
    all_bins = range(8)
    changes: list[Change] = [
        Move(owners=dict.fromkeys(all_bins, 0), at=2),
        Move(owners=dict.fromkeys(all_bins, 1), how=how, gap=3, at=4),
        Move(owners=dict.fromkeys(all_bins, 1), at=34),
        Move(owners=dict.fromkeys(all_bins, 0), how=how, at=36),
        Move(owners=dict.fromkeys(all_bins, 0), how="optimised", gap=2, at=48),
    ]
    settings = {**FEW, "epoch_records": 4}
    assert_same_on_nodes(states(), settings, nodes=nodes, changes=changes)


def test_a_live_source_is_read_by_one_node() -> None:
    job = plait.Job("live")
    feed = Feed({"k": int, "v": int})
    job.source(feed, name="feed").key_by("k").sum("v").sink(plait.Collect(), name="out")

    def push() -> None:
        for n in range(60):
            feed.push([(n % 5, n), (n % 3, n)])
        feed.close()

    pusher = threading.Thread(target=push)
    pusher.start()
    changes = (Join(bins=range(4), at=5), Move(owners={7: 0, 6: 0}, how="optimised", at=20))
    result = run_on_nodes(job, 2, changes=changes, **FEW)
    pusher.join()
    wanted = sequential(job.graph(), epoch_records=8, cuts=result.cuts)
    found = [tuple(row.values()) for row in result.outputs["out"].to_pylist()]
    assert found == wanted.outputs["out"]
    assert len(found) == 120


def test_records_at_a_rate() -> None:
    job = plait.Job("rate")
    numbers = job.source(plait.Rate(20_000.0, total=500), name="numbers")
    numbers.with_columns(k=col("seq") % 7).key_by("k").count().sink(plait.Collect(), name="out")
    result = run_on_nodes(job, 2, changes=[Join(bins=range(4), at=9)], **FEW)
    found = [row["count"] for row in result.outputs["out"].to_pylist()]
    assert found == [n // 7 + 1 for n in range(500)]


def test_each_node_has_its_sinks_with_order_by_key() -> None:
    given = states()
    changes = (Join(bins=range(8), at=3), Leave(rank=1, how="fluid", at=15))
    assert_same_on_nodes(given, {**FEW, "order": "key"}, nodes=2, changes=changes)


def test_rows_of_a_key_out_of_order_are_found() -> None:
    wanted = sequential(states())
    right = wanted.beyond["keyed"]
    others = {label: rows for label, rows in wanted.beyond.items() if label != "keyed"}
    compare_parts("right", [{**others, "keyed": right}], wanted, failed=False)
    for wrong, why in (([right[1], right[0], *right[2:]], "place"), (right[1:], "lacks")):
        with pytest.raises(AssertionError, match=why):
            compare_parts("wrong", [{**others, "keyed": wrong}], wanted, failed=False)


def next_key(record: Any) -> Any:
    return {"k": record.k + 1, "v": record.v}


def refused(record: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("epoch_records", [1, 2, 4])
def test_copies_of_one_record_fail_on_two_nodes(
    nodes: int, swapped: bool, epoch_records: int
) -> None:
    """The first of them is the failure, and what comes before it is delivered, wherever it is."""
    job = plait.Job("copies")
    rows = {"k": [0, 0, 3, 4], "v": [0, 1, 2, 3]}
    given = job.source(plait.Table(pa.table(rows)), name="given")
    both = given.union(given.map(next_key, schema=given.schema))
    counted = both.key_by("k").count()
    failing = counted.map(refused, schema=counted.schema).select("k")
    others = both.select("k")
    united = failing.union(others) if swapped else others.union(failing)
    united.sink(Capture(), name="out")
    settings = {"workers": 1, "bin_bits": 4, "epoch_records": epoch_records}
    for seed in range(3):
        assert_same_on_nodes(job.graph(), settings, nodes=nodes, seed=seed)


@plait.operator(outputs={"out": {"k": float}})
async def in_three(ctx: plait.Context) -> None:
    while await ctx.wait_any(records=1):
        last = 3.0 if ctx.pop("records").n == 0 else float("nan")
        for key in (1.0, 2.0, last):
            ctx.emit((key,))


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_one_record_became_before_a_bad_key_is_delivered(nodes: int) -> None:
    job = plait.Job("bad-key")
    numbers = job.source(plait.Table(pa.table({"n": [0, 1]})), name="numbers")
    in_three(numbers).out.key_by("k").rows(2).count().sink(Capture(), name="out")
    settings = {"workers": 1, "bin_bits": 4, "epoch_records": 1}
    wanted = assert_same_on_nodes(job.graph(), settings, nodes=nodes)
    assert wanted.outputs["out"] == [(1.0, 2), (2.0, 2)]
    assert wanted.failure is not None


@plait.operator
async def refuses_the_end(ctx: plait.Context) -> None:
    while await ctx.wait_any(records=1):
        ctx.emit(ctx.pop("records"))
    raise ValueError("it is over")


def test_a_failure_at_the_end_of_a_stopped_job() -> None:
    job = plait.Job("refused")
    numbers = job.source(plait.Table(pa.table({"n": list(range(ROWS))})), name="numbers")
    refuses_the_end(numbers).out.sink(Capture(), name="out")
    changes = (Move(owners={0: 1}, at=4), Stop())
    wanted = assert_same_on_nodes(job.graph(), FEW, nodes=2, changes=changes)
    assert 4 * 8 <= len(wanted.outputs["out"]) < ROWS
    assert wanted.failure is not None


@plait.operator
async def tells_the_end(ctx: plait.Context) -> None:
    while await ctx.wait_any(records=1):
        ctx.emit(ctx.pop("records"))
    ctx.emit((-1,))


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_failure_is_no_end_for_what_is_beside_it(nodes: int) -> None:
    """Sinks that do not depend on the failed record get what comes first, never a false end."""
    job = plait.Job("beside")
    numbers = job.source(plait.Table(pa.table({"n": list(range(ROWS))})), name="numbers")
    tells_the_end(numbers).out.sink(Capture(), name="beside")
    numbers.map(refused, schema=numbers.schema).sink(Capture(), name="failed")
    assert_same_on_nodes(job.graph(), FEW, nodes=nodes)


def test_what_runs_in_one_process_only_is_refused() -> None:
    refused: tuple[dict[str, Any], ...] = ({"order": "none"}, {"queue": "shared"})
    for settings in refused:
        with pytest.raises(plait.JobError, match="on nodes"):
            run_on_nodes(states(), 2, **settings)
    with pytest.raises(plait.JobError, match="colour"):
        run_on_nodes(states(), 2, colour=1)


def test_a_node_with_the_sinks_cannot_leave() -> None:
    with pytest.raises(plait.JobError, match="node 0 cannot leave") as raised:
        run_on_nodes(states(), 2, changes=[Leave(rank=0, at=2)], **FEW)
    assert "Leave(rank=0" in "".join(raised.value.__notes__)


def test_a_job_that_does_not_end_is_told_with_reports() -> None:
    job = plait.Job("endless")
    job.source(Feed({"n": int}), name="feed").sink(plait.Discard())
    with pytest.raises(plait.TimedOut, match="NodeReport") as raised:
        run_on_nodes(job, 2, timeout=0.2, **FEW)
    assert "2 nodes" in "".join(raised.value.__notes__)


def test_a_source_that_fails() -> None:
    class Broken(plait.Source):
        schema = plait.Schema.of({"n": int})
        bounded = True

        def open(self, position: Any = None) -> plait.Reader:
            return BrokenReader()

    class BrokenReader(plait.Reader):
        def poll(self, max_rows: int) -> Any:
            raise OSError("the disk is gone")

        def position(self) -> Any:
            return 0

    job = plait.Job("broken")
    job.source(Broken(), name="disk").sink(plait.Discard())
    with pytest.raises(plait.SourceError, match="the disk is gone"):
        run_on_nodes(job, 2, **FEW)


def test_a_sink_that_fails() -> None:
    def refuse(batch: Any) -> None:
        raise OSError("the disk is full")

    job = plait.Job("full")
    numbers = job.source(plait.Rate(1e9, total=100), name="numbers")
    numbers.sink(plait.Call(refuse), name="disk")
    with pytest.raises(plait.SinkError, match="the disk is full"):
        run_on_nodes(job, 2, **FEW)


GIVEN = """
    auction | price
    1       | 10
    1       | 20
    2       | 5
"""
TOTALS = """
    auction | sum
    1       | 10
    1       | 30
    2       | 5
"""


def totals(bids: plait.Stream) -> plait.Stream:
    return bids.key_by("auction").sum("price")


def test_check_on_nodes() -> None:
    check(totals, table(GIVEN), expect=table(TOTALS), workers=(1, 2), nodes=(1, 2), rescale_at=2)
    check(totals, table(GIVEN), expect=table(TOTALS), workers=(2,), nodes=(3,))
    graph, sink = graph_of(totals, table(GIVEN))
    with pytest.raises(AssertionError, match="2 nodes"):
        assert_same_on_nodes(graph, nodes=2, expect=table(GIVEN), expect_at=sink)


def test_check_finds_what_depends_on_the_nodes() -> None:
    """A function of batches sees a node's part of an epoch."""

    def first_half(batch: Any) -> Any:
        return batch.slice(0, (batch.num_rows + 1) // 2)

    rows = plait.Table(pa.table({"n": list(range(20))}))
    with pytest.raises(AssertionError, match="2 nodes"):
        check(
            lambda s: s.map_batches(first_half), rows, workers=(1,), nodes=(1, 2), epoch_records=20
        )


BASE = Layout(epoch=0, members=(0, 1, 2), owners=(0, 1, 2, 0), readers=(-1,), epoch_records=4)


def test_layouts_of_a_move() -> None:
    owners = {0: 1, 1: 1, 3: 2}
    (once,) = moving_layouts(BASE, 9, Move(owners=owners))
    assert (once.epoch, once.owners, once.copies) == (9, (1, 1, 2, 2), ())
    fluid = moving_layouts(BASE, 9, Move(owners=owners, how="fluid", gap=2))
    assert [(one.epoch, one.owners) for one in fluid] == [(9, (1, 1, 2, 0)), (11, (1, 1, 2, 2))]
    ahead = moving_layouts(BASE, 9, Move(owners=owners, how="optimised", gap=3))
    assert [(one.epoch, one.owners, one.copies) for one in ahead] == [
        (9, (0, 1, 2, 0), ((0, 1), (3, 2))),
        (12, (1, 1, 2, 0), ((3, 2),)),
        (15, (1, 1, 2, 2), ()),
    ]
    assert owners_without(BASE, 0) == {0: 1, 3: 2}


def test_layouts_of_a_copy_that_comes_to_nothing() -> None:
    stays = moving_layouts(BASE, 9, Move(owners={0: 1}, how="abandoned", gap=2))
    assert [(one.epoch, one.owners, one.copies) for one in stays] == [
        (9, BASE.owners, ((0, 1),)),
        (11, BASE.owners, ()),
    ]
    goes = moving_layouts(BASE, 9, Move(owners={0: 1}, how="astray", gap=2))
    assert [(one.epoch, one.owners, one.copies) for one in goes] == [
        (9, BASE.owners, ((0, 1),)),
        (11, (2, 1, 2, 0), ()),
    ]


def test_a_node_that_joins_learns_the_time_with_its_bins() -> None:
    """Before any came it had seen a part of the units only, and took time to be further than it was
    with max_jump: what was due then never came."""
    chance = random.Random(1)
    seconds = list(itertools.accumulate(chance.choice((0, 0, 1, 2, 5, 20, -4)) for _ in range(75)))
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    rows = [
        {"k": n % 3, "n": n, "ts": start + plait.seconds(second)}
        for n, second in enumerate(seconds)
    ]
    job = plait.Job("joining")
    read = job.source(rows, event_time="ts", out_of_order="1s", max_jump="1s")
    read.join_as_of(read.rename(m="n"), on="k").sink(plait.Collect(), name="out")
    settings = {"bin_bits": 4, "epoch_records": 1, "workers": 1}
    for at in (5, 20, 40):
        changes = [Join(bins=range(16), at=at)]
        assert_same_on_nodes(job.graph(), settings, nodes=2, changes=changes)
