"""Joins of the plain loop on tables whose answers were worked out by hand.

One record of each side is one epoch, the left one first. Times are seconds since 1970.
"""

from __future__ import annotations

import pytest

from plait.graph.temporal import AsOf, Between, Grid
from plait.results.result import Account
from tests.unit.testing.timed_jobs import COUNT, S, agg, assert_rows, joined

LEFT = """
    k: string? | l | ts
    a          | 1 | 1s
    b          | 2 | 2s
    a          | 3 | 3s
    null       | 4 | 4s
    c          | 5 | 5s
    """
RIGHT = """
    k: string? | r | ts
    b          | 1 | 1s
    a          | 2 | 2s
    null       | 3 | 3s
    a          | 4 | 4s
    """
TUMBLING = Grid(size_us=10 * S, every_us=10 * S)
SLIDING = Grid(size_us=10 * S, every_us=5 * S)


def test_a_record_meets_what_came_before_it() -> None:
    result = joined(LEFT, RIGHT)
    assert_rows(
        result,
        """
        l_k | l_l | r_k | r_r
        b   | 2   | b   | 1
        a   | 1   | a   | 2
        a   | 3   | a   | 2
        a   | 1   | a   | 4
        a   | 3   | a   | 4
        """,
    )
    account = Account(read=9, delivered=5, made=5, absorbed=7, filtered=2)
    assert result.account == account


def test_a_left_record_comes_out_once() -> None:
    assert_rows(joined(LEFT, RIGHT, how="semi"), "l_k | l_l\nb | 2\na | 1\na | 3")


def test_left_records_without_a_match_come_at_the_end() -> None:
    result = joined(LEFT, RIGHT, how="anti")
    assert_rows(result, "l_k: string? | l_l\nnull | 4\nc | 5")
    assert result.account.filtered == 1
    result = joined(LEFT, RIGHT, how="left")
    assert_rows(
        result,
        """
        l_l | r_r
        2   | 1
        1   | 2
        3   | 2
        1   | 4
        3   | 4
        4   | null
        5   | null
        """,
    )


def test_records_are_dropped_behind_their_ttl() -> None:
    left = "k | l | ts\na | 1 | 1s\nx | 2 | 2s\nx | 3 | 5s\nx | 4 | 6s\na | 5 | 2s\na | 6 | 3s"
    right = "k | r | ts\ny | 1 | 1s\ny | 2 | 2s\ny | 3 | 5s\na | 4 | 6s\na | 5 | 1s\na | 6 | 7s"
    # The mark of the right record of 6s takes the watermark to 6s, the left source being there
    # already; with a ttl of 4s a record of 1s is over then, and one that comes is late. One of 2s
    # is met.
    result = joined(left, right, ttl_us=4 * S)
    assert_rows(result, "l_l | r_r\n5 | 4\n6 | 4\n5 | 6\n6 | 6")
    assert result.account.late == 1
    assert_rows(joined(left, right, ttl_us=3 * S), "l_l | r_r\n6 | 4\n6 | 6")
    assert joined(left, right, ttl_us=3 * S).account.late == 2
    anti = joined(left, right, ttl_us=4 * S, how="anti")
    assert_rows(anti, "l_l\n1\n2\n3\n4")
    left_join = joined(left, right, ttl_us=3 * S, how="left")
    assert_rows(
        left_join,
        """
        l_l | r_r
        1   | null
        2   | null
        6   | 4
        6   | 6
        3   | null
        4   | null
        """,
    )


def test_records_of_the_same_window() -> None:
    left = "k | l | ts\na | 1 | 1s\na | 2 | 12s\na | 3 | 8s\nb | 4 | 14s"
    right = "k | r | ts\na | 1 | 9s\na | 2 | 11s\na | 3 | 12s\na | 4 | 3s"
    result = joined(left, right, within=TUMBLING)
    # The watermark is 11s when the left record of 8s comes: it is late, as the right one of 3s.
    assert_rows(result, "l_l | r_r\n1 | 1\n2 | 2\n2 | 3")
    assert result.account.late == 2
    assert_rows(joined(left, right, within=TUMBLING, how="semi"), "l_l\n1\n2")
    assert_rows(joined(left, right, within=TUMBLING, how="anti"), "l_l\n4")


