"""Progress reports of Spark as samples; the reports are as Spark 4 gives them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from plait.connectors.spark.rates import Progress, offset_of


def report(*sources: dict[str, Any], rows: int, written: int, **more: Any) -> Any:
    offsets = {"startOffset": "None", "endOffset": "None", "latestOffset": "None"}
    facts = {
        "timestamp": "2026-01-01T00:00:10.500Z",
        "durationMs": {"latestOffset": 40, "addBatch": 300},
        "numInputRows": rows,
        "sink": SimpleNamespace(numOutputRows=written),
        "sources": [SimpleNamespace(**{**offsets, **each}) for each in sources],
    }
    return SimpleNamespace(**{**facts, **more})


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("12", 12.0),
        ('{"clicks": {"0": 7, "1": 5}, "views": {"0": 1}}', 13.0),
        ('{"logOffset": 3}', 3.0),
        ("None", None),
        ("null", None),
        ("{}", None),
        (None, None),
        ({"clicks": {"0": 2}}, 2.0),
        ('{"done": true}', None),
    ],
)
def test_an_offset_is_the_sum_of_its_numbers(text: Any, offset: float | None) -> None:
    assert offset_of(text) == offset


def test_a_report_of_a_source_with_offsets() -> None:
    given = report(
        {
            "startOffset": '{"c": {"0": 10, "1": 0}}',
            "endOffset": '{"c": {"0": 60, "1": 0}}',
            "latestOffset": '{"c": {"0": 90, "1": 20}}',
        },
        rows=50,
        written=25,
    )
    assert Progress.of(given) == Progress(
        at_s=1767225610.54, rows_in=50, rows_out=25, start=10.0, position=60.0, end=110.0
    )


def test_a_report_of_files_has_rows_only() -> None:
    given = report({"endOffset": '{"logOffset": 0}'}, rows=50, written=-1)
    found = Progress.of(given)
    assert (found.rows_in, found.rows_out, found.end) == (50, 50, None)


def test_one_source_without_offsets_leaves_no_end() -> None:
    given = report({"latestOffset": "5"}, {}, rows=1, written=1)
    assert Progress.of(given).end is None
    assert Progress.of(report(rows=0, written=0, sink=None)).rows_out == 0
