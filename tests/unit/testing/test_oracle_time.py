"""Watermarks and windows of the plain loop on tables whose answers were worked out by hand.

One record is one epoch unless a test says otherwise; where there is one source, that makes no
difference. Times are seconds since 1970.
"""

from __future__ import annotations

from typing import Any

import pytest

from plait.expr.tree import Expr
from plait.graph.operators import FilterOp, UnionOp
from plait.graph.temporal import (
    CarriedWindow,
    Grid,
    LastSpec,
    LateSpec,
    RowWindow,
    SessionWindow,
    TopSpec,
    WindowSpec,
)
from plait.results.result import Account
from plait.testing.oracle.windows import pane_of, windows_of
from tests.unit.testing.timed_jobs import COUNT, Nodes, S, agg, assert_rows, col, windowed

TUMBLING = Grid(size_us=10 * S, every_us=10 * S)
SLIDING = Grid(size_us=10 * S, every_us=5 * S)
OUT = "k: string | window_start: timestamp | window_end: timestamp | n: int"
COUNTS = WindowSpec(window=TUMBLING, aggregates=(("n", COUNT),))


def counts(window: Grid | SessionWindow | CarriedWindow | RowWindow, **more: Any) -> WindowSpec:
    return WindowSpec(window=window, aggregates=(("n", COUNT),), **more)


def test_windows_of_a_time() -> None:
    assert windows_of(TUMBLING, 10 * S) == [(10 * S, 20 * S)]
    assert windows_of(TUMBLING, -1) == [(-10 * S, 0)]
    assert windows_of(SLIDING, 12 * S) == [(5 * S, 15 * S), (10 * S, 20 * S)]
    uneven = Grid(size_us=5, every_us=2, offset_us=1)
    assert windows_of(uneven, 5) == [(1, 6), (3, 8), (5, 10)]
    assert windows_of(uneven, 4) == [(1, 6), (3, 8)]
    assert pane_of(SLIDING, 12 * S) == 10 * S
    assert pane_of(uneven, 4) == 4  # the greatest that divides 5 and 2 is 1


def test_a_window_ends_when_the_watermark_reaches_its_end() -> None:
    result = windowed(
        """
        k | ts
        a | 1s
        b | 2s
        a | 9s
        b | 10s
        a | 25s
        """,
        COUNTS,
        OUT,
    )
    assert_rows(
        result,
        """
        k | window_start | window_end | n
        a | 0s           | 10s        | 2
        b | 0s           | 10s        | 1
        b | 10s          | 20s        | 1
        a | 20s          | 30s        | 1
        """,
    )
    assert result.account == Account(read=5, delivered=4, made=4, absorbed=5)


def test_keys_come_in_the_order_in_which_they_first_came_in_their_window() -> None:
    result = windowed(
        """
        k | ts
        c | 11s
        a | 1s
        b | 2s
        a | 12s
        c | 3s
        """,
        COUNTS,
        OUT,
        epoch=5,
        out_of_order=12,
    )
    assert_rows(
        result,
        """
        k | window_end
        a | 10s
        b | 10s
        c | 10s
        c | 20s
        a | 20s
        """,
    )


def test_late_records_are_counted_and_change_nothing() -> None:
    given = """
        k | ts
        a | 1s
        a | 12s
        a | 9s
        a | 11s
        """
    result = windowed(given, COUNTS, OUT)
    assert_rows(result, "k | window_end | n\na | 10s | 1\na | 20s | 2")
    assert result.account == Account(read=4, delivered=2, made=2, absorbed=3, late=1)
    assert [one.late for one in result.operators] == [0, 1, 0]
    in_time = windowed(given, COUNTS, OUT, out_of_order=3)
    assert_rows(in_time, "k | window_end | n\na | 10s | 2\na | 20s | 2")
    # A record is late by the watermark in front of it: epochs make no difference.
    together = windowed(given, COUNTS, OUT, epoch=4)
    assert_rows(together, "k | window_end | n\na | 10s | 1\na | 20s | 2")
    assert together.account.late == 1