def test_a_pair_for_every_window_that_two_share() -> None:
    left = "k | l | ts\na | 1 | 6s\na | 2 | 11s"
    right = "k | r | ts\na | 1 | 7s\na | 2 | 2s"
    result = joined(left, right, within=SLIDING, epoch=2)
    # 6s and 7s share two windows, 6s and 2s one, 11s and 7s one, 11s and 2s none.
    assert_rows(result, "l_l | r_r\n1 | 1\n1 | 1\n2 | 1\n1 | 2")
    # Only windows that have not ended count: with 11s behind it, [0s, 10s) has.
    result = joined(
        "k | l | ts\na | 1 | 12s\na | 2 | 8s", "k | r | ts\na | 1 | 11s\na | 2 | 6s", within=SLIDING
    )
    assert_rows(result, "l_l | r_r\n1 | 1\n1 | 1\n2 | 1\n1 | 2\n2 | 2")
    semi = joined(left, right, within=SLIDING, epoch=2, how="semi")
    assert_rows(semi, "l_l\n1\n2")


def test_a_left_record_without_a_match_comes_when_its_last_window_ends() -> None:
    left = "k | l | ts\na | 1 | 6s\nb | 2 | 4s\nc | 3 | 16s\nd | 4 | 17s"
    right = "k | r | ts\nz | 1 | 6s\nz | 2 | 11s\nz | 3 | 15s\nz | 4 | 20s"
    result = joined(left, right, within=SLIDING, how="left")
    assert_rows(result, "l_l | r_r: int?\n2 | null\n1 | null\n3 | null\n4 | null")


def test_times_in_between() -> None:
    left = "k | l | ts\na | 1 | 10s\na | 2 | 13s\na | 3 | 20s\na | 4 | 14s"
    right = "k | r | ts\na | 1 | 8s\na | 2 | 12s\na | 3 | 15s\na | 4 | 20s"
    within = Between(low_us=-2 * S, high_us=5 * S)
    result = joined(left, right, within=within)
    # l 1 takes 8s to 15s; l 2 11s to 18s; l 3 18s to 25s; l 4 12s to 19s. With the left source at
    # 20s and the right one at 15s the watermark is 15s: l 4 meets what it can still meet.
    assert_rows(
        result,
        """
        l_l | r_r
        1   | 1
        1   | 2
        2   | 2
        1   | 3
        2   | 3
        4   | 3
        3   | 4
        """,
    )
    assert result.account.late == 0


def test_a_record_whose_interval_is_over_is_late() -> None:
    left = "k | l | ts\na | 1 | 10s\na | 2 | 20s\na | 3 | 14s\na | 4 | 15s"
    right = "k | r | ts\na | 1 | 10s\na | 2 | 20s\na | 3 | 19s\na | 4 | 17s"
    within = Between(low_us=-2 * S, high_us=5 * S)
    result = joined(left, right, within=within)
    # At 20s a left record may be of 15s at the earliest, a right one of 18s.
    assert_rows(result, "l_l | r_r\n1 | 1\n2 | 2\n2 | 3\n4 | 2\n4 | 3")
    assert result.account.late == 2
    anti = joined(
        "k | l | ts\na | 1 | 10s\nb | 2 | 9s\nb | 3 | 15s\nb | 4 | 16s",
        "k | r | ts\nc | 1 | 9s\nc | 2 | 9s\nc | 3 | 15s\nc | 4 | 16s",
        within=within,
        how="anti",
    )
    assert_rows(anti, "l_l\n2\n1\n3\n4")


