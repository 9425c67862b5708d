"""Hashes, thresholds and ratios: golden values, the same as in tests/native (sample_hash_test)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import JobError
from plait.protocol.keeps import KEEP_ALL, ratio_of
from plait.shedding.plan import (
    SEED,
    is_kept,
    key_sample,
    mix64,
    most,
    row_sample,
    threshold,
    thresholds,
)

RATIOS = st.floats(min_value=0, max_value=1)
HASHES = st.integers(min_value=0, max_value=2**64 - 1)


def test_hashes_never_change() -> None:
    assert [mix64(x) for x in (0, 1, 2**64 - 1)] == [0, 0x5692161D100B05E5, 0xB4D055FCF2CBBD7B]
    rows = ((0, 0), (0, 1), (3, 7), (0, 2**40))
    assert [row_sample(SEED, source, row) for source, row in rows] == [
        0x48218226FF3CD4BF,
        0xA706DD2F4D197E6F,
        0xC463CA3EA7AB6C71,
        0xAD65DFF703DED179,
    ]
    keys = (0, 1, 2**64 - 1, 0x9E3779B97F4A7C15)
    assert [key_sample(SEED, key) for key in keys] == [
        0x6DF11A8F5B3E8EFB,
        0x73496E0B867E5E82,
        0xA3F92D1F62C13FDF,
        0x71E253287DFDF336,
    ]


def test_thresholds_of_ratios() -> None:
    assert [threshold(a) for a in (0, 1 / 256, 0.5, 1)] == [0, 2**56, 2**63, KEEP_ALL]
    assert threshold(0.9999999999999999) < KEEP_ALL
    assert ratio_of(threshold(1 / 256)) == 1 / 256


@pytest.mark.parametrize("ratio", [-0.1, 1.5, float("nan")])
def test_no_ratio(ratio: float) -> None:
    with pytest.raises(JobError, match="from 0 to 1"):
        threshold(ratio)


@given(RATIOS, RATIOS, HASHES)
def test_a_lower_sample_is_part_of_a_higher_one(one: float, other: float, sample: int) -> None:
    low, high = sorted((one, other))
    assert is_kept(sample, threshold(high)) or not is_kept(sample, threshold(low))


@given(HASHES)
def test_all_and_none(sample: int) -> None:
    assert is_kept(sample, threshold(1))
    assert not is_kept(sample, threshold(0))


def test_nothing_shed_is_no_plan() -> None:
    assert thresholds({}, 3) == thresholds({1: 1.0}, 3) == ()
    assert thresholds({1: 0.5}, 3) == (KEEP_ALL, 2**63, KEEP_ALL)


def test_a_sample_for_several_queries_is_that_of_the_greediest() -> None:
    keep = thresholds({0: 0.25, 1: 0.5}, 3)
    assert most(keep, (0,)) == 2**62
    assert most(keep, (0, 1)) == 2**63
    assert most(keep, (0, 1, 2)) == most((), (0,)) == KEEP_ALL
    assert most(keep, ()) == 0


def test_the_share_that_is_kept_is_that_of_the_ratio() -> None:
    """Within five deviations, for rows of two sources and for keys in a sequence."""
    n = 20_000
    for ratio in (0.01, 0.5, 0.9):
        below = threshold(ratio)
        five = 5 * (n * ratio * (1 - ratio)) ** 0.5
        for source in (0, 1):
            kept = sum(is_kept(row_sample(SEED, source, row), below) for row in range(n))
            assert abs(kept - n * ratio) < five
        kept = sum(is_kept(key_sample(SEED, key), below) for key in range(n))
        assert abs(kept - n * ratio) < five


def test_keys_are_shed_in_all_bins_alike() -> None:
    """Bins are the high bits of the canonical hash: mixed again, every bin loses its share."""
    bins, each = 16, 1000
    below = threshold(0.5)
    for bin in range(bins):
        hashes = [(bin << 60) | (number * 0x9E3779B97F4A7C15 % 2**60) for number in range(each)]
        kept = sum(is_kept(key_sample(SEED, one), below) for one in hashes)
        assert abs(kept - each / 2) < 5 * (each / 4) ** 0.5
