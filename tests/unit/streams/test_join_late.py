"""What comes too late for a join, as a stream: `how="late"`."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait.testing import check, table

ROWS = (
    ("a", 1, "0s"),
    ("a", 2, "30s"),
    ("b", 3, "1s"),
    ("a", 4, "25s"),
    ("b", 5, "60s"),
    ("a", 6, "2s"),
)
LEFT = table("\n".join(["k | v | ts", *(f"{k} | {v} | {ts}" for k, v, ts in ROWS)]))
RIGHT = table("""
    k | w | ts
    a | 1 | 1s
    a | 2 | 29s
    b | 3 | 40s
    a | 4 | 50s
    b | 5 | 3s
    a | 6 | 61s
""")


@pytest.mark.parametrize(
    ("join", "late"),
    [
        ({"window": plait.Tumbling("10s")}, (3, 4, 6)),
        ({"between": ("-1s", "2s")}, (3, 4, 6)),
        ({"between": ("-1s", "20s")}, (3, 6)),
        ({"between": ("-1s", "60s")}, ()),
        ({"ttl": "5s"}, (3, 6)),
    ],
)
def test_left_records_that_come_too_late(join: dict[str, Any], late: tuple[int, ...]) -> None:
    """An epoch is a record of each side: before the last of the left ones the watermark is 50s."""

    def build(left: plait.Stream, right: plait.Stream) -> plait.Stream:
        return left.join(right, on="k", how="late", **join)

    lines = [f"{row[0]} | {row[1]} | {row[2]}" for row in ROWS if row[1] in late]
    right = table("\n".join(["k: str | v: int | ts: timestamp", *lines]))
    once: dict[str, Any] = {"event_time": "ts", "epoch_records": 1, "rescale_at": 2}
    check(build, (LEFT, RIGHT), expect=right, order="total", workers=(1, 2), nodes=(2,), **once)
    check(build, (LEFT, RIGHT), workers=(1, 2), nodes=(2,), **once)


def test_as_of() -> None:
    def build(left: plait.Stream, right: plait.Stream) -> plait.Stream:
        return left.join_as_of(right, on="k", how="late")

    check(build, (LEFT, RIGHT), event_time="ts", epoch_records=1, workers=(2,), nodes=(2,))


def test_without_time_nothing_is_late() -> None:
    left, right = (plait.stream(one, event_time="ts") for one in (LEFT, RIGHT))
    with pytest.raises(plait.JobError, match=r'join at .*how="late" needs window='):
        left.join(right, on="k", how="late")