def test_as_of() -> None:
    left = "k | l | ts\na | 1 | 5s\nb | 2 | 4s\na | 3 | 9s\na | 4 | 3s"
    right = "k | r | ts\na | 1 | 4s\na | 2 | 5s\na | 3 | 5s\na | 4 | 7s"
    # At 5s the left record of 4s comes out, at 7s that of 5s: both right records of 5s came before
    # that mark, and the last one counts. The last left record is of 3s, below the watermark: late.
    result = joined(left, right, within=AsOf(), how="left")
    assert_rows(result, "l_l | r_r\n2 | null\n1 | 3\n3 | 4")
    assert result.account.late == 1
    assert_rows(joined(left, right, within=AsOf()), "l_l | r_r\n1 | 3\n3 | 4")
    assert_rows(joined(left, right, within=AsOf(), how="semi"), "l_l\n1\n3")
    assert_rows(joined(left, right, within=AsOf(), how="anti"), "l_l\n2")
    # Out of order by 2s: no record is late, and that of 3s has none before it.
    result = joined(left, right, within=AsOf(), how="left", out_of_order=2)
    assert_rows(result, "l_l | r_r\n4 | null\n2 | null\n1 | 3\n3 | 4")
    assert result.account.late == 0


def test_as_of_not_too_long_ago() -> None:
    left = "k | l | ts\na | 1 | 5s\na | 2 | 8s\na | 3 | 9s"
    right = "k | r | ts\na | 1 | 1s\na | 2 | 5s\na | 3 | 1s"
    within = AsOf(tolerance_us=3 * S)
    result = joined(left, right, within=within, how="left", epoch=1)
    assert_rows(result, "l_l | r_r\n1 | 2\n2 | 2\n3 | null")
    assert result.account.late == 1


SPANS = """
    k | l | ts | end
    a | 1 | 1s | 5s
    b | 2 | 2s | 4s
    a | 3 | 3s | 9s
    c | 4 | 4s | 6s
    """
BIDS = """
    k | r  | ts
    a | 10 | 2s
    b | 5  | 4s
    a | 7  | 5s
    c | 1  | 7s
    """


def test_spans() -> None:
    aggregates = (("n", COUNT), ("most", agg("max", "r_r")))
    result = joined(SPANS, BIDS, span=("l_ts", "l_end"), aggregates=aggregates, epoch=4)
    assert_rows(
        result,
        """
        l_l | n | most
        2   | 1 | 5
        1   | 2 | 10
        3   | 1 | 7
        """,
    )
    result = joined(SPANS, BIDS, span=("l_ts", "l_end"), aggregates=aggregates, epoch=4, empty=True)
    assert_rows(
        result,
        """
        l_l | n | most: int?
        2   | 1 | 5
        1   | 2 | 10
        4   | 0 | null
        3   | 1 | 7
        """,
    )


def test_a_span_takes_right_records_that_came_before_it() -> None:
    left = "k | l | ts | end\nz | 0 | 1s | 1s\nz | 1 | 4s | 4s\na | 2 | 1s | 9s\na | 3 | 5s | 3s"
    right = "k | r | ts\na | 1.0 | 2s\na | 2.0 | 4s\na | 4.0 | 3s\na | 8.0 | 8s"
    aggregates = (("sum", agg("sum", "r_r")),)
    span = ("l_ts", "l_end")
    # The watermark is 4s when the left record 2 comes: of the right ones before, 4s is kept.
    result = joined(left, right, span=span, aggregates=aggregates)
    assert_rows(result, "l_l | sum\n2 | 14.0")
    # The left record 3 ends at 3s, below the watermark, but is itself in time: it comes at once.
    assert result.account.late == 0
    result = joined(left, right, span=span, aggregates=aggregates, empty=True)
    assert_rows(result, "l_l | sum\n0 | null\n3 | null\n1 | null\n2 | 14.0")
    result = joined(left, right, span=span, aggregates=aggregates, wait_us=2 * S)
    assert_rows(result, "l_l | sum\n2 | 15.0")


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_the_law_holds_for_every_join(how: str) -> None:
    for within in (None, TUMBLING, SLIDING, Between(low_us=0, high_us=S), AsOf()):
        result = joined(LEFT, RIGHT, how=how, within=within)
        counts = next(one for one in result.operators if one.name == "timed")
        assert counts.records_in == 9
        assert counts.made == counts.records_out
