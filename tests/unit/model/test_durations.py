"""Durations in all their forms, and what is refused."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import JobError
from plait.model.durations import hours, microseconds, minutes, seconds, signed_microseconds


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("10s", 10_000_000),
        ("2m", 120_000_000),
        ("250ms", 250_000),
        ("7us", 7),
        ("1h", 3_600_000_000),
        ("1d", 86_400_000_000),
        ("1h30m", 5_400_000_000),
        (" 1.5 s ", 1_500_000),
        ("0.1s", 100_000),
        (datetime.timedelta(milliseconds=3), 3_000),
        (seconds(2), 2_000_000),
        (minutes(2), 120_000_000),
        (hours(1), 3_600_000_000),
    ],
)
def test_what_is_a_duration(given_: Any, expected: int) -> None:
    assert microseconds(given_) == expected


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (10, 'write "10s"'),
        (1.5, 'write "10s"'),
        (None, "not a duration"),
        ("10", "a number and a unit"),
        ("s", "a number and a unit"),
        ("-3s", "a number and a unit"),
        ("3 weeks", "a number and a unit"),
        ("\u0663s", "a number and a unit"),
        ("", "a number and a unit"),
        ("0s", "above zero"),
        (datetime.timedelta(0), "above zero"),
        (datetime.timedelta(seconds=-1), "above zero"),
        ("0.5us", "finer than a microsecond"),
        ("999999999999d", "too long"),
    ],
)
def test_what_is_not(given_: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        microseconds(given_)


@given(st.timedeltas())
def test_a_timedelta_is_exact(length: datetime.timedelta) -> None:
    assert datetime.timedelta(microseconds=signed_microseconds(length)) == length
