"""Streams enriched by tables: the lookup by itself, the columns, and what is refused."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.graph.operators import CallOp, FilterOp
from plait.streams.enrich import Enrich, Lookup

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"id": n if n % 3 else None, "kind": "abc"[n % 3], "n": n} for n in range(7)]
TABLE = pa.table({"id": [5, 2, 1], "name": ["five", "two", "one"], "n": [50, 20, 10]})


def records() -> plait.Stream:
    return plait.stream(RECORDS)


def last_call(stream: plait.Stream) -> Any:
    nodes = stream.sink(plait.Discard()).job.graph().operators
    return next(node for node in reversed(nodes) if isinstance(node, CallOp))


@pytest.mark.parametrize(
    "keys",
    [[3, 1, 2], [10, -5, 10**12], [], [2**63 - 1, -(2**63)], [None, 1, 2, None]],
)
def test_whole_numbers_are_found(keys: list[int | None]) -> None:
    lookup = Lookup(pa.table({"key": pa.array(keys, pa.int64())}), ["key"])
    asked = [1, 2, 3, None, 10, -5, 10**12, 2**63 - 1, -(2**63), 0]
    places = [keys.index(k) if k is not None and k in keys else -1 for k in asked]
    assert lookup.find([pa.array(asked, pa.int64())]).tolist() == places
    present = pa.array([k for k in asked if k is not None], pa.int64())
    assert lookup.find([present]).tolist() == [
        place for place, k in zip(places, asked, strict=True) if k is not None
    ]


def test_other_keys_are_found() -> None:
    lookup = Lookup(pa.table({"a": ["x", "y", None], "b": [1, 2, 3]}), ["a", "b"])
    asked = [pa.array(["y", "x", None, "x"]), pa.array([2, 2, 3, 1])]
    assert lookup.find(asked).tolist() == [1, -1, -1, 0]


def test_a_key_that_is_there_twice() -> None:
    with pytest.raises(plait.JobError, match=r"enrich at .*the table has the key 1 twice"):
        records().enrich(pa.table({"id": [1, 2, 1]}), on="id")
    with pytest.raises(plait.JobError, match="the table has the key 'a' twice"):
        records().enrich(pa.table({"kind": ["a", "a"]}), on="kind")


def test_both_rows_of_a_doubled_key_are_shown() -> None:
    table = pa.table({"kind": ["a", "b", "a"], "n": [1, 1, 1], "name": ["x", "y", "z"]})
    with pytest.raises(plait.JobError, match=r"the key 'a', 1 twice \(kind, n\)") as caught:
        records().enrich(table, on=["kind", "n"])
    assert str(caught.value).split("\n")[1:] == [
        "  row 1: {'kind': 'a', 'n': 1, 'name': 'x'}",
        "  row 3: {'kind': 'a', 'n': 1, 'name': 'z'}",
    ]
    with pytest.raises(plait.JobError, match=r"the key 7 twice \(id\)") as caught:
        records().enrich(pa.table({"id": [1, 7, 2, 7]}), on="id")
    assert str(caught.value).split("\n")[1:] == ["  row 2: {'id': 7}", "  row 4: {'id': 7}"]


@pytest.mark.parametrize("refresh", [None, "5m"])
def test_a_doubled_key_in_a_file_is_an_error_when_the_job_is_built(
    tmp_path: Path, refresh: str | None
) -> None:
    path = tmp_path / "names.csv"
    path.write_text("id,name\n1,one\n2,two\n1,uno\n")
    with pytest.raises(plait.JobError, match=r"enrich at .*the key 1 twice \(id\)"):
        records().enrich(str(path), on="id", refresh=refresh)


def test_a_key_that_is_doubled_later_fails_the_record_that_meets_it(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text("id,name\n1,one\n")
    fails = records().enrich(str(path), on="id")
    skips = records().enrich(str(path), on="id", on_error="skip")
    path.write_text("id,name\n1,one\n1,uno\n")
    with pytest.raises(plait.RecordError, match=r"raised SourceError: .*names.csv: .*key 1 twice"):
        fails.collect()
    assert skips.collect() == []


def test_the_columns() -> None:
    stream = records().enrich(TABLE, on="id")
    assert (
        str(stream.schema) == "id: int64?, kind: string, n: int64, name: string?, n_right: int64?"
    )
    node = last_call(stream)
    assert (node.name, node.mode) == ("enrich", "batches")
    made = node.function(pa.Table.from_pylist(RECORDS))
    assert made["name"].to_pylist() == [None, "one", "two", None, None, "five", None]
    assert made["n_right"].to_pylist() == [None, 10, 20, None, None, 50, None]
    assert made["n"].to_pylist() == list(range(7))


def test_inner_is_a_filter_behind() -> None:
    stream = records().enrich(TABLE, on="id", how="inner", suffix="_of_table")
    assert stream.schema.names == ("id", "kind", "n", "name", "n_of_table")
    nodes = stream.sink(plait.Discard()).job.graph().operators
    assert isinstance(nodes[2], FilterOp)
    assert repr(nodes[2].predicate) == 'col("found")'


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_of_others(frame: Any) -> None:
    stream = records().enrich(frame({"letter": ["a", "c"], "v": [1.5, 2.5]}), on=("kind", "letter"))
    made = last_call(stream).function(pa.Table.from_pylist(RECORDS))
    assert made["v"].to_pylist() == [1.5, None, 2.5, 1.5, None, 2.5, 1.5]


def test_a_list_of_records_is_a_table() -> None:
    stream = records().enrich([{"id": 5, "name": "five"}, {"id": 2, "name": "two"}], on="id")
    made = last_call(stream).function(pa.Table.from_pylist(RECORDS))
    assert made["name"].to_pylist() == [None, None, "two", None, None, "five", None]
    with pytest.raises(plait.JobError, match="the table has the key 5 twice"):
        records().enrich([{"id": 5}, {"id": 5}], on="id")


def test_a_path_is_read_when_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "names.parquet"
    pq.write_table(TABLE, path)
    stream = records().enrich(str(path), on="id")
    pq.write_table(pa.table({"id": [4], "name": ["four"], "n": [40]}), path)
    function = pickle.loads(pickle.dumps(last_call(stream).function))
    assert isinstance(function, Enrich)
    made = function(pa.Table.from_pylist(RECORDS))
    assert made["name"].to_pylist() == [None, None, None, None, "four", None, None]


def test_a_path_is_read_again_when_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / "names.parquet"
    pq.write_table(TABLE, path)
    stream = records().enrich(str(path), on="id", refresh="5m")
    assert stream.schema.names[-1] == "read_at"
    function = last_call(stream).function
    first = function(pa.Table.from_pylist(RECORDS))
    pq.write_table(pa.table({"id": [4], "name": ["four"], "n": [40]}), path)
    again = function(pa.Table.from_pylist(RECORDS))
    assert again.equals(first)
    function.read_clock -= 301
    later = function(pa.Table.from_pylist(RECORDS))
    assert later["name"].to_pylist() == [None, None, None, None, "four", None, None]
    assert later["read_at"][0].as_py() > first["read_at"][0].as_py()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.enrich(iter([{"id": 1}]), on="id"), "is not a table"),
        (lambda s: s.enrich(TABLE, on="name"), 'in the left stream: no column "name"'),
        (lambda s: s.enrich(TABLE, on=("id", "key")), 'in the right stream: no column "key"'),
        (lambda s: s.enrich(TABLE, on=("kind", "id")), "is string, .* is int64"),
        (lambda s: s.enrich(TABLE, on="id", how="anti"), '"left" or "inner"'),
        (lambda s: s.enrich(TABLE, on="id", refresh="1m"), "this table is in memory"),
        (lambda s: s.enrich("no_such.parquet", on="id"), "no file no_such.parquet"),
        (
            lambda s: s.with_columns(found=True).enrich(TABLE, on="id", how="inner"),
            'already has a column "found"',
        ),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises((plait.JobError, plait.SourceError), match=message) as caught:
        make(records())
    assert "enrich at test_enrich_build.py:" in str(caught.value)


def test_event_time_stays() -> None:
    table = pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC")), "id": [1]})
    stream = plait.stream(table, event_time="ts").enrich(TABLE, on="id")
    assert repr(stream._time) == 'col("ts")'
