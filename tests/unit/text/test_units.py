"""Numbers with their units, to the character."""

from __future__ import annotations

import doctest

import pytest

from plait.text import units
from plait.text.units import (
    bytes_text,
    count_text,
    countdown_text,
    millis_text,
    plural,
    rate_text,
    seconds_text,
)


def test_the_examples_hold() -> None:
    results = doctest.testmod(units)
    assert results.attempted
    assert not results.failed


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (9999, "9,999"),
        (9999.6, "10.0k"),
        (12_345, "12.3k"),
        (999_499, "999k"),
        (999_500, "1.00M"),
        (4.56e9, "4.56G"),
        (2e15, "2,000T"),
    ],
)
def test_counts(number: float, text: str) -> None:
    assert count_text(number) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (1500, "1.50 kB"),
        (123_456, "123 kB"),
        (999_600, "1.00 MB"),
        (2.5e9, "2.50 GB"),
        (1.5e13, "15.0 TB"),
    ],
)
def test_bytes(size: float, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0000123, "0.0123 ms"),
        (0.25, "250 ms"),
        (0.9999, "1 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 m 00 s"),
        (7260, "2 h 01 m"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_time_that_is_left_is_rounded_up() -> None:
    left = [countdown_text(seconds) for seconds in (0.2, 59.1, 130, 7260)]
    assert left == ["1 s", "1 m 00 s", "2 m 10 s", "2 h 01 m"]


def test_milliseconds_rates_and_plurals() -> None:
    figures = [millis_text(number) for number in (0, 0.004, 9.999, 99.96, 1234)]
    assert figures == ["-", "0.00", "10.0", "100", "1,234"]
    assert rate_text(1234.5) == "1,234 records/s"
    assert plural(0, "bin") == "0 bins"
