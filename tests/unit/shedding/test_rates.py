"""Rates estimated from looks at a source, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from plait.protocol.rates import Sample, SourceRate
from plait.shedding.lines import Fit, last_slope, noise
from plait.shedding.rates import (
    Estimator,
    RecordsPerOffset,
    by_lag_metrics,
    chained,
    due_rate,
    scaled,
    summed,
)


def look(found: Estimator, at: float, end: float, position: float = 0.0) -> None:
    found.add(Sample(at=at, position=position, end=end))


def every_tenth(found: Estimator, first: int, last: int, level: float, per_s: float) -> float:
    """Looks at a steady rate, ten a second; gives the level after the last."""
    for tick in range(first, last):
        level += per_s / 10.0
        look(found, tick / 10.0, level)
    return level


def test_nothing_is_known_before_the_first_look() -> None:
    assert Estimator().rate(5.0) == SourceRate(per_s=0.0, lag=None, lag_s=None, trust=0.0)


def test_one_look_gives_the_lag_and_no_rate() -> None:
    found = Estimator()
    look(found, 1.0, 500.0, 200.0)
    known = found.rate(1.0)
    assert (known.per_s, known.lag, known.trust) == (0.0, 300.0, 0.0)


def test_a_steady_rate_is_exact() -> None:
    found = Estimator()
    for second in range(6):
        look(found, float(second), 100.0 * second, 70.0 * second)
    known = found.rate(5.0)
    assert known.per_s == pytest.approx(100.0)
    assert known.lag == 150.0  # 500 there, 350 read
    assert known.lag_s == pytest.approx(1.5)  # record 350 came after 3.5 s
    assert known.trust == 1.0


def test_a_step_is_seen_in_two_looks() -> None:
    found = Estimator()
    level = every_tenth(found, 0, 31, 0.0, 1000.0)
    assert found.rate(3.0).per_s == pytest.approx(1000.0)
    every_tenth(found, 31, 33, level, 2000.0)
    assert found.rate(3.2).per_s == pytest.approx(2000.0)


def test_a_step_down_is_seen_in_two_looks() -> None:
    found = Estimator()
    level = every_tenth(found, 0, 31, 0.0, 1000.0)
    every_tenth(found, 31, 33, level, 500.0)
    assert found.rate(3.2).per_s == pytest.approx(500.0)


def test_one_look_off_the_line_changes_little() -> None:
    """A late look is no step: the one after it is on the line again."""
    found = Estimator()
    every_tenth(found, 0, 31, 0.0, 1000.0)
    look(found, 3.1, 3160.0)
    look(found, 3.2, 3300.0)
    assert found.rate(3.2).per_s == pytest.approx(1000.0, rel=0.02)
    assert len(found.points) > 30


def test_a_ramp_is_followed() -> None:
    """level = 500 t + 50 t^2: the mean rate of the second before 4 s is 500 + 100 * 3.5."""
    found = Estimator()
    for tick in range(41):
        look(found, tick / 10, 500 * (tick / 10) + 50 * (tick / 10) ** 2)
    assert found.rate(4.0).per_s == pytest.approx(850.0)


def test_a_source_that_stops_has_no_rate() -> None:
    found = Estimator()
    level = every_tenth(found, 0, 31, 0.0, 1000.0)
    for tick in range(31, 36):
        look(found, tick / 10.0, level)
    assert found.rate(3.5).per_s == 0.0
    for second in range(4, 10):
        look(found, float(second), level)
    assert found.rate(9.0).per_s == 0.0
    assert found.rate(9.0).trust == 1.0


def test_a_partition_that_was_always_idle() -> None:
    found = Estimator()
    for second in range(5):
        look(found, float(second), 40.0, 40.0)
    assert found.rate(4.0) == SourceRate(per_s=0.0, lag=0.0, lag_s=0.0, trust=1.0)


def test_a_source_that_starts_again_after_a_pause() -> None:
    found = Estimator()
    level = every_tenth(found, 0, 31, 0.0, 1000.0)
    for tick in range(31, 61):
        look(found, tick / 10.0, level)
    every_tenth(found, 61, 66, level, 400.0)
    assert found.rate(6.5).per_s == pytest.approx(400.0)


def test_looks_that_are_missing_do_not_matter() -> None:
    found = Estimator()
    for second in (0.0, 0.5, 1.0, 3.5, 4.0):
        look(found, second, 200.0 * second)
    assert found.rate(4.0).per_s == pytest.approx(200.0)


def test_an_end_in_large_steps_has_a_longer_window() -> None:
    """A batch of 6,000 every 10 s is 600 a second, at any time between two batches."""
    found = Estimator()
    for second in range(51):
        look(found, float(second), 6000.0 * (second // 10))
    assert found.rate(50.0).per_s == pytest.approx(600.0)
    for second in range(51, 57):
        look(found, float(second), 30_000.0)
        assert found.rate(float(second)).per_s == pytest.approx(600.0)


def test_offsets_that_go_back_begin_anew() -> None:
    """A topic that was made anew, or a log that was cut."""
    found = Estimator()
    every_tenth(found, 0, 31, 5000.0, 1000.0)
    look(found, 3.1, 10.0)
    assert found.rate(3.1).per_s == 0.0
    assert found.rate(3.1).trust == 0.0
    look(found, 4.1, 60.0)
    assert found.rate(4.1).per_s == pytest.approx(50.0)


def test_offsets_that_jump_are_a_new_line() -> None:
    found = Estimator()
    level = every_tenth(found, 0, 31, 0.0, 1000.0)
    every_tenth(found, 31, 51, level + 1e6, 1000.0)
    every_tenth(found, 51, 90, level + 1e6 + 2000.0, 1000.0)
    assert found.rate(8.9).per_s == pytest.approx(1000.0)


def test_a_clock_that_stands_still() -> None:
    found = Estimator()
    for level in (10.0, 20.0, 30.0):
        look(found, 1.0, level)
    assert found.rate(1.0) == SourceRate(per_s=0.0, lag=30.0, lag_s=0.0, trust=0.0)
    look(found, 2.0, 80.0)
    assert found.rate(2.0).per_s == pytest.approx(50.0)


def test_a_clock_that_goes_back_begins_anew() -> None:
    found = Estimator()
    every_tenth(found, 0, 31, 0.0, 1000.0)
    look(found, 1.0, 9000.0)
    assert found.rate(1.0).trust == 0.0


def test_a_lag_from_before_the_first_look_is_counted_back_by_the_rate() -> None:
    """1,000 records were there at 0 s; at 100 a second the first of them came 10 s before."""
    found = Estimator()
    for second in range(5):
        look(found, float(second), 1000.0 + 100.0 * second)
    assert found.rate(4.0).lag == 1400.0
    assert found.rate(4.0).lag_s == pytest.approx(14.0)


def test_a_backlog_of_which_the_age_is_known() -> None:
    found = Estimator()
    found.add(Sample(at=1.0, position=0.0, end=10.0, oldest_s=7.0))
    assert found.rate(1.5).lag_s == pytest.approx(7.5)


def test_reading_goes_on_between_two_looks() -> None:
    found = Estimator()
    look(found, 1.0, 500.0, 100.0)
    found.read_to(450.0)
    assert found.rate(1.1).lag == 50.0
    found.read_to(900.0)  # the end is known from before
    assert found.rate(1.2).lag == 0.0


def test_a_source_that_cannot_tell_its_end_has_the_rate_of_what_is_read() -> None:
    found = Estimator()
    for second in range(4):
        found.add(Sample(at=float(second), position=30.0 * second))
    known = found.rate(3.0)
    assert known.per_s == pytest.approx(30.0)
    assert known.lag is None
    assert known.lag_s is None


def test_trust_goes_down_when_nothing_is_looked_at() -> None:
    found = Estimator()
    every_tenth(found, 0, 31, 0.0, 1000.0)
    assert [found.rate(3.0 + age).trust for age in (0.0, 1.5, 2.25, 3.0, 9.0)] == [
        1.0,
        1.0,
        0.5,
        0.0,
        0.0,
    ]


def test_records_for_each_offset() -> None:
    """Transactions of 9 records and a mark."""
    ratio = RecordsPerOffset()
    assert ratio.ratio == 1.0
    ratio.note(0.0, 0.0, 0.0)
    assert ratio.ratio == 1.0
    ratio.note(1.0, 1000.0, 900.0)
    assert ratio.ratio == 0.9
    ratio.note(2.0, 0.0, 0.0)  # it was opened anew
    ratio.note(3.0, 10.0, 10.0)
    assert ratio.ratio == 1.0


def test_records_for_each_offset_are_those_of_the_last_minute() -> None:
    ratio = RecordsPerOffset()
    ratio.note(0.0, 0.0, 0.0)
    for second in range(1, 200):
        records = 50.0 * min(second, 100) + 100.0 * max(second - 100, 0)
        ratio.note(float(second), 100.0 * second, records)
    assert ratio.ratio == 1.0


def test_a_topic_is_the_sum_of_its_partitions() -> None:
    one = SourceRate(per_s=100.0, lag=40.0, lag_s=0.4, trust=1.0)
    idle = SourceRate(per_s=0.0, lag=0.0, lag_s=0.0, trust=0.5)
    both = summed({"0": one, "1": idle})
    assert both == SourceRate(
        per_s=100.0, lag=40.0, lag_s=0.4, trust=0.5, partitions=(("0", one), ("1", idle))
    )
    assert scaled(one, 0.5) == SourceRate(per_s=50.0, lag=20.0, lag_s=0.4, trust=1.0)


def test_of_very_many_partitions_those_far_behind_are_kept() -> None:
    many = {str(n): SourceRate(per_s=1.0, lag=float(n), lag_s=0.0, trust=1.0) for n in range(500)}
    all_of_them = summed(many)
    assert all_of_them.per_s == 500.0
    assert len(all_of_them.partitions) == 64
    assert all_of_them.partitions[0][0] == "499"


def test_a_source_that_another_system_fills() -> None:
    spark = SourceRate(per_s=600.0, lag=2000.0, lag_s=3.0, trust=1.0)
    log = SourceRate(per_s=400.0, lag=100.0, lag_s=0.5, trust=1.0)
    known = chained(spark, log)
    assert (known.per_s, known.lag, known.lag_s) == (600.0, 2100.0, 3.0)
    unknown = chained(SourceRate(per_s=0.0, lag=None, lag_s=None, trust=0.0), log)
    assert (unknown.per_s, unknown.lag, unknown.trust) == (400.0, 100.0, 1.0)


def test_records_that_are_due_by_the_clock() -> None:
    assert due_rate(1000.0, 5000.0, 4500.0) == SourceRate(
        per_s=1000.0, lag=500.0, lag_s=0.5, trust=1.0
    )
    assert due_rate(1000.0, 5000.0, 5001.0).lag == 0.0


def test_the_estimate_from_lag_metrics() -> None:
    """Two partitions, one second: the fuller one gained 50, and 300 were consumed, 150 of each."""
    found = by_lag_metrics(
        lag_max_before=100.0,
        lag_max=150.0,
        seconds=1.0,
        consumed_per_s=300.0,
        assigned=2,
        partitions=2,
    )
    assert found == 400.0


def test_what_is_off_a_line_is_told_from_noise() -> None:
    straight = [(float(t), 3.0 * t + (1.0 if t % 2 else -1.0)) for t in range(20)]
    bent = [(float(t), 3.0 * t * t) for t in range(20)]
    assert noise(straight) > Fit.of(straight).deviation
    assert 20.0 * noise(bent) < Fit.of(bent).deviation


def test_the_slope_of_the_last_part() -> None:
    points = [(0.0, 0.0), (1.0, 10.0), (2.0, 40.0), (4.0, 60.0)]
    assert last_slope(points, 2.0) == 10.0
    assert last_slope(points, 3.0) == pytest.approx(50.0 / 3.0)
    assert last_slope(points, 2.5) == pytest.approx((60.0 - 25.0) / 2.5)
    assert last_slope(points, 99.0) == 15.0


def test_bursts_are_counted_by_the_second() -> None:
    """500 records in the first tenth of each second are 500 a second, give or take a tenth."""
    found = Estimator()
    for tick in range(80):
        look(found, tick / 10.0, 500.0 * ((tick + 9) // 10))
        if tick >= 40:
            assert found.rate(tick / 10.0).per_s == pytest.approx(500.0, rel=0.1)


def test_a_clock_that_began_long_ago_costs_no_digits() -> None:
    points = [(1e9 + t / 10, 1e12 + 5.0 * t) for t in range(30)]
    assert Fit.of(points).first == pytest.approx(50.0, rel=1e-5)


def test_a_rate_reads_well() -> None:
    rate = SourceRate(per_s=12.4, lag=3.0, lag_s=0.25, trust=0.2)
    assert str(rate) == "12/s come in, 3 behind (0.2 s), trust 0.2"
    assert str(SourceRate(per_s=1.0, lag=None, lag_s=None, trust=1.0)) == (
        "1/s come in, the lag is not known"
    )
    assert str(SourceRate(per_s=1.0, lag=5.0, lag_s=None, trust=1.0)) == "1/s come in, 5 behind"