def test_lateness_gives_the_keys_that_changed_again() -> None:
    result = windowed(
        """
        k | ts
        a | 1s
        b | 2s
        c | 12s
        b | 3s
        d | 4s
        c | 15s
        a | 5s
        """,
        counts(TUMBLING, lateness_us=5 * S),
        OUT,
    )
    assert_rows(
        result,
        """
        k | window_end | n
        a | 10s        | 1
        b | 10s        | 1
        b | 10s        | 2
        d | 10s        | 1
        c | 20s        | 2
        """,
    )
    assert result.account.late == 1


def test_early_results_of_keys_that_changed() -> None:
    result = windowed(
        """
        k | ts
        a | 1s
        b | 3s
        a | 4s
        a | 5s
        a | 6s
        b | 7s
        b | 11s
        """,
        counts(TUMBLING, early_us=3 * S),
        OUT,
        epoch=1,
    )
    assert_rows(
        result,
        """
        k | window_end | n
        a | 10s        | 1
        a | 10s        | 3
        b | 10s        | 1
        a | 10s        | 4
        b | 10s        | 2
        b | 20s        | 1
        """,
    )


def test_sliding_windows() -> None:
    result = windowed(
        """
        k | ts
        a | 7s
        b | 8s
        b | 4s
        a | 21s
        """,
        counts(SLIDING),
        OUT,
        out_of_order=4,
    )
    assert_rows(
        result,
        """
        k | window_start | window_end | n
        b | -5s          | 5s         | 1
        a | 0s           | 10s        | 1
        b | 0s           | 10s        | 2
        a | 5s           | 15s        | 1
        b | 5s           | 15s        | 1
        a | 15s          | 25s        | 1
        a | 20s          | 30s        | 1
        """,
    )


def test_a_record_joins_those_of_its_windows_that_have_not_ended() -> None:
    result = windowed("k | ts\na | 12s\na | 7s\na | 3s", counts(SLIDING), OUT)
    assert_rows(
        result,
        """
        k | window_start | n
        a | 5s           | 2
        a | 10s          | 1
        """,
    )
    assert result.account.late == 1


def test_float_sums_of_sliding_windows_go_pane_by_pane() -> None:
    # In the order in which they came 1 + 1e16 - 1e16 is 0; pane by pane it is 1e16 - 1e16 + 1.
    given = "k | ts | v\na | 7s | 1.0\na | 1s | 1e16\na | 2s | -1e16"
    spec = WindowSpec(window=SLIDING, aggregates=(("n", agg("sum", "v")),))
    out = OUT.replace("n: int", "n: float?")
    result = windowed(given, spec, out, out_of_order=10)
    assert_rows(
        result,
        """
        k | window_start | n
        a | -5s          | 0.0
        a | 0s           | 1.0
        a | 5s           | 1.0
        """,
    )
    tumbling = WindowSpec(window=TUMBLING, aggregates=(("n", agg("sum", "v")),))
    assert_rows(windowed(given, tumbling, out, out_of_order=10), "k | n\na | 0.0")


def test_first_and_last_of_panes_go_by_place() -> None:
    spec = WindowSpec(
        window=SLIDING,
        aggregates=(
            ("first", agg("first", "v")),
            ("last", agg("last", "v")),
            ("least", agg("min", "v")),
            ("kinds", agg("distinct", "v")),
        ),
    )
    given = "k | ts | v: int?\na | 7s | 3\na | 1s | 5\na | 8s | null\na | 2s | 3"
    out = (
        "k: string | window_start: timestamp | window_end: timestamp |"
        " first: int? | last: int? | least: int? | kinds: int"
    )
    assert_rows(
        windowed(given, spec, out, out_of_order=10),
        """
        window_start | first | last | least | kinds
        -5s          | 5     | 3    | 3     | 2
        0s           | 3     | 3    | 3     | 2
        5s           | 3     | 3    | 3     | 1
        """,
    )


def test_sessions_and_those_that_become_one() -> None:
    result = windowed(
        """
        k | ts
        a | 1s
        b | 2s
        a | 9s
        a | 5s
        a | 14s
        c | 40s
        """,
        counts(SessionWindow(gap_us=5 * S)),
        OUT,
        out_of_order=10,
    )
    assert_rows(
        result,
        """
        k | window_start | window_end | n
        b | 2s           | 7s         | 1
        a | 1s           | 14s        | 3
        a | 14s          | 19s        | 1
        c | 40s          | 45s        | 1
        """,
    )


