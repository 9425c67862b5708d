"""Several sources whose event times are expressions: the same rows in the same order whatever the
epochs, polls, workers and nodes, as with a column."""

from __future__ import annotations

import datetime
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.connectors.base import Reader, Source, Wait
from plait.graph.source_order import is_in_time
from plait.testing.check import assert_same
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.nodes import run_on_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BASE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = plait.Schema.of({"k": int, "n": int, "at": str | None})
TIME = col("at").to_timestamp()
EPOCHS = (1, 3, 16, 4096)
Rows = list[dict[str, Any]]


def rows(count: int, seed: int, every_s: float) -> Rows:
    """Rows with a text as their time, out of order by at most half a second."""
    chance = random.Random(seed)
    now, found = 0.0, []
    for n in range(count):
        now += chance.expovariate(1 / every_s)
        at = BASE + datetime.timedelta(seconds=now - chance.random() / 2)
        found.append({"k": n % 7, "n": n, "at": at.isoformat()})
    return found


class InPieces(Source):
    """Some rows at a time, and nothing now and then."""

    schema = SCHEMA

    def __init__(self, given: Rows) -> None:
        self.given = given

    def open(self, position: Any = None) -> Reader:
        return PiecesReader(self.given)


class PiecesReader(Reader):
    def __init__(self, given: Rows) -> None:
        self.given = given
        self.at = 0
        self.chance = random.Random(len(given))

    def poll(self, max_records: int) -> Any:
        if self.chance.randrange(4) == 0:
            return Wait(0.0001)
        found = self.given[self.at :][: min(max_records, self.chance.choice((1, 2, 5, 40)))]
        self.at += len(found)
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


def job_of(sources: Sequence[Any], **more: Any) -> plait.Job:
    """A union of all, and what a join, a window and a count of the first two give."""
    job = plait.Job("several")
    clock = {"event_time": TIME, "out_of_order": "500ms", **more}
    streams = [job.source(one, f"in-{n}", **clock) for n, one in enumerate(sources)]
    first, second = streams[:2]
    plait.union(*streams).sink(plait.Collect(), name="all")
    first.join(second, on="k", between=("-2s", "2s"), how="left").sink(plait.Collect(), name="met")
    second.key_by("k").tumbling("3s").count().sink(plait.Collect(), name="counts")
    return job


def outputs(result: plait.Result) -> dict[str, Any]:
    return {label: table.to_pylist() for label, table in result.outputs.items()}


@pytest.mark.parametrize("kinds", [("table", "table"), ("chunks", "items"), ("pieces", "pieces")])
def test_the_order_is_that_of_the_records_alone(kinds: tuple[str, str]) -> None:
    few, many = rows(30, 1, 2.0), rows(400, 2, 0.15)
    job = job_of((KINDS[kinds[0]](few), KINDS[kinds[1]](many)))
    assert is_in_time(job.graph(), None)
    wanted = outputs(plait.run(job))
    for epoch in EPOCHS:
        for workers in (1, 3):
            assert_same(job.graph(), {"epoch_records": epoch, "workers": workers})
            assert outputs(plait.run(job, epoch_records=epoch, workers=workers)) == wanted
        on_nodes = run_on_nodes(job, 2, epoch_records=epoch, workers=2)
        assert outputs(on_nodes) == wanted
    assert len(wanted["all"]) == 430


def test_an_expression_orders_as_the_column_of_its_values() -> None:
    given = [in_table(rows(count, count, 20 / count)) for count in (30, 150)]
    computed = outputs(plait.run(job_of(given)))
    named = [
        one.append_column(pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False), times)
        for one in given
        for times in [pa.array([datetime.datetime.fromisoformat(at.as_py()) for at in one["at"]])]
    ]
    in_columns = outputs(plait.run(job_of(named, event_time="ts")))
    without = [{k: v for k, v in row.items() if k != "ts"} for row in in_columns["all"]]
    assert computed["all"] == without
    assert computed["counts"] == in_columns["counts"]


def test_columns_renamed_at_the_source() -> None:
    given = [in_table(rows(count, count, 20 / count)) for count in (30, 150)]
    plain = outputs(plait.run(job_of(given), epoch_records=5))["all"]
    job = job_of(given, rename={"at": "when"}, event_time=col("when").to_timestamp())
    assert is_in_time(job.graph(), None)
    renamed = outputs(plait.run(job, epoch_records=64))["all"]
    assert [row["n"] for row in renamed] == [row["n"] for row in plain]


@pytest.mark.parametrize("policy", ["skip", "dead_letter", "fail"])
@pytest.mark.parametrize("kind", ["chunks", "items"])
def test_rows_without_a_time_move_nothing(kind: str, policy: Any) -> None:
    some: Rows = rows(60, 1, 0.5)
    for n in (0, 1, 17, 30, 31, 59):
        some[n]["at"] = None if n % 2 else "later"
    some[40]["at"] = "9999-12-31"  # moves time by max_jump
    all_bad: Rows = [{"k": 1, "n": 1, "at": "never"}] * 5
    given = [KINDS[kind](one) for one in (some, rows(40, 2, 0.8), all_bad)]
    job = job_of(given, on_error=policy, max_jump="5s")
    for epoch in (1, 5, 4096):
        assert_same(job.graph(), {"epoch_records": epoch, "workers": 2})
        assert_same_on_nodes(job.graph(), {"epoch_records": epoch}, nodes=2)


@pytest.mark.parametrize("kind", ["table", "pieces"])
def test_a_limit_ends_each_source_with_that_row(kind: str) -> None:
    job = job_of((KINDS[kind](rows(50, 1, 1.0)), KINDS[kind](rows(90, 2, 0.5))))
    for limit in (0, 1, 33, 60):
        found = [
            outputs(plait.run(job, limit=limit, epoch_records=epoch)) for epoch in (1, 7, 4096)
        ]
        assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("seed", range(2))
def test_nodes_that_come_and_go(seed: int) -> None:
    job = job_of((in_table(rows(60, 1, 1.0)), in_table(rows(120, 2, 0.5))))
    settings = {"epoch_records": 5, "workers": 2, "bin_bits": 3}
    assert_same_on_nodes(job.graph(), settings, nodes=2, seed=seed)


def test_one_source_by_a_column_and_one_by_an_expression() -> None:
    left, right = in_table(rows(30, 1, 1.0)), rows(60, 2, 0.5)
    timed = [{**row, "at": datetime.datetime.fromisoformat(row["at"])} for row in right]
    job = plait.Job("two kinds")
    first = job.source(left, "text", event_time=TIME, out_of_order="500ms")
    second = job.source(timed, "times", event_time="at", out_of_order="500ms")
    both = plait.union(first.select("k", "n"), second.select("k", "n"))
    both.sink(plait.Collect(), name="all")
    first.join(second, on="k", between=("-2s", "2s")).sink(plait.Collect(), name="met")
    wanted = outputs(plait.run(job))
    for epoch in EPOCHS:
        assert outputs(plait.run(job, epoch_records=epoch)) == wanted
        assert_same(job.graph(), {"epoch_records": epoch})
