"""Sinks in memory, and tables as text."""

from __future__ import annotations

import datetime
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.connectors import memory_sinks
from plait.connectors.columns import to_batch
from plait.connectors.memory_sinks import Call, Collect, Discard, Print
from plait.errors import JobError, SinkError
from plait.model.schema import Schema
from plait.text.tables import format_table, shorten, small_table, width

SCHEMA = Schema.of({"n": int, "o": object})


def batch(*numbers: int) -> Any:
    return to_batch([(n, {"x": n}) for n in numbers], SCHEMA)


def test_collect_keeps_all_in_order() -> None:
    writer = Collect().open(SCHEMA)
    writer.write(batch(1, 2))
    assert not writer.full
    writer.write(batch(3))
    table = writer.close()
    assert table.schema == SCHEMA.to_arrow()
    assert table.column("n").to_pylist() == [1, 2, 3]
    assert writer.abort().equals(table)


def test_collect_keeps_few_batches_of_many_small_ones() -> None:
    writer = Collect().open(SCHEMA)
    for n in range(2_000):
        writer.write(batch(n))
    table = writer.close()
    assert table.column("n").to_pylist() == list(range(2_000))
    assert table.column("n").num_chunks < 300


def test_collect_does_not_copy_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_sinks, "COPIED_BYTES", 100)
    writer = Collect().open(SCHEMA)
    for n in range(300):
        writer.write(batch(n))
    assert writer.close().column("n").num_chunks == 300


def test_collect_stops_at_its_limit() -> None:
    writer = Collect(limit=3).open(SCHEMA)
    for numbers in ((1, 2), (3, 4), (5,)):
        writer.write(batch(*numbers))
    assert writer.full
    assert writer.close().column("n").to_pylist() == [1, 2, 3]
    assert Collect().open(SCHEMA).close().num_rows == 0


def test_discard_counts() -> None:
    writer = Discard().open(SCHEMA)
    writer.write(batch(1, 2))
    assert writer.close() == 2


def test_call_gets_records_or_batches() -> None:
    seen: list[Any] = []
    writer = Call(seen.append).open(SCHEMA)
    writer.write(batch(1, 2))
    assert [(record.n, record.o) for record in seen] == [(1, {"x": 1}), (2, {"x": 2})]
    assert writer.close() == 2
    writer = Call(seen.append, each="batch").open(SCHEMA)
    writer.write(batch(3))
    assert seen[-1].num_rows == 1


def test_a_function_that_raises_is_named() -> None:
    def picky(record: Any) -> None:
        if record.n == 2:
            raise ValueError("two")

    writer = Call(picky).open(SCHEMA)
    with pytest.raises(SinkError, match="picky raised ValueError at record 2: two") as caught:
        writer.write(batch(1, 2, 3))
    assert isinstance(caught.value.__cause__, ValueError)
    assert writer.abort() == 1


@pytest.mark.parametrize("make", [lambda: Call(5), lambda: Call(print, "row"), lambda: Print(-1)])  # type: ignore[arg-type]
def test_wrong_arguments(make: Any) -> None:
    with pytest.raises(JobError):
        make()


def test_print_as_rows_come() -> None:
    out = io.StringIO()
    writer = Print(n=3, file=out).open(SCHEMA)
    writer.write(batch(1, 2))
    assert out.getvalue().splitlines() == [
        "    n  o",
        "int64  object",
        "-----  --------",
        "    1  {'x': 1}",
        "    2  {'x': 2}",
    ]
    writer.write(batch(3, 4))
    writer.write(batch(5))
    assert writer.close() == 5
    assert out.getvalue().splitlines()[5:] == ["    3  {'x': 3}", "... 2 more rows"]


def test_print_of_nothing_has_a_header() -> None:
    out = io.StringIO()
    assert Print(file=out).open(SCHEMA).close() == 0
    assert out.getvalue().startswith("    n  o\n")


def test_a_table_as_text() -> None:
    table = pa.table(
        {
            "name": ["ann", None, "日本", "x" * 50],
            "price": [1.5, None, -20.25, 0.0],
            "ts": [datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)] * 4,
            "ok": [True, False, None, True],
            "list": [[1], None, [2, 3], []],
        }
    )
    table = table.set_column(2, "ts", table.column("ts").cast(pa.timestamp("us", "UTC")))
    assert format_table(table.slice(0, 3), 2).splitlines() == [
        "name        price  ts                    ok     list",
        "string?  float64?  timestamp?            bool?  object?",
        "-------  --------  --------------------  -----  -------",
        "ann           1.5  2024-05-01 12:00:00Z  true   [1]",
        "null         null  2024-05-01 12:00:00Z  false  null",
        "... 1 more row",
    ]
    text = format_table(table, None)
    assert "日本  " in text
    assert "x" * 37 + "..." in text
    assert "more row" not in text


def test_many_more_rows() -> None:
    text = format_table(pa.table({"n": list(range(1000))}), 10)
    assert text.splitlines()[-1] == "... 990 more rows"
    assert len(text.splitlines()) == 14


def test_object_columns_are_shown_with_their_schema() -> None:
    assert "{'x': 1}" in format_table(pa.Table.from_batches([batch(1)]), 5, SCHEMA)


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_every_line_is_one_line_and_aligned(texts: list[str]) -> None:
    texts = [text.encode(errors="replace").decode() for text in texts]
    lines = format_table(pa.table({"a": texts, "n": [7] * len(texts)})).split("\n")
    assert len(lines) == 3 + len(texts)
    assert all(line.isprintable() or "\u200d" in line for line in lines)
    assert len({width(line) for line in lines}) == 1


@given(st.text(), st.integers(3, 20))
def test_shortened_is_no_wider_than_asked(text: str, most: int) -> None:
    short = shorten(text, most)
    assert width(short) <= most
    assert short == text or short.endswith("...")


def test_wide_and_combining_characters() -> None:
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert small_table(["a", "b"], [["日", "1"], ["x", "22"]], [False, True]).splitlines() == [
        "a    b",
        "--  --",
        "日   1",
        "x   22",
    ]
