"""Joins whose key is the event time itself: every kind of join, and the event time of its pairs."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait import col
from plait.testing import check, table

LEFT = table("""
    ts | a
    0s | 0
    1s | 1
    2s | 2
    3s | 3
    4s | 4
    9s | 9
""")
RIGHT = table("""
    ts | b
    0s | 10
    1s | 11
    1s | 12
    4s | 13
    9s | 14
""")
WITHIN: dict[str, dict[str, Any]] = {
    "unbounded": {},
    "ttl": {"ttl": "2s"},
    "between": {"between": ("-1s", "2s")},
    "window": {"window": plait.Tumbling("2s")},
}
PAIRS = [(0, 10), (1, 11), (1, 12), (4, 13), (9, 14)]


def run_job(build: Any, expect: Any = None) -> None:
    """The engine on threads and nodes against the plain loop."""
    check(
        build, (LEFT, RIGHT), expect=expect, workers=(1, 2), nodes=(2,), event_time="ts",
        epoch_records=2,
    )  # fmt: skip


def joined_rows(stream: plait.Stream) -> list[tuple[int, int | None]]:
    return sorted((pair.a, pair.b) for pair in stream.collect())


def both() -> tuple[plait.Stream, plait.Stream]:
    job = plait.Job("on-time")
    return job.source(LEFT, event_time="ts"), job.source(RIGHT, event_time="ts")


@pytest.mark.parametrize("within", WITHIN.values(), ids=WITHIN)
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_every_join_takes_the_event_time_as_its_key(how: Any, within: dict[str, Any]) -> None:
    run_job(lambda left, right: left.join(right, on="ts", how=how, **within))


@pytest.mark.parametrize("within", WITHIN.values(), ids=WITHIN)
def test_pairs_have_equal_times_and_the_rest_nulls(within: dict[str, Any]) -> None:
    left, right = both()
    assert joined_rows(left.join(right, on="ts", **within)) == PAIRS
    rest = [(2, None), (3, None)]
    left, right = both()
    found = joined_rows(left.filter(col("a") < 9).join(right, on="ts", how="left", **within))
    assert found == sorted([*PAIRS[:4], *rest])
    assert left.join(right, on="ts", **within).schema.names == ("ts", "a", "b")


@pytest.mark.parametrize("how", ["left", "inner", "late"])
def test_a_join_as_of_takes_the_event_time_as_its_key(how: Any) -> None:
    run_job(lambda left, right: left.join_as_of(right, on="ts", how=how))


def test_the_right_time_may_have_another_name() -> None:
    def build(left: plait.Stream, right: plait.Stream) -> plait.Stream:
        return left.join(right.rename(at="ts"), on=("ts", "at"), between=("0s", "1s"), how="left")

    run_job(build)


def test_spans_take_the_event_time_as_their_key() -> None:
    def build(left: plait.Stream, right: plait.Stream) -> plait.Stream:
        left = left.with_columns(until=col("ts") + plait.seconds(1))
        return left.join(right, on="ts", between=(col("ts"), col("until"))).sum("b")

    run_job(build)


@pytest.mark.parametrize("within", WITHIN.values(), ids=WITHIN)
def test_the_event_time_of_a_pair_is_that_of_its_records(within: dict[str, Any]) -> None:
    """The window of a result shows its time."""

    def build(left: plait.Stream, right: plait.Stream) -> plait.Stream:
        pairs: plait.Stream = left.join(right, on="ts", **within)
        return pairs.tumbling("1s").max("b")

    run_job(
        build,
        table("""
        window_start | window_end | max
        0s           | 1s         | 10
        1s           | 2s         | 12
        4s           | 5s         | 13
        9s           | 10s        | 14
        """),
    )


@pytest.mark.parametrize("within", [{"ttl": "2s"}, {"between": ("-1s", "2s")}], ids=str)
def test_a_left_record_without_a_match_counts_when_that_is_known(within: dict[str, Any]) -> None:
    """2s and 3s have no match, which is known at 4s and 5s: with their own times they were late."""

    def build(left: plait.Stream, right: plait.Stream) -> plait.Stream:
        pairs: plait.Stream = left.join(right, on="ts", how="left", **within)
        return pairs.tumbling("1s").sum("a")

    run_job(
        build,
        table("""
        window_start | window_end | sum
        0s           | 1s         | 0
        1s           | 2s         | 2
        4s           | 5s         | 6
        5s           | 6s         | 3
        9s           | 10s        | 9
        """),
    )


def test_a_left_join_without_a_right_column_that_is_never_null_has_no_event_time() -> None:
    job = plait.Job("nulls")
    left = job.source(LEFT, event_time="ts")
    right = job.source(table("ts | b: int?\n0s | 1"), event_time="ts")
    pairs = left.join(right, on="ts", how="left", ttl="2s")
    with pytest.raises(plait.JobError, match=r"with_columns\(matched=True\)"):
        pairs.tumbling("1s").count()
    marked = right.with_columns(matched=True)
    left.join(marked, on="ts", how="left", ttl="2s").tumbling("1s").count()


def test_windows_are_joined_on_their_end() -> None:
    """The event time of a window's result is computed from its key."""

    def build(left: plait.Stream, right: plait.Stream) -> plait.Stream:
        a, b = left.tumbling("2s").sum("a"), right.tumbling("2s").sum("b")
        return a.join(b, on=["window_start", "window_end"], between=("0s", "0s"), how="left")

    run_job(build)
