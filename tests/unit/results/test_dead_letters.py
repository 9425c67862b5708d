"""Dead letters of a run: how many are left out, and records that can be read again."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.execution.progress import format_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MORE = 12_345


@dataclass
class Order:
    number: int
    name: str | None
    at: plait.Timestamp
    weight: float
    raw: bytes


def refuse(record: Any) -> Any:
    raise ValueError("no")


def test_those_that_are_left_out_are_counted(entry_point: Callable[..., plait.Result]) -> None:
    stream = plait.stream([{"n": n} for n in range(MORE)]).map(refuse, on_error="dead_letter")
    result = entry_point(stream.sink(plait.Discard()).job)
    assert len(result.dead_letters) == 10_000
    assert result.dead_letters_left_out == MORE - 10_000
    assert "12,345 dead letters:" in format_result(result)
    assert "... 12,342 more" in format_result(result)


def test_a_record_can_be_fed_back(entry_point: Callable[..., plait.Result]) -> None:
    at = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)
    orders = [Order(n, None if n % 2 else "x", at, n / 3, bytes([n])) for n in range(20)]
    stream = plait.stream(orders).map(refuse, on_error="dead_letter")
    letters = entry_point(stream.sink(plait.Discard()).job).dead_letters
    records = [letter.record for letter in letters]
    assert records == orders
    again = plait.stream(records).sink(plait.Collect(), name="again")
    assert entry_point(again.job).outputs["again"].num_rows == 20
    assert plait.stream(records).collect() == orders


def test_records_without_a_class_as_well() -> None:
    rows = [{"n": 1, "s": "a"}, {"n": 2, "s": None}]
    stream = plait.stream(rows).map(refuse, on_error="dead_letter")
    letters = stream.sink(plait.Discard()).job.run().dead_letters
    again = plait.stream([letter.record for letter in letters])
    assert again.sink(plait.Collect(), name="again").run().outputs["again"].to_pylist() == rows


def failing(name: str = "fails") -> plait.Job:
    job = plait.Job(name, dead_letters=plait.Discard())
    lines = job.source([{"n": 1, "text": "a"}, {"n": 2, "text": "b"}])
    lines.map(refuse, on_error="dead_letter").sink(plait.Discard())
    return job


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_run_has_its_own_sink_for_them(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bad.{suffix}"
    failing().run(dead_letters=plait.Files(str(path)))
    letters = plait.stream(str(path)).collect()
    assert [json.loads(letter.json) for letter in letters] == [
        {"n": 1, "text": "a"},
        {"n": 2, "text": "b"},
    ]
    assert [letter.record for letter in letters] == [
        "Record(n=1, text='a')",
        "Record(n=2, text='b')",
    ]


def test_so_has_one_that_is_started() -> None:
    seen: list[int] = []
    sink = plait.Call(lambda letter: seen.append(letter.row))
    plait.start(failing(), dead_letters=sink).wait()
    plait.run(failing(), dead_letters=sink)
    assert seen == [1, 2, 1, 2]


def test_what_is_not_a_sink_is_refused() -> None:
    with pytest.raises(plait.JobError, match=r'write plait\.Files\("bad\.jsonl"\)'):
        plait.run(failing(), dead_letters="bad.jsonl")  # type: ignore[arg-type]


def test_letters_in_a_file_read_back_as_the_records_they_are(tmp_path: Path) -> None:
    at = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)
    orders = [Order(n, None if n % 2 else "é", at, n / 3, bytes([n])) for n in range(4)]
    letters, again = tmp_path / "bad.jsonl", tmp_path / "again.jsonl"
    stream = plait.stream(orders).map(refuse, on_error="dead_letter")
    stream.sink(plait.Discard()).run(dead_letters=plait.Files(str(letters)))
    lines = [letter.json for letter in plait.stream(str(letters)).collect()]
    again.write_text("\n".join(lines))
    assert plait.stream(plait.Files(str(again), schema=Order)).collect() == orders


def test_a_record_without_a_form_in_json() -> None:
    rows: list[Any] = []
    stream = plait.stream([{"n": object}]).map(refuse, on_error="dead_letter")
    sink = plait.Call(lambda letter: rows.append((letter.record, letter.json)))
    stream.sink(plait.Discard()).run(dead_letters=sink)
    assert rows == [("Record(n=<class 'object'>)", None)]
