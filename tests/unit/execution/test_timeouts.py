"""Timers by the wall clock, `timers.after` and `on_timeout`: the plain loop and the engine."""

from __future__ import annotations

import datetime
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import plait
from plait.execution.local_run import start
from plait.testing import Capture, Feed, assert_same, sequential
from plait.testing.check import rows_of
from plait.testing.check_nodes import assert_same_on_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMA = {"k": str, "v": int}
MS = 1_000


class Silent(plait.Process):
    """Tells of keys of which nothing has come for a while, and when."""

    state: ClassVar[Mapping[str, Any]] = {"last": plait.Timestamp, "sum": int}
    out: ClassVar[Any] = {"k": str, "what": str, "sum": int, "at": plait.Timestamp}

    def __init__(self, patience: str = "10ms", fails: bool = False) -> None:
        self.patience = patience
        self.fails = fails

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        state.sum += record.v
        state.last = timers.now
        timers.after(self.patience)
        yield key, "record", state.sum, timers.now

    def on_timeout(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
        if self.fails and state.sum > 4:
            raise ValueError("no more")
        yield key, "silent", state.sum, at
        if state.sum % 2:
            state.sum += 1
            timers.after(self.patience)


def job_of(source: Any, process: plait.Process) -> plait.Job:
    job = plait.Job("timeouts")
    job.source(source, "in").key_by("k").process(process).sink(Capture(), name="out")
    return job


def rows(*given: tuple[str, int]) -> Any:
    return plait.Items([{"k": k, "v": v} for k, v in given], schema=SCHEMA)


def shown(result: Any) -> list[tuple[Any, ...]]:
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return [
        (k, what, total, (at - start) // datetime.timedelta(milliseconds=1))
        for k, what, total, at in result.outputs["out"]
    ]


def test_the_plain_loop_goes_by_the_stamps() -> None:
    """A timeout comes behind the first unit that was cut late enough, and all at the end."""
    graph = job_of(rows(("a", 2), ("b", 1), ("a", 2), ("c", 3)), Silent()).graph()
    stamps = {"in": [1000 * MS, 1004 * MS, 1013 * MS, 1013 * MS]}
    assert shown(sequential(graph, epoch_records=1, stamps=stamps)) == [
        ("a", "record", 2, 1000),
        ("b", "record", 1, 1004),
        ("a", "record", 4, 1013),
        ("a", "silent", 4, 1010),
        ("c", "record", 3, 1013),
        ("b", "silent", 1, 1014),
        ("a", "silent", 4, 1023),
        ("c", "silent", 3, 1023),
    ]


def test_a_clock_that_goes_back_stands_still() -> None:
    graph = job_of(rows(("a", 2), ("b", 2), ("a", 2)), Silent()).graph()
    found = shown(
        sequential(graph, epoch_records=1, stamps={"in": [1000 * MS, 900 * MS, 1011 * MS]})
    )
    assert [row[3] for row in found if row[1] == "record"] == [1000, 1000, 1011]


def test_a_stream_needs_no_event_time_for_it() -> None:
    records = plait.stream(rows(("a", 2), ("b", 3))).key_by("k").process(Silent("1h")).collect()
    assert [(one.k, one.what) for one in records] == [
        ("a", "record"),
        ("b", "record"),
        ("a", "silent"),
        ("b", "silent"),
    ]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("patience", ["1us", "200us", "1h"])
def test_as_the_plain_loop(patience: str, fails: bool) -> None:
    given = rows(*((f"{n % 13}", n % 5) for n in range(300)))
    graph = job_of(given, Silent(patience, fails)).graph()
    assert_same(graph, {"workers": 2, "epoch_records": 3})
    assert_same_on_nodes(
        graph, {"workers": 2, "epoch_records": 3, "bin_bits": 4}, nodes=2, seed=len(patience)
    )


def test_time_goes_on_without_records() -> None:
    """A live source that is silent: the timeout comes all the same, and the run can be repeated."""
    feed = Feed(SCHEMA, "in")
    told = threading.Event()

    class Told(Silent):
        def on_timeout(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
            yield from super().on_timeout(key, at, state, timers)
            told.set()

    graph = job_of(feed, Told("5ms")).graph()
    running = start(graph, workers=2)
    feed.push([("a", 1)])
    assert told.wait(30)
    feed.push([("a", 2)])
    feed.close()
    result = running.wait()
    again = sequential(graph, cuts=result.cuts, stamps=result.stamps)
    sink = next(node.sink for node in graph.operators if hasattr(node, "sink"))
    schema = again.schemas["out"]
    assert again.outputs["out"] == rows_of(sink, schema)
    assert len(result.stamps["in"]) == len(result.cuts["in"]) > 2
    assert list(result.stamps["in"]) == sorted(result.stamps["in"])


def test_without_timeouts_there_are_no_stamps() -> None:
    result = plait.run(job_of(rows(("a", 1)), Quiet()))
    assert result.stamps == {}


class Quiet(plait.Process):
    out: ClassVar[Any] = {"k": str}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield (key,)


class Wishful(Quiet):
    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        timers.after("1s")
        yield (key,)


def test_mistakes() -> None:
    with pytest.raises(plait.JobError, match=r"Wishful.on_record calls timers.after.*on_timeout"):
        job_of(rows(("a", 1)), Wishful())
    with pytest.raises(plait.RecordError, match="5 is not a duration"):
        plait.run(job_of(rows(("a", 1)), Silent(5)))  # type: ignore[arg-type]

    class Wrong(Quiet):
        def on_timeout(self, key: Any) -> None: ...

    with pytest.raises(plait.JobError, match=r"Wrong|on_timeout"):
        job_of(rows(("a", 1)), Wrong())
