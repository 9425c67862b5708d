"""Sums of integers that int64 cannot hold: an error of the record whose value does not fit, by the
operator's policy; where sums are added to each other, one of the job."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col
from plait.testing import check

if TYPE_CHECKING:
    from collections.abc import Callable

    EntryPoint = Callable[..., plait.Result]

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
SETTINGS: dict[str, Any] = {"epoch_records": 4, "bin_bits": 4}
HALF = 2**62
VALUES = [5] * 8 + [HALF, 7, HALF - 30, 8, 40, 9, -50, 1, 3, 2]
"""Of two keys in turn: the 13th value is one too many for the first key, the next ones are not."""
TOO_MUCH = 12
SUMS: dict[str, Any] = {
    "running": lambda s, **how: s.key_by("k").sum("v", **how),
    "running beside others": lambda s, **how: s.key_by("k").aggregate(
        total=plait.sum("v"),
        low=plait.min("v"),
        n=plait.count(),
        last=plait.last("name"),
        twice=plait.sum(col("k") * 2),
        **how,
    ),
    "by text": lambda s, **how: s.key_by("name").aggregate(
        total=plait.sum("v"), mean=plait.mean("v"), **how
    ),
    "of nulls": lambda s, **how: (
        s.with_columns(v=plait.when(col("v") != 9).then(col("v")).otherwise(None))
        .key_by("k")
        .sum("v", **how)
    ),
    "of all": lambda s, **how: s.sum("v", **how),
    "forgotten keys": lambda s, **how: s.key_by("k", ttl="1h").sum("v", **how),
    "tumbling": lambda s, **how: s.key_by("k").tumbling("1m").sum("v", **how),
    "early": lambda s, **how: (
        s.key_by("k").window(plait.Tumbling("1m"), early="2s").sum("v", **how)
    ),
    "a pane": lambda s, **how: s.key_by("k").sliding("2m", every="1m").sum("v", **how),
    "carried": lambda s, **how: (
        s.with_columns(
            window_start=plait.lit(START), window_end=plait.lit(START + plait.minutes(1))
        )
        .key_by("k")
        .by_window()
        .sum("v", **how)
    ),
    "session": lambda s, **how: s.key_by("k").session(gap="10s").sum("v", **how),
    "rows": lambda s, **how: s.key_by("k").rows(7).sum("v", **how),
    "rows that hop": lambda s, **how: s.key_by("k").rows(8, every=3).sum("v", **how),
    "last_n": lambda s, **how: s.key_by("k").last_n(5).sum("v", **how),
    "spans": lambda s, **how: spans(s).aggregate(total=plait.sum("v"), n=plait.count(), **how),
    "spans that came before": lambda s, **how: spans(s, late=True).aggregate(
        total=plait.sum("v"), **how
    ),
}
DIFFERENT = {"of all", "spans that came before"}
"""The record that fails is another one than the 13th."""


def spans(stream: Any, late: bool = False) -> Any:
    """A span over all records of a key, which comes before them or after them."""
    at = stream.filter(col("v") == 3 if late else col("ts") < START + plait.seconds(2))
    minute = plait.minutes(1)
    left = at.select("k", "ts", since=col("ts") - minute, until=col("ts") + minute)
    right = stream.select("k", "v", "ts")
    return left.join(right, on="k", between=(col("since"), col("until")), wait="5m")


def given() -> plait.Items:
    return plait.Items(
        [
            {"k": i % 2, "name": f"n{i % 2}", "v": v, "ts": START + datetime.timedelta(seconds=i)}
            for i, v in enumerate(VALUES)
        ]
    )


def job_of(make: Any, **how: Any) -> plait.Job:
    job = plait.Job("sums")
    make(job.source(given(), event_time="ts"), **how).sink(plait.Collect())
    return job


@pytest.mark.parametrize("name", SUMS)
def test_the_record_that_does_not_fit_is_named(entry_point: EntryPoint, name: str) -> None:
    match = r"a sum does not fit int64: \d+ \+ \d+; .*wrap=True"
    with pytest.raises(plait.RecordError, match=match) as raised:
        entry_point(job_of(SUMS[name]), **SETTINGS)
    assert raised.value.at.startswith("test_sum_overflow.py:")
    if name not in DIFFERENT:
        assert raised.value.row == TOO_MUCH + 1


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
@pytest.mark.parametrize("name", SUMS)
def test_each_policy_as_in_the_plain_loop(name: str, policy: str) -> None:
    raises = plait.RecordError if policy == "fail" else None
    check(
        lambda s: SUMS[name](s, on_error=policy),
        given(),
        event_time="ts",
        raises=raises,
        nodes=(1, 2),
        **SETTINGS,
    )


@pytest.mark.parametrize("name", SUMS)
def test_the_letter_has_the_record(entry_point: EntryPoint, name: str) -> None:
    result = entry_point(job_of(SUMS[name], on_error="dead_letter"), **SETTINGS)
    letters = result.dead_letters
    assert letters
    assert all("a sum does not fit int64" in letter.error for letter in letters)
    if name not in DIFFERENT:
        assert [letter.row for letter in letters] == [TOO_MUCH + 1]


def test_what_a_letter_holds() -> None:
    result = plait.run(job_of(SUMS["running"], on_error="dead_letter"), epoch_records=4)
    (letter,) = result.dead_letters
    assert (letter.record.k, letter.record.name, letter.record.v) == (0, "n0", 40)


def test_all_before_it_is_delivered_and_nothing_after() -> None:
    seen: list[int] = []
    job = plait.Job("sums")
    totals = job.source(given(), event_time="ts").key_by("k").sum("v")
    totals.sink(plait.Call(lambda record: seen.append(record.sum)))
    with pytest.raises(plait.RecordError, match=r"sum at test_sum_overflow\.py") as raised:
        plait.run(job, workers=2, epoch_records=16)
    assert seen == [5, 5, 10, 10, 15, 15, 20, 20, 20 + HALF, 27, 2 * HALF - 10, 35]
    assert raised.value.record.v == 40


def test_sums_that_are_added_to_each_other(entry_point: EntryPoint) -> None:
    """No record is to blame: the job ends, whatever the policy."""
    panes = job_of(lambda s: s.key_by("k").sliding("1m", every="1s").sum("v", on_error="skip"))
    with pytest.raises(plait.RecordError, match="a sum does not fit int64") as raised:
        entry_point(panes, **SETTINGS)
    assert raised.value.row is None or raised.value.row <= 0


def test_sessions_that_become_one() -> None:
    def session(*values: tuple[int, int], **how: Any) -> list[int]:
        records = [{"ts": START + plait.seconds(s), "v": v} for s, v in values]
        stream = plait.stream(plait.Items(records), event_time="ts", out_of_order="1m")
        return [r.sum for r in stream.session(gap="3s").sum("v", **how).collect()]

    with pytest.raises(plait.RecordError, match="a sum does not fit int64"):
        session((0, HALF), (4, HALF), (2, 1), on_error="skip")
    # What they have together fits, but not with the record that would join them: it fails.
    assert session((0, HALF), (4, HALF - 1), (2, 1), on_error="skip") == [HALF, HALF - 1]
    assert session((0, HALF), (4, HALF - 1), (2, 0), on_error="skip") == [2 * HALF - 1]


def test_sums_that_wrap_or_are_floats() -> None:
    stream = plait.stream([{"v": HALF}, {"v": HALF}])
    wrapped = [record.sum for record in stream.sum("v", wrap=True).collect()]
    assert wrapped == [HALF, -(2**63)]
    floats = stream.aggregate(total=plait.sum(col("v").cast("float64")))
    assert [record.total for record in floats.collect()] == [2.0**62, 2.0**63]
