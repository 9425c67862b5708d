"""Several sources in order of time: the same rows in the same order whatever the epochs, polls,
workers and nodes, on every way to read a source."""

from __future__ import annotations

import datetime
import random
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait.connectors.base import Reader, Source, Wait
from plait.errors import JobError, SourceError, StateError
from plait.execution.local_run import start
from plait.graph.source_order import is_in_time
from plait.testing import sequential
from plait.testing.changes import Join, Stop
from plait.testing.check import assert_same
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.nodes import run_on_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

BASE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = plait.Schema.of({"k": int, "n": int, "ts": plait.Timestamp})
EPOCHS = (1, 3, 16, 4096)
Rows = list[dict[str, Any]]


def rows(count: int, seed: int, every_s: float) -> Rows:
    """Rows out of order by at most half a second."""
    chance = random.Random(seed)
    now, found = 0.0, []
    for n in range(count):
        now += chance.expovariate(1 / every_s)
        at = BASE + datetime.timedelta(seconds=now - chance.random() / 2)
        found.append({"k": n % 7, "n": n, "ts": at})
    return found


class InPieces(Source):
    """Some rows at a time, and nothing now and then; fails behind the last row if asked to."""

    schema = SCHEMA

    def __init__(self, given: Rows, seed: int = 1, fails: bool = False) -> None:
        self.given = given
        self.seed = seed
        self.fails = fails

    def open(self, position: Any = None) -> Reader:
        return PiecesReader(self)


class PiecesReader(Reader):
    def __init__(self, source: InPieces) -> None:
        self.source = source
        self.at = 0
        self.chance = random.Random(source.seed)

    def poll(self, max_rows: int) -> Any:
        if self.chance.randrange(4) == 0:
            return Wait(0.0001)
        found = self.source.given[self.at :][: min(max_rows, self.chance.choice((1, 2, 5, 40)))]
        self.at += len(found)
        if not found and self.source.fails:
            raise ValueError("gone")
        return found or None

    def position(self) -> Any:
        return self.at


def in_table(given: Rows) -> Any:
    return pa.Table.from_pylist(given, schema=SCHEMA.to_arrow())


def in_chunks(given: Rows) -> Any:
    parts = [given[at : at + 13] for at in range(0, len(given), 13)] or [[]]
    return pa.concat_tables([in_table(part) for part in parts])


KINDS: dict[str, Callable[[Rows], Any]] = {
    "table": in_table,
    "chunks": in_chunks,
    "items": lambda given: plait.Items(given, schema=SCHEMA),
    "pieces": InPieces,
}


def job_of(*given: Any, **more: Any) -> plait.Job:
    """A union of all, and what a join, a window and a count of the first two give."""
    job = plait.Job("several")
    clock = {"event_time": "ts", "out_of_order": "500ms", **more}
    streams = [job.source(one, f"in-{n}", **clock) for n, one in enumerate(given)]
    first, second = streams[:2]
    plait.union(*streams).sink(plait.Collect(), name="all")
    first.join(second, on="k", between=("-2s", "2s"), how="left").sink(plait.Collect(), name="met")
    second.key_by("k").tumbling("3s").count().sink(plait.Collect(), name="counts")
    plait.union(*streams).key_by("k").aggregate(s=plait.sum("n")).sink(plait.Collect(), name="sums")
    return job


def outputs(result: plait.Result) -> dict[str, Any]:
    return {label: table.to_pylist() for label, table in result.outputs.items()}


@pytest.mark.parametrize("kinds", [("table", "table"), ("chunks", "items"), ("pieces", "pieces")])
def test_the_order_is_that_of_the_records_alone(kinds: tuple[str, str]) -> None:
    few, many = rows(30, 1, 2.0), rows(400, 2, 0.15)
    job = job_of(KINDS[kinds[0]](few), KINDS[kinds[1]](many))
    wanted = None
    for epoch in EPOCHS:
        for workers in (1, 3):
            assert_same(job.graph(), {"epoch_records": epoch, "workers": workers})
            got = outputs(plait.run(job, epoch_records=epoch, workers=workers))
            wanted = wanted or got
            assert got == wanted
        on_nodes = run_on_nodes(job, 2, epoch_records=epoch, workers=2)
        assert outputs(on_nodes) == wanted
    assert wanted is not None
    assert len(wanted["all"]) == 430


def test_the_sources_of_one_epoch_were_not_in_order_of_time() -> None:
    """What `order="total"` asks for is another order for each size of an epoch."""
    job = job_of(in_table(rows(40, 1, 1.0)), in_table(rows(40, 2, 1.0)))
    found = [
        [row["n"] for row in outputs(plait.run(job, order="total", epoch_records=n))["all"]]
        for n in (1, 8)
    ]
    assert found[0] != found[1]
    assert_same(job.graph(), {"order": "total", "epoch_records": 8})