def test_a_session_that_has_come_out_goes_on_within_its_lateness() -> None:
    result = windowed(
        """
        k | ts
        a | 1s
        b | 7s
        a | 4s
        b | 9s
        a | 3s
        b | 20s
        """,
        counts(SessionWindow(gap_us=5 * S), lateness_us=4 * S),
        OUT,
    )
    assert_rows(
        result,
        """
        k | window_start | window_end | n
        a | 1s           | 6s         | 1
        a | 1s           | 9s         | 2
        a | 1s           | 9s         | 3
        b | 7s           | 14s        | 2
        b | 20s          | 25s        | 1
        """,
    )


def test_a_session_record_is_late_by_its_own_gap() -> None:
    result = windowed(
        "k | ts\na | 1s\nb | 6s\na | 1s\na | 2s", counts(SessionWindow(gap_us=5 * S)), OUT
    )
    assert_rows(
        result,
        """
        k | window_start | window_end | n
        a | 1s           | 6s         | 1
        a | 2s           | 7s         | 1
        b | 6s           | 11s        | 1
        """,
    )
    assert result.account.late == 1


def test_count_windows() -> None:
    given = "k | v | ts\n" + "\n".join(f"a | {n} | 1s" for n in range(1, 8)) + "\nb | 9 | 1s"
    spec = WindowSpec(window=RowWindow(size=3, every=2), aggregates=(("n", agg("sum", "v")),))
    result = windowed(given, spec, "k: string | n: int?")
    assert_rows(result, "k | n\na | 9\na | 15")
    assert result.account == Account(read=8, delivered=2, made=2, absorbed=8)


def test_the_last_n_records() -> None:
    given = "k | v: int? | ts\na | 1 | 1s\nb | 5 | 1s\na | 2 | 1s\na | null | 1s\na | 8 | 1s"
    spec = LastSpec(n=2, aggregates=(("n", COUNT), ("mean", agg("mean", "v"))))
    assert_rows(
        windowed(given, spec, "k: string | n: int | mean: float?"),
        """
        k | n | mean
        a | 1 | 1.0
        b | 1 | 5.0
        a | 2 | 1.5
        a | 2 | 2.0
        a | 2 | 8.0
        """,
    )


def test_windows_that_the_rows_carry() -> None:
    result = windowed(
        """
        k | ts  | window_start | window_end
        a | 1s  | 0s           | 8s
        b | 2s  | 2s           | 8s
        c | 3s  | 0s           | 5s
        a | 4s  | 0s           | 8s
        a | 8s  | 0s           | 20s
        a | 9s  | 0s           | 8s
        """,
        counts(CarriedWindow()),
        "window_start: timestamp | window_end: timestamp | n: int",
        keys=(),
    )
    assert_rows(
        result,
        """
        window_start | window_end | n
        0s           | 5s         | 1
        0s           | 8s         | 2
        2s           | 8s         | 1
        0s           | 20s        | 1
        """,
    )
    assert result.account.late == 1


TOP = """
    k | v: float? | ts
    a | 1.0       | 1s
    b | 7.0       | 2s
    a | 3.0       | 3s
    a | null      | 4s
    a | nan       | 5s
    a | 3.0       | 6s
    a | 2.0       | 7s
    c | null      | 8s
    """
