"""The engine against the oracle: a user's test of a job, live sources, and random jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plait
from plait.expr import aggregates
from plait.expr.tree import col
from plait.testing import Capture, Feed, assert_same, check, table
from plait.testing.check import graph_of
from plait.testing.random_jobs import graphs

if TYPE_CHECKING:
    from plait.graph.operators import Graph
    from plait.streams.stream import Stream

BIDS = table(
    """
    auction | price | ts
    1       | 10    | 0s
    1       | 20    | 3s
    2       |  5    | 12s
    """
)


def totals_of(bids: Stream) -> Stream:
    return bids.key_by("auction").aggregate(total=aggregates.sum("price"))


def test_a_users_test() -> None:
    expect = table(
        """
        auction | total
        1       | 10
        1       | 30
        2       |  5
        """
    )
    check(totals_of, BIDS, expect=expect, workers=(1, 2, 4))


def test_a_wrong_expectation_is_shown() -> None:
    expect = table("auction | total\n1 | 10\n1 | 31\n2 | 5")
    with pytest.raises(AssertionError, match=r"row 1 is the first that differs(.|\n)*1 +\| 31"):
        check(totals_of, BIDS, expect=expect, workers=(1,))


def test_several_tables() -> None:
    def both(one: Stream, other: Stream) -> Stream:
        return one.union(other.filter(col("price") > 5)).key_by("auction").count()

    expect = table("auction | count\n1 | 1\n1 | 2\n2 | 1\n1 | 3\n1 | 4")
    check(both, (BIDS, BIDS), expect=expect)


def test_a_failing_job_is_compared_too() -> None:
    def inverse(bids: Stream) -> Any:
        bids.sink(Capture(), name="all")
        return bids.select(x=10 // (col("price") - 20)).sink(Capture(), name="inverse").job

    check(inverse, BIDS, epoch_records=1, raises=plait.RecordError)
    with pytest.raises(AssertionError, match=r"the job fails: select at(.|\n)*give raises="):
        check(inverse, BIDS, epoch_records=1, workers=(1,))


@pytest.mark.parametrize("nodes", [(), (2,)])
def test_a_failure_must_be_expected(nodes: tuple[int, ...]) -> None:
    def refuses(bids: Stream) -> Stream:
        return bids.map(refused)

    def refused(bid: Any) -> Any:
        if bid.price == 20:
            raise KeyError("no such price")
        return bid

    expect = table("auction | price | ts\n1 | 10 | 0s")
    chosen: dict[str, Any] = {"workers": (1,), "nodes": nodes, "epoch_records": 1}
    check(refuses, BIDS, raises=KeyError, expect=expect, **chosen)
    check(refuses, BIDS, raises=(OSError, LookupError), **chosen)
    with pytest.raises(AssertionError, match=r"the job fails: map at .*KeyError"):
        check(refuses, BIDS, **chosen)
    with pytest.raises(AssertionError, match="expected OSError or ValueError"):
        check(refuses, BIDS, raises=(OSError, ValueError), **chosen)
    with pytest.raises(AssertionError, match="the job came to its end; expected KeyError"):
        check(totals_of, BIDS, raises=KeyError, **chosen)


def test_a_live_source_is_compared_by_its_own_epochs() -> None:
    def fed() -> Feed:
        feed = Feed({"n": int})
        for size in (3, 0, 1, 2):
            feed.push([(size,)] * size)
        feed.close()
        return feed

    graph, _ = graph_of(lambda a, b: a.union(b), (fed(), fed()))
    answer = assert_same(graph, {"workers": 2})
    assert answer.account.delivered == 12


@settings(max_examples=40)
@given(
    graph=graphs(max_rows=30),
    epoch_records=st.sampled_from([1, 3, 16, 4096]),
    workers=st.sampled_from([1, 2, 4]),
)
def test_random_jobs(graph: Graph, epoch_records: int, workers: int) -> None:
    assert_same(graph, {"workers": workers, "epoch_records": epoch_records, "timeout": 60.0})
