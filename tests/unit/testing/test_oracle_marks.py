"""Marks of the plain loop: what comes first when a record moves time, worked out by hand.

Times are seconds since 1970, and all records of a test are one epoch unless it says otherwise.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import plait
from plait import col, lit
from plait.functions.process import Process
from plait.testing import OracleResult, sequential, table
from plait.testing.clock import Capture
from plait.testing.oracle import Loop
from plait.testing.oracle.time import Watermarks
from tests.unit.testing.timed_jobs import S, assert_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from plait.streams.stream import Stream

T0 = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def run(given: str, build: Callable[[Stream], Any], **clock: Any) -> OracleResult:
    job = plait.Job("test")
    build(job.source(table(given), event_time="ts", **clock)).sink(Capture(), name="out")
    return sequential(job.graph())


def beside(stream: Stream, results: Stream) -> Stream:
    """The records and the results, as they come."""
    records = stream.select("k", what=lit("record"), n=col("v"))
    return plait.union(records, results.select("k", what=lit("result"), n=col("count")))


GIVEN = """
    k | v | ts
    a | 1 | 1s
    b | 2 | 5s
    a | 3 | 10s
    b | 4 | 3s
    a | 5 | 25s
    """


def test_a_window_closes_in_front_of_the_record_that_ends_it() -> None:
    def build(stream: Stream) -> Stream:
        return beside(stream, stream.key_by("k").tumbling("10s").count())

    result = run(GIVEN, build)
    assert_rows(
        result,
        """
        k | what   | n
        a | record | 1
        b | record | 2
        a | result | 1
        b | result | 1
        a | record | 3
        b | record | 4
        a | result | 1
        a | record | 5
        a | result | 1
        """,
    )
    assert result.account.late == 1


def test_a_late_record_gives_its_key_again_at_once() -> None:
    def build(stream: Stream) -> Stream:
        return beside(stream, stream.key_by("k").tumbling("10s", lateness="5s").count())

    assert_rows(
        run(GIVEN + "    b | 6 | 4s\n", build, out_of_order="12s"),
        """
        k | what   | n
        a | record | 1
        b | record | 2
        a | record | 3
        b | record | 4
        a | result | 1
        b | result | 2
        a | record | 5
        b | record | 6
        b | result | 3
        a | result | 1
        a | result | 1
        """,
    )


def test_a_second_window_sees_results_at_the_time_before_them() -> None:
    def build(stream: Stream) -> Stream:
        counts = stream.key_by("k").tumbling("10s").count()
        top = counts.by_window().top(1, by="count")
        return beside(stream, top)

    assert_rows(
        run("k | v | ts\na | 1 | 1s\na | 2 | 2s\nb | 3 | 3s\nb | 4 | 99s", build),
        """
        k | what   | n
        a | record | 1
        a | record | 2
        b | record | 3
        a | result | 2
        b | record | 4
        b | result | 1
        """,
    )


def test_a_record_a_gap_behind_begins_a_session() -> None:
    result = run(
        "k | v | ts\na | 1 | 1s\na | 2 | 3s\na | 3 | 6s",
        lambda s: s.key_by("k").session(gap="3s").count(),
    )
    assert_rows(result, "k | window_start | count\na | 1s | 2\na | 6s | 1")


def test_an_interval_in_the_past_joins() -> None:
    def build(stream: Stream) -> Stream:
        left = stream.filter(col("k") == "l").select("ts", "v", one=lit(1))
        right = stream.filter(col("k") == "r").select(at=col("ts"), w=col("v"), one=lit(1))
        return left.join(right, on="one", between=("-10s", "-5s"), how="left")

    given = "k | v | ts\nr | 1 | 1s\nl | 2 | 7s\nl | 3 | 20s\nr | 4 | 21s\nl | 5 | 28s"
    result = run(given, build)
    assert_rows(result, "v | w: int?\n2 | 1\n3 | null\n5 | 4")
    assert result.account.late == 0


def test_a_jump_is_of_one_record() -> None:
    job = plait.Job("test")
    rows = table("ts\n0s")
    job.source(rows, event_time="ts", max_jump="5s").tumbling("1s").count().sink(Capture())
    watermarks = Watermarks(job.graph())
    times = [(time * S,) for time in (0, 100, 100, 6, 7, 16)]
    watermarks.read(0, times, 0, over=False, idle=False, stamp=0)
    assert [mark.times[0] // S for mark in watermarks.marks] == [0, 5, 10, 10, 10, 15, 15]


class Pieces:
    """A record is so many pieces, 4 seconds apart, the first of its own time less 4 seconds."""

    def __call__(self, record: Any) -> Iterator[Any]:
        for n in range(record.v):
            yield {"k": record.k, "v": n, "ts": record.ts + plait.seconds(4 * n - 4)}


def cut(stream: Stream) -> Stream:
    return stream.flat_map(Pieces(), schema=stream.schema).with_event_time("ts")


def test_pieces_of_a_record_count_together() -> None:
    def build(stream: Stream) -> Stream:
        return beside(stream, cut(stream).key_by("k").tumbling("5s").count())

    # Pieces at 6, 10 and 14 s: the least moves time, so none is late; the greatest counts from the
    # next record on, which becomes nothing.
    given = "k | v | ts\na | 3 | 10s\na | 0 | 11s\na | 1 | 12s\na | 1 | 25s"
    result = run(given, build)
    assert_rows(
        result,
        """
        k | what   | n
        a | record | 3
        a | result | 1
        a | record | 0
        a | record | 1
        a | result | 2
        a | record | 1
        a | result | 1
        """,
    )
    assert result.account.late == 1  # the third record's piece, at 8 s


def test_pieces_of_a_record_that_ended_the_stream_move_nothing() -> None:
    def build(stream: Stream) -> Stream:
        late = stream.flat_map(Pieces(), schema=stream.schema)
        late = late.select("k", "v", ts=plait.when(col("v") < 2).then(col("ts")).otherwise(None))
        return late.with_event_time("ts").key_by("k").tumbling("5s").count().select("count")

    # The third piece of the last record fails; with its first, at 21 s, [0, 5) would be over.
    given = "k | v | ts\na | 1 | 5s\na | 3 | 25s"
    result = run(given, build)
    assert result.failure is not None
    assert_rows(result, "count")


@pytest.mark.parametrize("epoch", [1, 2, 4096])
def test_what_the_last_record_of_a_unit_gave_counts_from_the_next_unit_on(epoch: int) -> None:
    job = plait.Job("test")
    given = "k | v | ts\na | 3 | 10s\na | 0 | 11s"
    stream = job.source(table(given), event_time="ts")
    beside(stream, cut(stream).key_by("k").tumbling("5s").count()).sink(Capture(), name="out")
    result = sequential(job.graph(), epoch_records=epoch)
    expected = "k | what | n\na | record | 3\na | result | 1\na | record | 0\na | result | 2"
    assert_rows(result, expected)


def test_what_is_given_at_a_mark_is_taken_before_it_counts() -> None:
    def build(stream: Stream) -> Stream:
        counts = stream.key_by("k").tumbling("10s").count().with_event_time("window_start")
        return beside(stream, counts.key_by("k").tumbling("10s").count())

    # The result of [0, 10) passes at the mark of the record at 12 s, and is in time.
    given = "k | v | ts\na | 1 | 1s\na | 2 | 12s\na | 3 | 21s"
    result = run(given, build)
    assert_rows(
        result,
        """
        k | what   | n
        a | record | 1
        a | record | 2
        a | result | 1
        a | record | 3
        a | result | 1
        a | result | 1
        """,
    )
    assert result.account.late == 0


def test_a_record_without_a_time_fails_and_moves_nothing() -> None:
    def build(stream: Stream) -> Stream:
        named = stream.with_event_time("at", on_error="skip")
        return named.key_by("k").tumbling("10s").count().select("k", "count")

    given = "k | ts | at: timestamp?\na | 1s | 1s\nb | 50s | null\nc | 3s | 3s"
    result = run(given, build)
    assert_rows(result, "k | count\na | 1\nc | 1")
    assert (result.account.skipped, result.account.late) == (1, 0)


def test_a_far_time_of_a_source_moves_nothing() -> None:
    job = plait.Job("test")
    job.source(table("ts\n0s"), event_time="ts", max_jump=None).tumbling("1s").count().sink(
        Capture()
    )
    watermarks = Watermarks(job.graph())
    times = [(0,), (2**62 + 1,), (2**62,), (5,)]
    watermarks.read(0, times, 0, over=False, idle=False, stamp=0)
    assert [mark.times[0] for mark in watermarks.marks] == [0, 0, 2**58, 2**58, 2**58]


def test_branches_with_a_named_time_and_without_meet() -> None:
    def build(stream: Stream) -> Stream:
        some = stream.filter(col("k") == "a").with_event_time("ts")
        return beside(stream, plait.union(stream, some).key_by("k").tumbling("10s").count())

    # Time is the least of both: that of the records of a.
    given = "k | v | ts\na | 1 | 1s\nb | 2 | 15s\na | 3 | 11s\nb | 4 | 30s"
    result = run(given, build)
    assert_rows(
        result,
        """
        k | what   | n
        a | record | 1
        b | record | 2
        a | result | 2
        a | record | 3
        b | record | 4
        b | result | 1
        a | result | 2
        b | result | 1
        """,
    )


def test_nothing_waits_for_an_operator_that_no_record_passes_for_long() -> None:
    job = plait.Job("test")
    stream = job.source(table("k | ts\nx | 0s"), event_time="ts")
    some = stream.filter(col("k") == "a").with_event_time("ts", idle="30s")
    plait.union(stream, some).tumbling("10s").count().select("count").sink(Capture(), name="out")
    loop = Loop(job.graph())
    counts = []
    units: tuple[list[tuple[str, int]], ...]
    units = ([("a", 1)], [("b", 12)], [], [("b", 25)], [("a", 26)], [("b", 41)])
    for stamp, rows in zip((0, 20, 30, 31, 32, 33), units, strict=True):
        loop.unit(0, [(k, t * S) for k, t in rows], stamp=stamp * S)
        counts.append(len(loop.outputs["out"]))
    # Idle from 31 s on, behind the record at 25 s; the record of a counts again.
    assert counts == [0, 0, 0, 2, 2, 2]


def test_an_idle_source_counts_again_from_its_first_row() -> None:
    job = plait.Job("test")
    one = job.source(table("k | ts\nx | 0s"), event_time="ts")
    two = job.source(table("k | ts\nx | 0s"), event_time="ts")
    plait.union(one, two).key_by("k").tumbling("10s").count().sink(Capture(), name="out")
    loop = Loop(job.graph())
    ends = []
    for source, times, idle in [
        (0, [1], False),
        (1, [2], False),
        (0, [15], False),
        (1, [], True),  # the window of 10 s ends: nothing waits for the second source
        (0, [27], False),  # nor here: that of 20 s
        (1, [18, 28], False),  # late; then its time is 28 s
        (0, [], False),
        (0, [31], False),  # the second one is at 28 s and holds time back
    ]:
        loop.unit(source, [("x", time * S) for time in times], idle=idle)
        ends.append([values[2] // S for _, values in loop.outputs["out"]])
    assert ends == [[], [], [], [10], [10, 20], [10, 20], [10, 20], [10, 20]]
    assert loop.counts[3, "late"] == 1


class Quiet(Process):
    """Tells of five minutes of silence."""

    state: ClassVar[Mapping[str, Any]] = {"last": datetime.datetime}
    out: ClassVar[Any] = {"k": str, "since": datetime.datetime}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        state.last = record.ts
        timers.at(record.ts + datetime.timedelta(minutes=5))

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
        if at - state.last >= datetime.timedelta(minutes=5):
            yield key, state.last


@pytest.mark.parametrize("last", ["910s", "1200s"])
def test_silence_between_two_records_of_a_key_is_seen(last: str) -> None:
    given = f"k | ts\ndoor | 0s\ndoor | 20s\ndoor | 400s\ndoor | 420s\ndoor | 900s\ndoor | {last}"
    result = run(given, lambda s: s.key_by("k").process(Quiet()))
    # A record exactly five minutes behind another comes after the timer.
    more = ["900s"] if last == "1200s" else []
    assert_rows(result, "\n".join(["since", "20s", "420s", *more, last]))


class Past(Process):
    """Timers for times gone by."""

    state: ClassVar[Mapping[str, Any]] = {"left": int}
    out: ClassVar[Any] = {"k": str, "what": str, "n": int}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield key, "record", record.v
        state.left = record.v
        timers.at(record.ts - datetime.timedelta(seconds=1))

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield key, "timer", int((at - T0).total_seconds())
        state.left -= 1
        if state.left == -9:
            raise ValueError("nine below")
        if state.left:
            timers.at(at - datetime.timedelta(seconds=1))


def test_a_timer_for_a_time_gone_by_fires_behind_its_handler() -> None:
    result = run("k | v | ts\na | 2 | 8s\nb | 1 | 9s", lambda s: s.key_by("k").process(Past()))
    assert_rows(
        result,
        """
        k | what   | n
        a | record | 2
        a | timer  | 7
        a | timer  | 6
        b | record | 1
        b | timer  | 8
        """,
    )


def test_a_timer_that_fails_at_once_ends_the_stream_at_its_record() -> None:
    job = plait.Job("test")
    stream = job.source(table("k | v | ts\na | 1 | 8s\nb | -8 | 9s\nc | 1 | 9s"), event_time="ts")
    stream.key_by("k").process(Past(), on_error="skip").sink(Capture(), name="out")
    stream.sink(Capture(), name="seen")
    result = sequential(job.graph())
    assert_rows(result, "what | n\nrecord | 1\ntimer | 7\nrecord | -8")
    assert result.failure is not None
    assert result.failure.row == 2
    assert len(result.outputs["seen"]) == 1


def test_a_timer_that_fails_at_a_mark_comes_before_the_record() -> None:
    class Waits(Past):
        def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
            yield key, "record", record.v
            state.left = -8
            timers.at(record.ts + datetime.timedelta(seconds=1))

    job = plait.Job("test")
    stream = job.source(table("k | v | ts\na | 1 | 8s\nb | 2 | 10s"), event_time="ts")
    stream.key_by("k").process(Waits()).sink(Capture(), name="out")
    stream.tumbling("1s").count().sink(Capture(), name="counts")
    stream.sink(Capture(), name="seen")
    result = sequential(job.graph())
    assert_rows(result, "what | n\nrecord | 1\n")
    assert result.failure is not None
    assert result.failure.row == 1
    # What is below row 1, half 0: the window that ends at the same mark is not.
    assert {label: len(rows) for label, rows in result.outputs.items()} == {
        "out": 1,
        "counts": 0,
        "seen": 1,
    }


def test_a_timer_that_sets_itself_in_the_past_for_ever_is_an_error() -> None:
    result = run("k | v | ts\na | -100000 | 8s", lambda s: s.key_by("k").process(Endless()))
    assert "on_timer of key 'a'" in str(result.failure)
    assert "10,000 times in a row" in str(result.failure)


class Endless(Past):
    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
        timers.at(at - datetime.timedelta(seconds=1))
        return iter(())