TOP_OUT = "k: string | v: float? | ts: timestamp | window_start: timestamp | window_end: timestamp"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            TopSpec(window=TUMBLING, k=1, by="v"),
            "k | v | ts\na | 3.0 | 3s\nb | 7.0 | 2s",
        ),
        (
            TopSpec(window=TUMBLING, k=1, by="v", ties=True),
            "k | v | ts\na | 3.0 | 3s\na | 3.0 | 6s\nb | 7.0 | 2s",
        ),
        (
            TopSpec(window=TUMBLING, k=2, by="v", greatest=False, ties=True),
            "k | v | ts\na | 1.0 | 1s\na | 2.0 | 7s\nb | 7.0 | 2s",
        ),
        (
            TopSpec(window=SessionWindow(gap_us=4 * S), k=9, by="v"),
            "k | v | ts\nb | 7.0 | 2s\na | 3.0 | 3s\na | 3.0 | 6s\na | 2.0 | 7s\na | 1.0 | 1s",
        ),
    ],
)
def test_top_rows(spec: TopSpec, expected: str) -> None:
    result = windowed(TOP, spec, TOP_OUT)
    assert_rows(result, expected)
    assert result.account.absorbed == 8


def test_top_gives_all_rows_again_within_its_lateness() -> None:
    spec = TopSpec(window=TUMBLING, k=2, by="v", lateness_us=5 * S)
    given = "k | v: float? | ts\na | 1.0 | 1s\na | 2.0 | 12s\na | 0.5 | 2s\na | 0.1 | 3s"
    assert_rows(
        windowed(given, spec, TOP_OUT),
        "v | window_end\n1.0 | 10s\n1.0 | 10s\n0.5 | 10s\n1.0 | 10s\n0.5 | 10s\n2.0 | 20s",
    )


@pytest.mark.parametrize(
    ("spec", "late"),
    [
        (LateSpec(window=TUMBLING), ["9s", "1s"]),
        (LateSpec(window=TUMBLING, lateness_us=2 * S), ["9s", "1s"]),
        (LateSpec(window=TUMBLING, lateness_us=4 * S), []),
        (LateSpec(window=SLIDING), ["1s"]),
        (LateSpec(window=SessionWindow(gap_us=3 * S)), ["9s", "1s"]),
        (LateSpec(window=SessionWindow(gap_us=5 * S)), ["1s"]),
    ],
)
def test_the_stream_of_late_records(spec: LateSpec, late: list[str]) -> None:
    result = windowed("k | ts\na | 1s\na | 13s\na | 9s\na | 12s\na | 1s", spec, None)
    assert_rows(result, "\n".join(["k | ts: timestamp", *(f"a | {at}" for at in late)]))
    assert result.account.late == 0
    assert result.account.filtered == 5 - len(late)


def test_the_least_of_the_sources_counts_and_one_at_its_end_does_not() -> None:
    nodes = Nodes()
    one = nodes.source("k | ts\na | 11s\na | 12s\na | 13s\na | 14s", "one")
    two = nodes.source("k | ts\nb | 5s\nb | 6s", "two", out_of_order=1)
    both = nodes.add(UnionOp, one, two)
    nodes.sink(nodes.timed(both, COUNTS, OUT))
    nodes.sink(both, "seen")
    result = nodes.run()
    assert_rows(result, "k | window_end | n\nb | 10s | 2\na | 20s | 4")
    # The end of the second source is known in the third epoch, behind the first one's record: then
    # the first window ends.
    nodes = Nodes()
    one = nodes.source("k | ts\na | 11s\na | 12s\na | 9s\na | 8s\na | 14s", "one")
    two = nodes.source("k | ts\nb | 5s\nb | 6s", "two", out_of_order=1)
    nodes.sink(nodes.timed(nodes.add(UnionOp, one, two), COUNTS, OUT))
    result = nodes.run()
    assert_rows(result, "k | window_end | n\nb | 10s | 2\na | 10s | 1\na | 20s | 3")
    assert result.account.late == 1


def test_a_wild_time_moves_the_watermark_by_one_jump() -> None:
    given = "k | ts\na | 1s\na | 999s\na | 2s\na | 15s\na | 31s"
    result = windowed(given, COUNTS, OUT, max_jump=8)
    # After 1s and 999s the source is at 9s, so that 2s is in time; then at 15s, at 23s.
    assert_rows(result, "window_end | n\n10s | 2\n20s | 1\n40s | 1\n1000s | 1")
    assert result.account.late == 0
    wild = windowed(given, COUNTS, OUT, max_jump=5000)
    assert wild.account.late == 3


def test_the_first_time_of_a_source_is_no_jump() -> None:
    result = windowed("k | ts\na | 999s\na | 1s", COUNTS, OUT, max_jump=8)
    assert result.account.late == 1


