"""What the comparison with the engine accepts and refuses, and the ends that tests use."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from plait.connectors.base import Wait
from plait.errors import JobError, RecordError
from plait.expr.tree import col
from plait.results.result import Account, DeadLetter, Latency, Result
from plait.testing import Capture, Feed, Rows, VirtualClock, sequential, table
from plait.testing.check import (
    capturing,
    compare_accounts,
    compare_closing,
    compare_expected,
    compare_failure,
    compare_letters,
    compare_outputs,
    graph_of,
    rows_of,
)
from plait.testing.oracle.values import held_to_arrow

if TYPE_CHECKING:
    from plait.streams.job import Job
    from plait.testing.oracle import OracleResult

GIVEN = table("k | v\n1 | 5\n2 | 0\n1 | 7")
INVERSE = {"v": 10 // col("v")}


def answer(**more: Any) -> OracleResult:
    graph, _ = graph_of(lambda s: s.with_columns(**INVERSE, **more), GIVEN)
    return sequential(graph)


def result_of(wanted: OracleResult, **more: Any) -> Result:
    return replace(
        Result(
            job="j",
            seconds=1.0,
            account=wanted.account,
            operators=wanted.operators,
            latency=Latency(),
            dead_letters=wanted.dead_letters,
        ),
        **more,
    )


def test_graph_of_a_stream_and_of_a_job() -> None:
    graph, label = graph_of(lambda s: s.filter(col("v") > 0), GIVEN)
    assert label == "returned"
    assert [node.name for node in graph.operators] == ["source", "filter", "sink"]

    def job_of(stream: Any) -> Job:
        found: Job = stream.sink(Capture(), name="own").job
        return found

    graph, label = graph_of(job_of, GIVEN)
    assert (label, len(graph.operators)) == (None, 2)
    graph, _ = graph_of(lambda a, b: a.union(b), (GIVEN, GIVEN))
    assert len(graph.sources) == 2
    with pytest.raises(JobError, match="must return a stream or a job, not 5"):
        graph_of(lambda s: 5, GIVEN)


def test_outputs_must_be_equal_bit_for_bit() -> None:
    wanted = answer(on_error="skip")
    assert wanted.outputs == {"returned": [(1, 2), (1, 1)]}
    compare_outputs("t", {"returned": [(1, 2), (1, 1)]}, wanted, None)
    for wrong in ([(1, 1), (1, 2)], [(1, 2)], [(1, 2), (1, 1.0)], [(1, 2), (1, 1), (1, 1)]):
        with pytest.raises(AssertionError, match="sink returned: row"):
            compare_outputs("t", {"returned": wrong}, wanted, None)
    with pytest.raises(AssertionError, match="sinks"):
        compare_outputs("t", {}, wanted, None)


def test_a_failure_must_be_the_right_one() -> None:
    wanted = answer()
    assert wanted.failure is not None
    compare_failure("t", wanted.failure, wanted)
    with pytest.raises(AssertionError, match="ran to its end"):
        compare_failure("t", None, wanted)
    failure = wanted.failure
    place = {"operator": failure.operator, "at": failure.at, "source": failure.source}
    with pytest.raises(AssertionError, match="failed at"):
        compare_failure("t", RecordError("x", **place, row=3, record=failure.record), wanted)
    with pytest.raises(AssertionError, match="failed with None"):
        compare_failure("t", RecordError("x", **place, row=2), wanted)
    with pytest.raises(AssertionError, match="should be no failure"):
        compare_failure("t", failure, answer(on_error="skip"))


def test_the_failing_path_is_exact_and_others_have_a_prefix() -> None:
    def job_of(stream: Any) -> Job:
        stream.sink(Capture(), name="all")
        found: Job = stream.with_columns(**INVERSE).sink(Capture(), name="inverse").job
        return found

    wanted = sequential(graph_of(job_of, GIVEN)[0])
    failure, right = wanted.failure, [(1, 2)]
    for other in ([], [(1, 5)], [(1, 5), (2, 0), (1, 7)]):
        compare_outputs("t", {"inverse": right, "all": other}, wanted, failure)
    wrongs: list[dict[str, list[Any]]] = [
        {"inverse": [], "all": []},
        {"inverse": [(1, 2), (1, 1)], "all": []},
        {"inverse": right, "all": [(2, 0)]},
    ]
    for outputs in wrongs:
        with pytest.raises(AssertionError, match="differs"):
            compare_outputs("t", outputs, wanted, failure)


def test_accounts_and_counts() -> None:
    wanted = answer(on_error="skip")
    compare_accounts("t", result_of(wanted), wanted)
    with pytest.raises(AssertionError, match="1 records went missing"):
        compare_accounts("t", result_of(wanted, account=Account(read=3, delivered=2)), wanted)
    account = Account(read=3, delivered=2, filtered=1)
    with pytest.raises(AssertionError, match="should be"):
        compare_accounts("t", result_of(wanted, account=account), wanted)
    with pytest.raises(AssertionError, match="should be"):
        compare_accounts("t", result_of(wanted, operators=wanted.operators[:2]), wanted)


def test_dead_letters() -> None:
    letters = answer(on_error="dead_letter").dead_letters
    assert len(letters) == 1
    compare_letters("t", letters, letters)
    with pytest.raises(AssertionError, match="0 dead letters, should be 1"):
        compare_letters("t", (), letters)
    wrongs: list[DeadLetter] = [
        replace(letters[0], row=0),
        replace(letters[0], error=""),
        replace(letters[0], record=None),
    ]
    for wrong in wrongs:
        with pytest.raises(AssertionError, match="should be"):
            compare_letters("t", (wrong,), letters)


def test_expected_tables() -> None:
    wanted = answer(on_error="skip")
    outputs = {"returned": [(1, 2), (1, 1)]}
    compare_expected("t", outputs, wanted, table("k | v\n1 | 2\n1 | 1"), None)
    with pytest.raises(AssertionError, match="row 1 is the first that differs"):
        compare_expected("t", outputs, wanted, table("k | v\n1 | 2\n1 | 3"), "returned")
    with pytest.raises(AssertionError, match="columns k, v, expected k, w"):
        compare_expected("t", outputs, wanted, table("k | w\n1 | 2"), None)


def test_what_a_sink_was_given_is_checked() -> None:
    graph, captured = capturing(graph_of(lambda s: s, GIVEN)[0])
    (sink,) = captured.values()
    assert graph.operators[-1].sink is sink  # type: ignore[union-attr]
    rows = held_to_arrow(GIVEN.rows, GIVEN.schema)
    writer = sink.open(GIVEN.schema)
    writer.write(rows.to_batches()[0])
    assert rows_of(sink, GIVEN.schema) == list(GIVEN.rows)
    with pytest.raises(AssertionError, match="got no end, not close"):
        compare_closing("t", captured, None)
    writer.close()
    compare_closing("t", captured, None)
    with pytest.raises(AssertionError, match="got close, not abort"):
        compare_closing("t", captured, RecordError("x"))
    with pytest.raises(AssertionError, match="closed twice"):
        writer.abort()
    writer.write(rows.to_batches()[0].slice(0, 0))
    with pytest.raises(AssertionError, match="an empty batch"):
        rows_of(sink, GIVEN.schema)


def test_a_feed_waits_until_it_is_closed() -> None:
    feed = Feed({"n": int}, wait_s=0.5)
    reader = feed.open()
    assert reader.poll(2) == Wait(0.5)
    feed.push([(n,) for n in range(3)])
    assert reader.poll(2) == [(0,), (1,)]
    assert reader.position() == [0, 2]
    assert feed.open([0, 2]).poll(9) == [(2,)]
    feed.close()
    assert reader.poll(2) == [(2,)]
    assert reader.poll(2) is None
    with pytest.raises(ValueError, match="closed"):
        feed.push([(1,)])
    with pytest.raises(ValueError, match="expected int64"):
        Rows({"n": int}, [("x",)])


def test_a_clock_that_moves_when_it_is_told() -> None:
    clock = VirtualClock(10.0)
    woke: list[float] = []

    def sleeper() -> None:
        clock.sleep(2.0)
        woke.append(clock.now())

    thread = threading.Thread(target=sleeper)
    thread.start()
    clock.wait_for_sleepers(1)
    clock.advance(1.0)
    assert woke == []
    clock.advance(1.0)
    thread.join()
    assert woke == [12.0]
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)
    own = VirtualClock(auto=True)
    own.sleep(3)
    assert own.now() == 3.0
