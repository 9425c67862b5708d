"""Dead letters of a run: how many are left out, and records that can be read again."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import plait
from plait.execution.progress import format_result

if TYPE_CHECKING:
    from collections.abc import Callable

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