def test_without_event_time_all_is_due_at_the_end() -> None:
    nodes = Nodes()
    given = nodes.source("k | ts\na | 1s\na | 50s\na | 2s", time=None)
    nodes.sink(nodes.timed(given, COUNTS, OUT))
    assert_rows(nodes.run(), "window_end | n\n10s | 2\n60s | 1")


def test_windows_behind_windows() -> None:
    """Results of the closing epoch go through all windows behind."""
    nodes = Nodes()
    given = nodes.source("k | ts\na | 1s\nb | 2s\na | 12s\nb | 33s")
    first = nodes.timed(given, COUNTS, OUT)
    again = WindowSpec(
        window=CarriedWindow(), aggregates=(("keys", COUNT), ("most", agg("max", "n")))
    )
    out = "window_start: timestamp | window_end: timestamp | keys: int | most: int?"
    nodes.sink(nodes.timed(first, again, out, (), ""))
    assert_rows(
        nodes.run(),
        """
        window_start | keys | most
        0s           | 2    | 1
        10s          | 1    | 1
        30s          | 1    | 1
        """,
    )


def test_rows_due_at_one_mark_come_by_the_position_of_their_stream() -> None:
    nodes = Nodes()
    given = nodes.source("k | ts\na | 1s\nb | 12s\nb | 13s")
    kept = nodes.add(FilterOp, given, predicate=Expr("eq", (col("k"), Expr("lit", (), "b"))))
    out = "k: string | ts: timestamp | window_start: timestamp | window_end: timestamp"
    spec = TopSpec(window=TUMBLING, k=1, by="ts")
    tops = [
        nodes.timed(given, spec, out),
        nodes.timed(given, TopSpec(window=TUMBLING, k=1, by="ts", greatest=False), out),
    ]
    late = nodes.timed(given, LastSpec(n=1, aggregates=(("n", COUNT),)), "k: string | n: int")
    nodes.sink(nodes.add(UnionOp, *tops), "tops")
    nodes.sink(late, "last")
    nodes.sink(kept, "kept")
    result = nodes.run(epoch=3)
    assert_rows(result, "k | ts\na | 1s\na | 1s\nb | 13s\nb | 12s", "tops")


def test_a_failure_ends_what_is_due_behind_it() -> None:
    nodes = Nodes()
    given = nodes.source("k: float | ts\n1.0 | 1s\n2.0 | 12s\nnan | 33s\n3.0 | 34s")
    out = OUT.replace("string", "float")
    nodes.sink(nodes.timed(given, COUNTS, out))
    nodes.sink(given, "seen")
    result = nodes.run()
    assert result.failure is not None
    assert "NaN cannot be a key" in str(result.failure)
    # The mark of the record that fails was before it: the window of 2.0 had ended.
    assert_rows(result, "k | n\n1.0 | 1\n2.0 | 1")
    assert [len(result.outputs[label]) for label in ("out", "seen")] == [2, 2]
    nodes = Nodes()
    given = nodes.source("k: float | ts\n1.0 | 1s\n2.0 | 12s\nnan | 33s\n3.0 | 34s")
    nodes.sink(nodes.timed(given, COUNTS, out, on_error="skip"))
    result = nodes.run()
    assert_rows(result, "k | n\n1.0 | 1\n2.0 | 1\n3.0 | 1")
    assert result.account == Account(read=4, skipped=1, absorbed=3, made=3, delivered=3)


def test_without_a_watermark_there_are_no_early_results() -> None:
    nodes = Nodes()
    one = nodes.source("k | ts\na | 5s\na | 6s", "one")
    two = nodes.source("k | ts\na | 5s\na | 6s", "two")
    both = nodes.add(UnionOp, one, two)
    nodes.sink(nodes.timed(both, counts(TUMBLING, early_us=S), OUT))
    # The first mark with a watermark, 5s, is that of the second source's first record; the next
    # multiple, 6s, is reached at its second. Each has what came before.
    assert_rows(nodes.run(), "k | n\na | 1\na | 3\na | 4")
