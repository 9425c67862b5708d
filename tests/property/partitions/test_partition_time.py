"""Sources with partitions: their time is the least of the partitions, on every entry point."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import plait
from plait.connectors.kafka.partition_clock import PartitionClock
from plait.testing import check
from tests.property.partitions.parted_feed import PartedFeed, Push

PARTITIONS = 3
ROWS = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 2), st.integers(0, 60)),
    min_size=1,
    max_size=8,
)
PUSHES = st.lists(ROWS, max_size=8)
WITH_IDLE = st.lists(ROWS | st.sets(st.integers(0, PARTITIONS - 1)), max_size=10)
SIZES = st.sampled_from(["3s", "10s"])
few = settings(max_examples=max(2, settings().max_examples // 4), deadline=None)


def windows(size: str) -> Any:
    return lambda rows: (
        rows.key_by("k").tumbling(size).aggregate(n=plait.count(), last=plait.last("part"))
    )


def windows_and_late(size: str) -> Any:
    def build(rows: Any) -> plait.Job:
        windows(size)(rows).sink(plait.Collect(), "out")
        rows.key_by("k").tumbling(size).late().sink(plait.Collect(), "late")
        job: plait.Job = rows.job
        return job

    return build


@given(pushes=WITH_IDLE, size=SIZES, out_of_order=st.sampled_from([None, "2s"]))
def test_the_engine_is_the_loop(pushes: list[Push], size: str, out_of_order: Any) -> None:
    feed = PartedFeed(PARTITIONS, pushes)
    check(windows_and_late(size), feed, workers=(1, 3), event_time="at", out_of_order=out_of_order)


@few
@given(pushes=PUSHES, size=SIZES)
def test_nodes_and_crashes(pushes: list[Push], size: str) -> None:
    feed = PartedFeed(PARTITIONS, pushes)
    check(windows(size), feed, workers=(2,), nodes=(2,), crash_at=4, event_time="at")


def in_turn(rows: list[tuple[int, int, int]], chance: Any) -> list[tuple[int, int, int]]:
    """Rows in any mixture of the partitions, those of one by their times."""
    left = {
        p: sorted((r for r in rows if r[0] == p), key=lambda r: r[2]) for p in range(PARTITIONS)
    }
    mixed = []
    while alive := [p for p, some in left.items() if some]:
        mixed.append(left[chance.choice(alive)].pop(0))
    return mixed


@given(rows=st.lists(ROWS, max_size=6), chance=st.randoms(use_true_random=False))
def test_no_row_is_late_if_every_partition_is_in_order(
    rows: list[list[tuple[int, int, int]]], chance: Any
) -> None:
    mixed = in_turn([row for some in rows for row in some], chance)
    feed = PartedFeed(PARTITIONS, [mixed[at : at + 4] for at in range(0, len(mixed), 4)])
    stream = plait.stream(feed, event_time="at")
    counted = stream.key_by("k").tumbling("10s").count().sink(plait.Collect(), "out")
    result = counted.run()
    found: Counter[tuple[int, int]] = Counter()
    for row in result.outputs["out"].to_pylist():
        found[row["k"], row["window_start"].minute * 60 + row["window_start"].second] += row[
            "count"
        ]
    assert found == Counter((key, at // 10 * 10) for _, key, at in mixed)
    assert result.account.late == 0


def test_the_column_of_the_clock_is_not_seen() -> None:
    feed = PartedFeed(2, [[(0, 1, 5), (1, 1, 3)]])
    stream = plait.stream(feed, event_time="at")
    assert list(stream.schema.names) == ["part", "k", "at"]
    assert [(row.part, row.k) for row in stream.collect()] == [(0, 1), (1, 1)]


def test_a_partition_that_lags_has_no_late_rows() -> None:
    ahead = [(0, 1, at) for at in range(0, 60, 5)]
    behind = [(1, 1, at) for at in range(0, 60, 5)]
    feed = PartedFeed(2, [ahead, behind])
    result = plait.stream(feed, event_time="at").key_by("k").tumbling("10s").count()
    assert [row.count for row in result.collect()] == [4] * 6
    clock = PartitionClock(range(2))
    clock.read([0] * 12, [row[2] for row in ahead])
    assert clock.now < 0  # nothing is known of the other
