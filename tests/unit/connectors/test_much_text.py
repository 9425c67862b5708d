"""Units with much text: sources cut them, and where an operator makes too much of one the job ends
with words. No good record fails, and nothing wraps around. The limit is lowered for that."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.connectors import files_reader
from plait.node_runtime.functions import calls
from plait.node_runtime.native import _engine, _records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    EntryPoint = Callable[..., plait.Result]

LIMIT = 8000
"""Bytes of text in a column of a unit; sources put 1001 into one."""
ROWS = 100
TEXT = "x" * 90


@pytest.fixture(autouse=True)
def _little_room() -> Iterator[None]:
    _engine.limit_text(LIMIT)
    _records.limit_text(LIMIT)
    yield
    _engine.limit_text()
    _records.limit_text()


def table() -> pa.Table:
    return pa.table({"n": list(range(ROWS)), "s": [TEXT] * ROWS})


def test_units_of_a_table_are_cut() -> None:
    stream = plait.stream(plait.Table(table())).select("n", t=col("s") + "!")
    result = stream.sink(plait.Collect(), name="out").run(workers=2)
    assert result.outputs["out"].column("n").to_pylist() == list(range(ROWS))
    assert max(next(iter(result.cuts.values()))) == 11


def test_a_row_that_is_larger_is_a_unit_of_its_own() -> None:
    texts = ["a", "b" * 5000, "c"]
    result = plait.stream(pa.table({"s": texts})).sink(plait.Collect(), name="out").run()
    assert result.outputs["out"].column("s").to_pylist() == texts
    assert next(iter(result.cuts.values()))[:3] == (1, 1, 1)


def test_units_of_a_file_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "much.parquet"
    pq.write_table(table(), path)
    monkeypatch.setattr(files_reader, "UNIT_BYTES", 1000)
    result = plait.stream(str(path)).sink(plait.Collect(), name="out").run()
    assert result.outputs["out"].column("n").to_pylist() == list(range(ROWS))
    assert max(next(iter(result.cuts.values()))) < 20


START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def given() -> plait.Items:
    """Units of 20 records that fit; the first record is a long one."""
    texts = [TEXT * 20] + [TEXT] * (ROWS - 1)
    return plait.Items([{"n": n, "s": text, "ts": START} for n, text in enumerate(texts)])


def many(record: Any) -> list[Any]:
    return [record] * 20


def longer(record: Any) -> Any:
    return {"n": record.n, "s": record.s * 10, "ts": record.ts}


def many_rows(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table] * 20)


PYTHON: dict[str, Any] = {
    "flat_map": lambda s: s.flat_map(many, on_error="skip"),
    "map": lambda s: s.map(longer, on_error="skip"),
    "map_batches": lambda s: s.map_batches(many_rows, on_error="skip"),
}
NATIVE: dict[str, Any] = {
    "an expression": lambda s: s.with_columns(s=plait.concat(*[col("s")] * 5), on_error="skip"),
    "a running result": lambda s: s.first("s", on_error="skip"),
    "windows that end together": lambda s: (
        s.key_by("n").tumbling("1h").aggregate(last=plait.last("s"), on_error="skip")
    ),
}


WORDS = r"more than 2 GiB in (a|one) unit; .*epoch_records="


def job_of(make: Any) -> plait.Job:
    job = plait.Job("much")
    make(job.source(given(), event_time="ts")).sink(plait.Collect())
    return job


@pytest.mark.parametrize("name", NATIVE)
def test_an_operator_that_makes_too_much_ends_the_job(entry_point: EntryPoint, name: str) -> None:
    with pytest.raises(plait.JobError, match=WORDS):
        entry_point(job_of(NATIVE[name]), epoch_records=20)


@pytest.mark.parametrize("name", PYTHON)
@pytest.mark.parametrize("workers", [1, 2])
def test_so_does_a_function(monkeypatch: pytest.MonkeyPatch, name: str, workers: int) -> None:
    monkeypatch.setattr(calls, "MOST_TEXT", LIMIT)
    with pytest.raises(plait.JobError, match=WORDS):
        plait.run(job_of(PYTHON[name]), epoch_records=20, workers=workers)


@pytest.mark.parametrize("name", PYTHON | NATIVE)
def test_smaller_units_help(name: str) -> None:
    job = plait.Job("much")
    made = (PYTHON | NATIVE)[name](job.source(given(), event_time="ts").filter(col("n") > 20))
    made.sink(plait.Collect(), name="out")
    result = job.run(epoch_records=3)
    assert result.account.skipped == 0
    assert result.outputs["out"].num_rows >= ROWS - 21


def items(texts: list[str]) -> plait.Items:
    return plait.Items([{"n": n, "s": text} for n, text in enumerate(texts)])


@pytest.mark.parametrize("workers", [1, 3])
def test_records_with_too_much_text_for_a_unit_are_given_in_several(workers: int) -> None:
    """A poll of the default size has more text than the column of a unit holds."""
    texts = ["y" * (n * 7919 % 3000) for n in range(ROWS)]
    assert sum(map(len, texts)) > 10 * LIMIT
    result = plait.stream(items(texts)).sink(plait.Collect(), name="out").run(workers=workers)
    assert result.outputs["out"].column("s").to_pylist() == texts
    assert result.outputs["out"].column("n").to_pylist() == list(range(ROWS))
    assert len(next(iter(result.cuts.values()))) > 10


def test_checkpoints_are_of_what_was_given(tmp_path: Path) -> None:
    """What waits for its unit is not yet read for a checkpoint."""
    texts = [TEXT * 5] * ROWS
    folder = plait.Checkpoint(str(tmp_path / "saved"), every="1ms", max_age="1h")
    job = plait.Job("text")
    job.source(items(texts), "items").map(slow, schema={"n": int}).sink(
        plait.Files(tmp_path / "out.jsonl"), name="file"
    )
    with pytest.raises(plait.TimedOut):
        job.run(checkpoint=folder, timeout=0.3)
    job.run(checkpoint=folder)
    found = [row.n for row in plait.stream(str(tmp_path / "out.jsonl")).collect()]
    assert found == list(range(ROWS))


def slow(record: Any) -> dict[str, int]:
    time.sleep(0.005)
    return {"n": record.n}


def test_bad_records_among_too_much_text() -> None:
    """The rows before the bad one are delivered."""
    given: list[Any] = [{"n": n, "s": TEXT * 5} for n in range(ROWS)]
    given[60]["n"] = "sixty"
    stream = plait.stream(plait.Items(given, schema={"n": int, "s": str}))
    out: list[int] = []
    with pytest.raises(plait.SourceError, match="record 61"):
        stream.sink(plait.Call(lambda record: out.append(record.n))).run()
    assert out == list(range(60))