@pytest.mark.parametrize("kind", ["table", "items", "pieces"])
@pytest.mark.parametrize("counts", [(0, 0, 0), (0, 9, 3), (9, 0, 0), (1, 1, 0), (20, 1, 40)])
def test_sources_without_rows_and_ends(kind: str, counts: tuple[int, ...]) -> None:
    given = [KINDS[kind](rows(count, n, 0.7)) for n, count in enumerate(counts)]
    job = job_of(*given)
    wanted = outputs(plait.run(job))
    for epoch in (1, 4, 4096):
        assert_same(job.graph(), {"epoch_records": epoch, "workers": 2})
        assert_same_on_nodes(job.graph(), {"epoch_records": epoch, "workers": 2}, nodes=2)
        assert outputs(plait.run(job, epoch_records=epoch)) == wanted


@pytest.mark.parametrize("kind", ["table", "pieces"])
def test_a_limit_ends_each_source_with_that_row(kind: str) -> None:
    job = job_of(KINDS[kind](rows(50, 1, 1.0)), KINDS[kind](rows(90, 2, 0.5)))
    for limit in (0, 1, 33, 60):
        found = [
            outputs(plait.run(job, limit=limit, epoch_records=epoch)) for epoch in (1, 7, 4096)
        ]
        assert found[0] == found[1] == found[2]
        assert_same(job.graph(), {"epoch_records": 7, "limit": limit})


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_rows_that_cannot_be_read_are_where_the_row_before_is(policy: Any) -> None:
    some: list[Any] = list(rows(60, 1, 0.5))
    for n in (0, 1, 17, 30, 31, 59):
        some[n] = {"k": n, "n": "x", "ts": None}
    all_bad: list[Any] = [{"k": 1, "n": "x", "ts": None}] * 5
    schema = plait.Schema.of({"k": int, "n": int, "ts": plait.Timestamp | None})
    job = job_of(
        plait.Items(some, schema=schema),
        plait.Items(rows(40, 2, 0.8), schema=schema),
        plait.Items(all_bad, schema=schema),
        on_error=policy,
    )
    letters = []
    for epoch in (1, 5, 4096):
        assert_same(job.graph(), {"epoch_records": epoch, "workers": 2})
        assert_same_on_nodes(job.graph(), {"epoch_records": epoch}, nodes=2)
        result = plait.run(job, epoch_records=epoch)
        letters.append([(one.source, one.row) for one in result.dead_letters])
    assert letters[0] == letters[1] == letters[2]
    assert len(letters[0]) == (11 if policy == "dead_letter" else 0)


def test_what_comes_before_the_failure_of_a_source_does_not_depend_on_epochs() -> None:
    """It fails behind its row of the slice: nothing of a source after it in that slice comes."""
    first, second, third = rows(80, 1, 0.5), rows(20, 2, 0.5), rows(80, 3, 0.5)
    found = []
    for epoch in (1, 6, 4096):
        for seed in (1, 2):
            failing = InPieces(second, seed, fails=True)
            job = job_of(in_table(first), failing, InPieces(third, seed))
            running = start(job, epoch_records=epoch, workers=2)
            with pytest.raises(SourceError, match="gone"):
                running.wait()
            assert running.done is not None
            found.append(running.done.outputs["all"].to_pylist())
    assert all(one == found[0] for one in found)
    whole = outputs(plait.run(job_of(in_table(first), InPieces(second), InPieces(third))))["all"]
    assert found[0] == whole[: len(found[0])]
    assert 20 < len(found[0]) < 180


@pytest.mark.parametrize("kind", ["table", "items"])
@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_stop_on_nodes_leaves_what_comes_first(kind: str, at: int) -> None:
    job = job_of(KINDS[kind](rows(50, 1, 1.0)), KINDS[kind](rows(90, 2, 0.5)))
    settings = {"epoch_records": 6, "workers": 2, "bin_bits": 3}
    changes = (Join(bins=(0, 1), at=at), Stop())
    assert_same_on_nodes(job.graph(), settings, nodes=2, changes=changes)


@pytest.mark.parametrize("kind", ["table", "pieces"])
def test_a_stop_leaves_what_comes_first(kind: str) -> None:
    job = job_of(KINDS[kind](rows(500, 1, 1.0)), KINDS[kind](rows(900, 2, 0.5)))
    whole = outputs(plait.run(job))["all"]
    running = start(job, epoch_records=2, workers=2)
    running.stop()
    stopped = running.wait().outputs["all"].to_pylist()
    assert stopped == whole[: len(stopped)]


