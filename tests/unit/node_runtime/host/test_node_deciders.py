"""Several deciders, and sinks that commit between checkpoints, on nodes in this process.

Two sinks get the same rows, from a source that is read at home and cuts its epochs as it likes, and
from a table that all nodes read; how the two interleave depends on the cuts. Whatever was lost,
both sinks must have the same rows in the same order: then what was repeated was the same.
"""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from examples.exactly_once_sqlite import Numbers
from tests.unit.node_runtime.host.test_node_checkpoints import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 20_000
SCHEMA = {"n": int, "square": int}


class Uneven(plait.Source):
    """Numbers below zero, a few at a time, never the same few."""

    schema = plait.Schema.of(SCHEMA)

    def open(self, position: Any = None) -> plait.Reader:
        return UnevenReader(position or 0)


class UnevenReader(plait.Reader):
    def __init__(self, at: int) -> None:
        self.at = at

    def poll(self, max_rows: int) -> Any:
        if self.at == ROWS:
            return None
        if random.random() < 0.2:
            return plait.Wait(0.0005)
        first, self.at = self.at, min(ROWS, self.at + random.randint(1, 20), self.at + max_rows)
        return [{"n": -1 - n, "square": n * n} for n in range(first, self.at)]

    def position(self) -> Any:
        return self.at


class Failing(Numbers):
    """Cannot commit as long as a file is there."""

    def open(self, schema: plait.Schema, resume: plait.Resume | None = None) -> plait.Writer:
        writer = super().open(schema, resume)
        commit = writer.commit

        def try_to_commit(boundary: int, notes: bytes = b"") -> None:
            import os

            if os.path.exists(f"{self.path}.away"):
                raise plait.SinkError("the database is away")
            commit(boundary, notes)

        writer.commit = try_to_commit  # type: ignore[method-assign]
        return writer


def make_job(folder: Path, commit: str | None) -> plait.Job:
    table = pa.table({"n": list(range(ROWS)), "square": [n * n for n in range(ROWS)]})
    job = plait.Job("deciders")
    there = job.source(plait.Table(table, rate_per_s=20_000.0), "table")
    both = there.union(job.source(Uneven(), "uneven"))
    summed = both.key_by("n").aggregate(square=plait.sum("square"))
    rows = summed.filter(plait.col("square") >= 0)
    rows.sink(Numbers(str(folder / "first.db"), commit=commit), "first")
    rows.sink(Failing(str(folder / "second.db")), "second")
    rows.sink(plait.Collect(), "kept")
    return job


def rows_of(folder: Path, name: str) -> list[tuple[int, int]]:
    connection = sqlite3.connect(folder / f"{name}.db")
    try:
        return connection.execute("SELECT n, square FROM numbers ORDER BY rowid").fetchall()
    finally:
        connection.close()


def check(result: plait.Result, folder: Path) -> None:
    kept = [tuple(row.values()) for row in result.outputs["kept"].to_pylist()]
    assert [n for n, _ in kept if n >= 0] == list(range(ROWS))
    assert [n for n, _ in kept if n < 0] == [-1 - n for n in range(ROWS)]
    assert rows_of(folder, "first") == kept
    assert rows_of(folder, "second") == kept


@pytest.fixture(params=[None, "1h"], ids=["at checkpoints", "between checkpoints"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    graph = make_job(tmp_path, request.param).graph()
    made = Cluster(graph, str(tmp_path / "saved"))
    yield made
    made.close()


def commit_now(cluster: Cluster) -> None:
    """What the thread does now and then."""
    saver = cluster.agents[cluster.home].saver
    assert saver is not None
    assert saver.committer is not None
    for op in saver.committer.sinks:
        saver.committer.commit(op)


def test_a_crash_between_two_deciders(cluster: Cluster, tmp_path: Path) -> None:
    away = tmp_path / "second.db.away"
    assert cluster.start((0, 1), 0).number == 0
    assert cluster.checkpoint()
    commit_now(cluster)
    away.touch()
    epoch = cluster.mark()
    assert epoch is not None
    cluster.seal(epoch)
    with pytest.raises(AssertionError, match="the database is away"):
        cluster.publish()
    ahead = len(rows_of(tmp_path, "first"))
    assert len(rows_of(tmp_path, "second")) < ahead
    away.unlink()
    cluster.agents.pop(0).close()
    assert cluster.start((1, 2), 2).number == 1
    away.touch()
    epoch = cluster.mark()  # once more, and now on one node
    assert epoch is not None
    cluster.seal(epoch)
    away.unlink()
    assert cluster.start((1,), 1).number == 1
    assert cluster.checkpoint()
    check(cluster.finish(), tmp_path)


def test_a_crash_before_the_first_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0, 1), 0)
    cluster.wait(lambda: sum(a.report().delivered for a in cluster.agents.values()) > 500 or None)
    commit_now(cluster)
    assert cluster.start((0, 1, 2), 0).number == 0
    commit_now(cluster)
    check(cluster.finish(), tmp_path)


def test_a_crash_at_the_end(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start((0, 1), 0)
    assert cluster.checkpoint()
    (tmp_path / "second.db.away").touch()
    with pytest.raises(AssertionError, match="the database is away"):
        cluster.finish()
    (tmp_path / "second.db.away").unlink()
    assert cluster.start((0, 1), 1).number == 1
    check(cluster.finish(), tmp_path)
