"""What a run looks like in text: the line while it goes, and the summary."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa

from plait.execution.progress import ProgressLine, format_result, result_facts
from plait.results.result import Account, DeadLetter, Latency, OperatorCounts, Result

RESULT = Result(
    job="carts",
    seconds=0.5,
    account=Account(read=1000, delivered=600, filtered=399, dead_lettered=1),
    operators=(
        OperatorCounts(
            number=1, name="filter", at="a.py:3", records_in=1000, records_out=601, filtered=399
        ),
        OperatorCounts(
            number=2, name="map", at="a.py:4", records_in=601, records_out=600, dead_lettered=1
        ),
    ),
    latency=Latency(p50_ms=0.25, p99_ms=1.5, p999_ms=2, max_ms=12.3456),
    outputs={"kept": pa.table({"n": list(range(600))}), "file": "out.csv", "nothing": None},
    dead_letters=(
        DeadLetter(
            operator="map", at="a.py:4", source="clicks", row=12, error="ValueError: no", record=5
        ),
    ),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_summary() -> None:
    lines = format_result(RESULT).splitlines()
    assert lines[:8] == [
        'job "carts": 1,000 read, 600 delivered, 399 filtered, 1 dead-lettered',
        "500 ms, 2,000 records/s",
        "latency: half below 0.25 ms, 99% below 1.5 ms, 99.9% below 2 ms, longest 12.3 ms",
        "",
        "operator  at         in  out  filtered  dead-lettered",
        "--------  ------  -----  ---  --------  -------------",
        "filter    a.py:3  1,000  601       399              0",
        "map       a.py:4    601  600         0              1",
    ]
    assert "... 580 more rows" in lines
    assert "file: out.csv" in lines
    assert lines[-3:] == [
        "1 dead letter:",
        "  map at a.py:4, record 12 of clicks: 5",
        "    ValueError: no",
    ]


def test_the_summary_of_little() -> None:
    result = Result(job="j", seconds=2, account=Account(read=3), operators=(), latency=Latency())
    assert format_result(result).splitlines() == [
        'job "j": 3 read, 0 delivered',
        "2 s, 2 records/s",
        "not accounted for: 3 records",
    ]


def test_the_facts_are_json() -> None:
    facts: dict[str, Any] = json.loads(json.dumps(result_facts(RESULT)))
    assert facts["account"]["difference"] == 0
    assert facts["outputs"] == {"kept": {"rows": 600}, "file": "out.csv", "nothing": None}
    assert facts["operators"][0]["filtered"] == 399
    assert facts["dead_letters"] == 1


def test_the_line_is_written_at_most_five_times_a_second() -> None:
    now = 0.0
    terminal = Terminal()
    line = ProgressLine(terminal, clock=lambda: now)
    line.update(1000, 500, 0.5)
    line.update(2000, 500, 0.6)
    assert terminal.getvalue() == "\r1,000 read, 500 delivered, 0.5 s, 2,000 records/s"
    now = 0.25
    line.update(7, 5, 0.0)
    assert terminal.getvalue().endswith("\r7 read, 5 delivered, 0.0 s".ljust(50))
    line.done()
    line.done()
    assert terminal.getvalue().endswith("\r")


def test_nothing_is_written_where_nobody_looks() -> None:
    file = io.StringIO()
    line = ProgressLine(file)
    line.update(1, 1, 1.0)
    line.done()
    assert file.getvalue() == ""
