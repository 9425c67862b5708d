"""The same jobs on every entry point: each gives what the plain loop gives, in order.

The entry points are a table in tests/conftest.py; a new one is one more line there. The jobs here
have one of everything: each operator, the policies for records that fail, files in and out. A new
feature adds its job to JOBS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import col
from plait.testing import sequential
from plait.testing.check import compare_accounts, compare_letters, rows_of_arrow
from plait.testing.difference import story

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    EntryPoint = Callable[..., plait.Result]

ROWS = 400
SETTINGS = {"epoch_records": 16, "bin_bits": 4}


def given() -> pa.Table:
    """Some keys, a column with nulls, strings, and a number that some functions refuse."""
    numbers = range(ROWS)
    return pa.table(
        {
            "k": [n * 7919 % 23 for n in numbers],
            "v": [None if n % 11 == 0 else n for n in numbers],
            "s": ["abc"[n % 3] * (n % 5) for n in numbers],
            "n": list(numbers),
        }
    )


def records() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = given().to_pylist()
    return found


def twice(record: Any) -> list[Any]:
    return [record] * (record.n % 3)


def odd(record: Any) -> Any:
    if record.n % 50 == 49:
        raise ValueError(f"{record.n} is refused")
    return record


def added(state: int, record: Any) -> int:
    return state + int(record.n)


def alternating(state: int, record: Any) -> Any:
    return state + 1, record if state % 2 == 0 else None


def with_double(table: Any) -> Any:
    return table.append_column("d", pa.array([2 * n for n in table["n"].to_pylist()], pa.int64()))


@plait.compiled
def half(n: int) -> int:
    return n // 2


WITH_DOUBLE = {"k": int, "v": int | None, "s": str, "n": int, "d": int}

JOBS: dict[str, Any] = {
    "filter": lambda s: s.filter(col("v") % 3 != 0),
    "projections": lambda s: s.with_columns(w=col("n") * 2).select("w", "s").rename(t="s"),
    "compiled": lambda s: s.with_columns(h=half(col("n"))),
    "python map": lambda s: s.map(odd, schema=s.schema, on_error="skip"),
    "python filter": lambda s: s.filter(lambda record: record.n % 7 != 3),
    "flat_map": lambda s: s.flat_map(twice, schema=s.schema),
    "map_batches": lambda s: s.map_batches(with_double, schema=WITH_DOUBLE),
    "count by key": lambda s: s.key_by("k").count(),
    "aggregate by two keys": lambda s: s.key_by("k", "s").aggregate(
        n=plait.count(), total=plait.sum("v"), least=plait.min("n"), last=plait.last("s")
    ),
    "aggregate of all": lambda s: s.aggregate(n=plait.count(), mean=plait.mean("v")),
    "fold by key": lambda s: s.key_by("s").fold(0, added, type=int),
    "fold of all": lambda s: s.fold(0, added, type=int),
    "stateful by key": lambda s: s.key_by("k").stateful(0, alternating, schema=s.schema),
    "stateful of all": lambda s: s.stateful(0, alternating, schema=s.schema),
    "two keyed operators": lambda s: (
        s.key_by("k").aggregate(c=plait.count()).with_columns(m=col("c") % 5).key_by("m").count()
    ),
    "flat_map, then by key": lambda s: s.flat_map(twice, schema=s.schema).key_by("k").count(),
    "union of two branches": lambda s: s.filter(col("n") % 2 == 0).union(
        s.filter(col("n") % 3 > 0)
    ),
    "dead letters": lambda s: (
        s.map(odd, schema=s.schema, on_error="dead_letter").key_by("k").sum("n")
    ),
    "dead letters behind keys": lambda s: (
        s.key_by("k")
        .aggregate(n=plait.max("n"))
        .map(odd, schema={"k": int, "n": int | None}, on_error="dead_letter")
    ),
}
SOURCES: dict[str, Callable[[], Any]] = {
    "a table": lambda: plait.Table(given()),
    "records": lambda: plait.Items(records()),
}


def assert_right(job: plait.Job, result: plait.Result) -> None:
    graph = job.graph()
    wanted = sequential(graph, epoch_records=SETTINGS["epoch_records"])
    for label, right in wanted.outputs.items():
        rows = rows_of_arrow(result.outputs[label], wanted.schemas[label])
        told = story(label, wanted.schemas[label], rows, right, "sequential")
        assert not told, told
    compare_accounts("counts", result, wanted)
    compare_letters("dead letters", result.dead_letters, wanted.dead_letters)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", JOBS)
def test_a_job(entry_point: EntryPoint, name: str, source: str) -> None:
    job = plait.Job("entry")
    JOBS[name](job.source(SOURCES[source](), name="given")).sink(plait.Collect(), name="out")
    assert_right(job, entry_point(job, **SETTINGS))


def test_two_sources_and_two_sinks(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    one = job.source(plait.Table(given().slice(0, 100)), name="one")
    two = job.source(plait.Items(records()[100:]), name="two")
    both = one.union(two)
    both.key_by("k").count().sink(plait.Collect(), name="counts")
    both.filter(col("n") % 2 == 0).sink(plait.Collect(), name="even")
    assert_right(job, entry_point(job, **SETTINGS))


def test_numbered_records(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    numbered = job.source(plait.Rate(1e9, total=ROWS), name="numbers")
    numbered.with_columns(k=col("seq") % 7).key_by("k").aggregate(n=plait.max("seq")).sink(
        plait.Collect(), name="out"
    )
    result = entry_point(job, **SETTINGS)
    assert result.outputs["out"].to_pylist() == [{"k": n % 7, "n": n} for n in range(ROWS)]
    assert result.account.difference == 0


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_files_in_and_out(entry_point: EntryPoint, tmp_path: Path, suffix: str) -> None:
    pq.write_table(given(), tmp_path / "in.parquet")
    job = plait.Job("entry")
    read = job.source(plait.Files(tmp_path / "in.parquet"), name="in")
    counts = read.key_by("k").aggregate(n=plait.count(), total=plait.sum("v"))
    counts.sink(plait.Files(tmp_path / f"out.{suffix}"), name="out")
    wanted = sequential(job.graph(), epoch_records=SETTINGS["epoch_records"])
    result = entry_point(job, **SETTINGS)
    assert result.account.delivered == ROWS
    schema = wanted.schemas["out"]
    again = plait.stream(plait.Files(tmp_path / f"out.{suffix}", schema=schema))
    assert rows_of_arrow(again.to_arrow(), schema) == wanted.outputs["out"]


def test_dead_letters_go_to_their_sink(entry_point: EntryPoint, tmp_path: Path) -> None:
    path = tmp_path / "letters.jsonl"
    job = plait.Job("entry", dead_letters=plait.Files(path))
    read = job.source(plait.Table(given()), name="given")
    read.map(odd, schema=read.schema, on_error="dead_letter").sink(plait.Collect(), name="out")
    result = entry_point(job, **SETTINGS)
    assert [letter.row for letter in result.dead_letters] == list(range(49, ROWS, 50))
    letters = plait.stream(plait.Files(path)).collect()
    assert sorted(letter.row for letter in letters) == list(range(49, ROWS, 50))
    assert {letter.error for letter in letters} == {
        f"ValueError: {n} is refused" for n in range(49, ROWS, 50)
    }


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("keyed", [False, True])
def test_a_record_that_fails(entry_point: EntryPoint, source: str, keyed: bool) -> None:
    job = plait.Job("entry")
    read = job.source(SOURCES[source](), name="given")
    if keyed:
        read = read.key_by("k").aggregate(n=plait.max("n"))
    read.map(odd, schema=read.schema).sink(plait.Collect(), name="out")
    with pytest.raises(plait.RecordError) as raised:
        entry_point(job, **SETTINGS)
    error = raised.value
    assert (error.operator, error.source, error.row, error.record.n) == ("map", "given", 49, 49)
    assert isinstance(error.__cause__, ValueError)
    first, *rest = str(error).splitlines()
    assert first.startswith('map "odd" at ')
    assert first.endswith(" raised ValueError: 49 is refused")
    assert rest[0].startswith("  record 50 of source given: ")


def test_an_expression_that_fails(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    read = job.source(plait.Table(given()), name="given")
    read.with_columns(q=100 // (col("n") - 60)).key_by("k").sum("q").sink(plait.Collect())
    with pytest.raises(plait.RecordError, match="record 61 of source given") as raised:
        entry_point(job, **SETTINGS)
    assert raised.value.row == 60


def test_a_sink_that_has_enough(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    read = job.source(plait.Table(given()), name="given")
    read.key_by("k").count().sink(plait.Collect(limit=50), name="out")
    result = entry_point(job, **SETTINGS)
    assert result.outputs["out"].num_rows == 50


def test_a_limit(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    read = job.source(plait.Table(given()), name="given")
    read.key_by("k").count().sink(plait.Collect(), name="out")
    assert entry_point(job, **SETTINGS, limit=33).account.read == 33
