"""Readers and writers of the user are opened, called and closed by one thread: sqlite3 works."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

import plait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    EntryPoint = Callable[..., plait.Result]

ROWS = 100


class Rows(plait.Source):
    """The rows of a table of sqlite3."""

    schema = plait.Schema.of({"n": int, "name": str})

    def __init__(self, path: str, *, goes_on: bool = False) -> None:
        self.path = path
        self.bounded = not goes_on

    def open(self, position: Any = None) -> RowsReader:
        return RowsReader(self.path, position or 0, plait.Wait(0.001) if not self.bounded else None)


class RowsReader(plait.Reader):
    def __init__(self, path: str, after: int, end: plait.Wait | None) -> None:
        self.connection = sqlite3.connect(path)
        self.after = after
        self.end = end

    def poll(self, max_rows: int) -> Any:
        query = "select n, name from given where n >= ? order by n limit ?"
        rows = self.connection.execute(query, (self.after, min(max_rows, 7))).fetchall()
        self.after += len(rows)
        return rows or self.end

    def position(self) -> int:
        self.connection.execute("select 1")
        return self.after

    def close(self) -> None:
        self.connection.close()


class Insert(plait.Sink):
    """Inserts into a table of sqlite3."""

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, schema: plait.Schema) -> InsertWriter:
        return InsertWriter(self.path)


class InsertWriter(plait.Writer):
    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path)

    def write(self, batch: Any) -> None:
        rows = [tuple(row.values()) for row in batch.to_pylist()]
        self.connection.executemany("insert into made values (?, ?)", rows)

    def close(self) -> int:
        self.connection.commit()
        (count,) = self.connection.execute("select count(*) from made").fetchone()
        self.connection.close()
        return int(count)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "data.db")
    connection = sqlite3.connect(path)
    connection.execute("create table given (n integer, name text)")
    connection.execute("create table made (n integer, name text)")
    rows = [(n, f"name {n}") for n in range(ROWS)]
    connection.executemany("insert into given values (?, ?)", rows)
    connection.commit()
    yield path
    connection.close()


def rows_made(path: str) -> list[tuple[int, str]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("select n, name from made").fetchall()
    finally:
        connection.close()


def test_a_source_and_a_sink_on_sqlite(database: str, entry_point: EntryPoint) -> None:
    job = plait.stream(Rows(database)).sink(Insert(database), name="made").job
    result = entry_point(job, epoch_records=4, bin_bits=4)
    assert result.outputs["made"] == ROWS
    assert rows_made(database) == [(n, f"name {n}") for n in range(ROWS)]


def test_what_was_delivered_before_a_failure_is_kept(database: str) -> None:
    def refused(record: Any) -> Any:
        if record.n == 50:
            raise ValueError("fifty")
        return record

    job = plait.stream(Rows(database)).map(refused).sink(Insert(database)).job
    with pytest.raises(plait.RecordError, match="fifty"):
        job.run(workers=4, epoch_records=4)
    assert [n for n, _ in rows_made(database)] == list(range(50))


def test_a_snapshot_asks_the_reader_in_its_thread(database: str) -> None:
    rows = plait.stream(Rows(database, goes_on=True), name="rows")
    running = plait.start(rows.sink(plait.Discard()).job)
    while running.engine.records_read() < ROWS:
        running.engine.wait(0.001)
    assert running.snapshot().positions == {"rows": ROWS}
    running.stop()
    assert running.wait().account.read == ROWS


def test_errors_of_an_end_are_those_of_its_thread(tmp_path: Path) -> None:
    job = plait.stream(Rows(str(tmp_path / "none.db"))).sink(plait.Discard()).job
    with pytest.raises(plait.SourceError, match="no such table: given"):
        job.run()
    job = plait.stream([{"n": 1, "name": "x"}]).sink(Insert(str(tmp_path / "none.db"))).job
    with pytest.raises(plait.SinkError, match="no such table: made"):
        job.run()


class Yields(Rows):
    """Yields its rows: a generator runs where it is asked."""

    def open(self, position: Any = None) -> Any:
        connection = sqlite3.connect(self.path)
        try:
            query = "select n, name from given where n >= ? order by n"
            yield from connection.execute(query, (position or 0,))
        finally:
            connection.close()


def test_a_source_that_yields(database: str, entry_point: EntryPoint) -> None:
    job = plait.stream(Yields(database)).sink(plait.Collect(), name="out").job
    result = entry_point(job, epoch_records=4, bin_bits=4)
    assert result.outputs["out"].column("n").to_pylist() == list(range(ROWS))


class Delegates(plait.Source):
    """Opens a source of plait's own."""

    schema = plait.Schema.of({"n": int})

    def open(self, position: Any = None) -> plait.Reader:
        return plait.Items([{"n": 1}, {"n": 2}, {"n": "three"}], {"n": int}).open(position)


class OtherColumns(plait.Source):
    """Opens one whose records are not of its schema."""

    schema = plait.Schema.of({"m": int})

    def open(self, position: Any = None) -> plait.Reader:
        return plait.Items([{"n": "one"}]).open(position)


def test_the_records_before_a_bad_one_are_delivered() -> None:
    seen: list[int] = []
    job = plait.stream(Delegates()).sink(plait.Call(lambda record: seen.append(record.n))).job
    with pytest.raises(plait.SourceError, match="three"):
        job.run()
    assert seen == [1, 2]


def test_other_columns_than_the_source_says() -> None:
    with pytest.raises(plait.SourceError, match='"n" is not a column; the columns are m'):
        plait.stream(OtherColumns()).sink(plait.Discard()).job.run()


def test_a_generator_is_still_a_source() -> None:
    made = plait.stream({"n": n} for n in range(10))
    assert [record.n for record in made.collect()] == list(range(10))
