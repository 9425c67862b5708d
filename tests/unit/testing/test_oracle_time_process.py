"""Processes of the plain loop: their state, their timers and the order in which these fire."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import plait
from plait.functions.process import Process
from plait.testing import OracleResult, sequential, table
from plait.testing.clock import Capture
from plait.testing.difference import story

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OUT = {"key": str, "what": str, "n": int}


class Timed(Process):
    """A timer `v` seconds behind each record; every row says what happened."""

    state: ClassVar[Mapping[str, Any]] = {"seen": int, "names": list[str]}
    out: ClassVar[Any] = OUT

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        state.seen += 1
        state.names.append(str(record.v))
        if record.v < 0:
            raise ValueError("less than nothing")
        yield key, "record", state.seen
        timers.at(record.ts + datetime.timedelta(seconds=record.v))

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> list[Any]:
        found = [(key, "timer", time.second), (key, ",".join(state.names), state.seen)]
        state.clear()
        return found


class Again(Timed):
    """A timer that sets itself again, for ever."""

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> list[Any]:
        timers.at(time + datetime.timedelta(seconds=2))
        return [(key, "timer", time.second)]


class Broken(Timed):
    """A timer of the key b fails."""

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> list[Any]:
        if key == "b":
            raise ValueError("b")
        return [(key, "timer", time.second)]


class Pairs(Process):
    """What was left of a left record when the right one came."""

    state: ClassVar[Mapping[str, Any]] = {"left": int}
    out: ClassVar[Any] = OUT

    def on_left(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        state.left += record.v

    def on_right(self, key: Any, record: Any, state: Any, timers: Any) -> list[Any]:
        return [(key, record.w, state.left)]


def run(given: str, process: Process, *, epoch: int = 1, on_error: Any = "fail") -> OracleResult:
    job = plait.Job("test")
    stream = job.source(table(given), event_time="ts")
    stream.key_by("k").process(process, on_error=on_error).sink(Capture(), name="out")
    result = sequential(job.graph(), epoch_records=epoch)
    if result.failure is None:
        assert result.account.difference == 0
    return result


def assert_rows(result: OracleResult, expected: str) -> None:
    want = list(table(expected))
    told = story("out", result.schemas["out"], result.beyond["out"], want, "expected")
    assert not told, told


def test_timers_fire_by_time_and_then_as_they_were_set() -> None:
    result = run(
        """
        k | v | ts
        a | 5 | 1s
        b | 3 | 1s
        c | 4 | 2s
        a | 4 | 2s
        d | 0 | 9s
        """,
        Timed(),
    )
    assert_rows(
        result,
        """
        key | what: string | n
        a   | record       | 1
        b   | record       | 1
        c   | record       | 1
        a   | record       | 2
        b   | timer        | 4
        b   | "3"          | 1
        a   | timer        | 6
        a   | "5,4"        | 2
        c   | timer        | 6
        c   | "4"          | 1
        d   | record       | 1
        d   | timer        | 9
        d   | "0"          | 1
        """,
    )
    assert (result.account.absorbed, result.account.made) == (5, 13)


def test_a_timer_that_sets_itself_again_ends_with_the_job() -> None:
    result = run("k | v | ts\na | 1 | 0s\nb | 9 | 5s", Again())
    assert_rows(
        result,
        """
        key | what   | n
        a   | record | 1
        a   | timer  | 1
        a   | timer  | 3
        a   | timer  | 5
        b   | record | 1
        a   | timer  | 7
        b   | timer  | 14
        """,
    )


def test_a_record_that_fails_changes_nothing() -> None:
    given = "k | v | ts\na | 1 | 0s\na | -1 | 1s\na | 2 | 2s"
    result = run(given, Timed(), on_error="skip", epoch=3)
    assert_rows(
        result,
        """
        key | what: string | n
        a   | record       | 1
        a   | timer        | 1
        a   | "1"          | 1
        a   | record       | 1
        a   | timer        | 4
        a   | "2"          | 1
        """,
    )
    assert result.account.skipped == 1
    assert run(given, Timed()).failure is not None


def test_a_timer_that_fails_ends_the_stream() -> None:
    given = "k | v | ts\nc | 1 | 0s\na | 1 | 0s\nb | 1 | 0s\nc | 9 | 5s"
    result = run(given, Broken(), on_error="skip", epoch=3)
    assert_rows(
        result,
        "key | what | n\nc | record | 1\na | record | 1\nb | record | 1\n"
        "c | timer | 1\na | timer | 1",
    )
    assert result.failure is not None
    assert "on_timer of key 'b' at 1970-01-01 00:00:01+00:00: ValueError: b" in str(result.failure)
    assert (result.failure.source, result.failure.row) == ("source-1", 3)


def test_two_streams_share_the_state_of_a_key() -> None:
    job = plait.Job("test")
    left = job.source(table("k | v | ts\na | 1 | 0s\nb | 2 | 0s\na | 4 | 1s"), event_time="ts")
    right = job.source(table("id | w | ts\na | x | 0s\nc | y | 0s\na | z | 1s"), event_time="ts")
    both = plait.connect(left.key_by("k"), right.key_by("id")).process(Pairs())
    both.sink(Capture(), name="out")
    result = sequential(job.graph(), epoch_records=1)
    assert_rows(result, "key | what | n\na | x | 1\nc | y | 0\na | z | 5")
    assert result.account.difference == 0
