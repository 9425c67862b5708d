"""The parts of a result, one of each node, become one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from plait.errors import InternalError, RecordError, SinkError
from plait.results.outcomes import (
    Cuts,
    NodeOutcome,
    check_conserved,
    first_error,
    join_outputs,
    merge_outcomes,
    percentile_ns,
)
from plait.results.result import Account, DeadLetter, OperatorCounts


def outcome(rank: int, **given: Any) -> NodeOutcome:
    facts: dict[str, Any] = {
        "seconds": 1.0 + rank,
        "account": Account(read=10, delivered=8, filtered=2),
        "operators": (
            OperatorCounts(number=0, name="source", at="a.py:1", records_in=10, records_out=10),
            OperatorCounts(number=1, name="sink", at="a.py:2", records_in=8, records_out=8),
        ),
    }
    return NodeOutcome(rank=rank, **{**facts, **given})


def letter(row: int) -> DeadLetter:
    return DeadLetter(operator="map", at="a.py:3", source="s", row=row, error="no", record={})


def test_counts_are_summed_and_the_longest_time_is_taken() -> None:
    result = merge_outcomes("j", [outcome(1), outcome(0)])
    assert result.account == Account(read=20, delivered=16, filtered=4)
    assert [one.records_out for one in result.operators] == [20, 16]
    assert result.operators[1].records_in == 16
    assert result.seconds == 2.0
    check_conserved(result, [])


def test_letters_are_in_order_and_end_at_the_failure() -> None:
    parts = [
        outcome(0, letters=(((0, 0, 5, 1), letter(5)), ((2, 0, 1, 1), letter(21)))),
        outcome(
            1,
            letters=(((0, 0, 2, 1), letter(2)), ((1, 0, 0, 1), letter(10))),
            error=RecordError("bad"),
            failed_at=(1, 0, 3, 1),
        ),
    ]
    assert [one.row for one in merge_outcomes("j", parts).dead_letters] == [2, 5, 10]


def test_the_error_with_the_smallest_place_counts() -> None:
    late, early = RecordError("late"), RecordError("early")
    sink = SinkError("sink")
    parts = [
        outcome(0, error=sink),
        outcome(1, error=late, failed_at=(3, 0, 0, 1)),
        outcome(2, error=early, failed_at=(2, 1, 9, 1)),
    ]
    assert first_error(parts) is early
    assert first_error(parts[:1]) is sink
    assert first_error([outcome(0)]) is None


def test_latencies_merge_by_bucket() -> None:
    parts = [
        outcome(0, latency=((1_000_000, 98), (3_000_000, 1)), latency_max_ns=2_500_000),
        outcome(1, latency=((1_000_000, 1),), latency_max_ns=900_000),
    ]
    latency = merge_outcomes("j", parts).latency
    assert (latency.p50_ms, latency.p99_ms, latency.p999_ms, latency.max_ms) == (1, 1, 2.5, 2.5)
    assert percentile_ns({}, 0, 50.0) == 0


def test_outputs_of_one_node_are_the_jobs() -> None:
    table = pa.table({"a": [1]})
    assert merge_outcomes("j", [outcome(0, outputs={"out": table}), outcome(1)]).outputs == {
        "out": table
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([pa.table({"a": [1]}), pa.table({"a": [2]})], pa.table({"a": [1, 2]})),
        ([3, 4], 7),
        ([[1], [2]], [1, 2]),
        ([None, None], None),
        (["x", 1], ("x", 1)),
    ],
)
def test_outputs_of_several_nodes_are_joined_by_rank(values: list[Any], expected: Any) -> None:
    assert join_outputs(values) == expected


def test_cuts_add_up_from_the_epoch_a_node_joined_at() -> None:
    parts = [
        outcome(0, cuts={"s": Cuts(rows=(4, 2, 2))}),
        outcome(1, cuts={"s": Cuts(first_epoch=1, rows=(2, 2, 4))}),
    ]
    assert merge_outcomes("j", parts).cuts == {"s": (4, 4, 4, 4)}


def test_a_difference_is_a_bug_unless_a_sink_ends_early() -> None:
    parts = [outcome(0, account=Account(read=3, delivered=2))]
    with pytest.raises(InternalError, match="lost or doubled"):
        check_conserved(merge_outcomes("j", parts), parts)
    parts = [outcome(0, account=Account(read=3, delivered=2), stops_early=True)]
    check_conserved(merge_outcomes("j", parts), parts)


def test_no_outcome_is_told() -> None:
    with pytest.raises(InternalError, match="no node"):
        merge_outcomes("j", [])