@pytest.mark.parametrize("kind", ["table", "items"])
@pytest.mark.parametrize("seed", range(4))
def test_nodes_that_come_and_go(kind: str, seed: int) -> None:
    job = job_of(KINDS[kind](rows(60, 1, 1.0)), KINDS[kind](rows(120, 2, 0.5)))
    settings = {"epoch_records": 5, "workers": 2, "bin_bits": 3}
    assert_same_on_nodes(job.graph(), settings, nodes=2, seed=seed)


def test_other_orders_of_the_output_have_the_same_order_of_records() -> None:
    job = plait.Job("keys")
    given = [in_table(rows(50, 1, 1.0)), in_table(rows(90, 2, 0.5))]
    left, right = (job.source(one, event_time="ts", out_of_order="1s") for one in given)
    left.join(right, on="k", between=("-2s", "2s")).sink(plait.Collect(), name="met")
    assert_same_on_nodes(job.graph(), {"order": "key", "epoch_records": 8}, nodes=2)
    in_time = outputs(plait.run(job, order="time"))
    assert outputs(plait.run(job, order="key", epoch_records=9)) == in_time


class Endless(InPieces):
    bounded = False


def test_where_it_cannot_be() -> None:
    some = rows(3, 1, 1.0)

    def job(*given: Any, event_time: str | None = "ts") -> plait.Job:
        made = plait.Job("two")
        streams = [
            made.source(one, f"in-{n}", event_time=event_time) for n, one in enumerate(given)
        ]
        plait.union(*streams).sink(plait.Collect(), name="out")
        return made

    cases = [
        (job(in_table(some), Endless(some)), "source in-1 has no end"),
        (job(in_table(some), plait.Table(in_table(some), rate_per_s=10.0)), "in-1 has a rate"),
        (job(in_table(some), in_table(some), event_time=None), "in-0 has no event time"),
    ]
    for made, why in cases:
        assert not is_in_time(made.graph(), None)
        with pytest.raises(JobError, match=why):
            plait.start(made, order="time")
        with pytest.raises(JobError, match=why):
            run_on_nodes(made, 2, order="time")
    one = plait.stream(in_table(some), event_time="ts").sink(plait.Collect(), name="out")
    assert plait.run(one, order="time").outputs["out"].num_rows == 3


def test_explain_says_which_order_it_is_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    some = in_table(rows(3, 1, 1.0))
    job = job_of(some, some)
    job.explain()
    assert "order of time (slice, source, row)" in capsys.readouterr().out
    job.explain(order="total")
    assert "total order, epochs" in capsys.readouterr().out
    other = plait.Job("no times")
    plait.union(other.source(some, "a"), other.source(some, "b")).sink(plait.Discard())
    other.explain()
    shown = capsys.readouterr().out
    assert "total order (epoch, source, row), not of time: source a has no event time" in shown


def test_snapshots_are_of_runs_in_total_order() -> None:
    given = [InPieces(rows(300, n, 0.3)) for n in (1, 2)]
    job = job_of(*given)
    running = start(job)
    with pytest.raises(StateError, match='order="total"'):
        running.snapshot()
    running.wait()
    whole = start(job, order="total")
    try:
        taken = whole.snapshot()
    finally:
        whole.wait()
    with pytest.raises(JobError, match='order="total"'):
        start(job, state=taken)
    start(job, order="total", state=taken).wait()


def test_a_source_of_few_rows_does_not_run_ahead() -> None:
    """A join in an interval keeps what is near in time. Epoch by epoch the source of few rows is
    read to its end first, and all of it is kept."""
    given = {"few": rows(2_000, 1, 20.0), "many": rows(40_000, 2, 1.0)}
    job = plait.Job("join")
    left, right = (
        job.source(in_table(one), label, event_time="ts", out_of_order="1s")
        for label, one in given.items()
    )
    left.join(right, on="k", between=("-1s", "1s")).sink(plait.Discard())

    def most_ahead(order: Any) -> int:
        """Rows of the few that are read before the many have come to their time."""
        cuts = plait.run(job, order=order, epoch_records=512).cuts
        read = {label: list(accumulate(sizes)) for label, sizes in cuts.items()}
        most = 0
        for few, many in zip(read["few"], read["many"], strict=False):
            now = given["many"][many - 1]["ts"] if many else BASE
            most = max(most, few - sum(row["ts"] <= now for row in given["few"]))
        return most

    assert most_ahead("total") > 1_500
    assert most_ahead("time") < 1_000


def test_the_cuts_of_a_run_repeat_it() -> None:
    job = job_of(InPieces(rows(70, 1, 1.0)), in_table(rows(90, 2, 0.5)))
    result = plait.run(job, epoch_records=9)
    again = sequential(job.graph(), cuts=result.cuts)
    assert {k: len(v) for k, v in again.outputs.items()} == {
        label: table.num_rows for label, table in result.outputs.items()
    }
    assert [row[1] for row in again.outputs["all"]] == result.outputs["all"]["n"].to_pylist()
