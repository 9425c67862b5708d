"""A run that is stopped gives no window as if it were complete, unless it is asked to.

Each job has one kind of operator that waits for time. It is stopped in the middle, on one thread,
on several, with worker processes and on nodes, and compared with the plain loop that stops at the
same place: outputs, accounts, and the number of results that were left out.
"""

from __future__ import annotations

import datetime
import os
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.execution.local_run import start
from plait.graph.operators import SourceOp, TimedOp
from plait.graph.temporal import ProcessSpec
from plait.testing import Capture, Feed, sequential
from plait.testing.changes import Join, Move, Stop
from plait.testing.check import capturing, compare_accounts, compare_outputs, rows_of
from plait.testing.check_nodes import assert_same_on_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.graph.operators import Graph
    from plait.protocol.messages import Finish
    from plait.streams.stream import Stream

ROWS = 120
BASE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = {"k": int, "n": int, "ts": plait.Timestamp, "until": plait.Timestamp}


def rows() -> list[tuple[Any, ...]]:
    """Some keys, a second apart, with a span of half a minute each."""
    seconds = [BASE + datetime.timedelta(seconds=n) for n in range(ROWS + 30)]
    return [(n * 7919 % 5, n, seconds[n], seconds[n + 30]) for n in range(ROWS)]


@dataclass
class Fired:
    k: int
    n: int


class Reminder(plait.Process):
    state: ClassVar = {"seen": int}
    out = Fired

    def on_record(self, key: int, record: Any, state: Any, timers: Any) -> None:
        state.seen += 1
        timers.at(record.ts + datetime.timedelta(seconds=20))

    def on_timer(self, key: int, at: Any, state: Any, timers: Any) -> Iterator[Fired]:
        yield Fired(key, state.seen)


def left_join(left: Stream, right: Stream, how: Any) -> Stream:
    some = right.filter(col("n") % 3 == 0).select("k", "ts", m="n")
    return left.join(some, on="k", between=("0s", "7s"), how=how)


JOBS: dict[str, Callable[[Stream, Stream], Stream]] = {
    "tumbling": lambda a, _: a.key_by("k").tumbling("10s").count(),
    "sliding": lambda a, _: a.key_by("k").sliding("12s", every="4s").aggregate(s=plait.sum("n")),
    "session": lambda a, _: a.key_by("k").session(gap="4s").count(),
    "top": lambda a, _: a.tumbling("10s").top(2, by="n"),
    "windows of windows": lambda a, _: (
        a.key_by("k").tumbling("5s").count().by_window().top(1, by="count")
    ),
    "marked": lambda a, _: a.key_by("k").tumbling("10s", complete="whole").count(),
    "marked panes": lambda a, _: (
        a.key_by("k").sliding("12s", every="4s", early="3s", complete="whole").count()
    ),
    "marked sessions": lambda a, _: (
        a.key_by("k").session(gap="4s", early="3s", complete="whole").count()
    ),
    "marked top": lambda a, _: a.tumbling("10s", complete="whole").top(2, by="n"),
    "marked windows of windows": lambda a, _: (
        a.key_by("k")
        .tumbling("5s", complete="whole")
        .count()
        .by_window(complete="all_whole")
        .top(1, by="count")
    ),
    "marked, two sources": lambda a, b: (
        plait.union(a, b).key_by("k").tumbling("10s", complete="whole").count()
    ),
    "by arrival": lambda a, _: a.key_by("k").tumbling("1d", by="arrival", complete="whole").count(),
    "sessions by arrival": lambda a, b: (
        plait.union(a, b).key_by("k").session(gap="1d", by="arrival", complete="whole").count()
    ),
    "left join": lambda a, b: left_join(a, b, "left"),
    "anti join": lambda a, b: left_join(a, b, "anti"),
    "inner join": lambda a, b: left_join(a, b, "inner"),
    "span": lambda a, b: a.join(
        b.select("k", "ts", m="n"), on="k", between=(col("ts"), col("until"))
    ).aggregate(s=plait.sum("m")),
    "timers": lambda a, _: a.key_by("k").process(Reminder()),
    "running": lambda a, _: a.key_by("k").count(),
}


def job_of(kind: str, first: Any, second: Any) -> Graph:
    job = plait.Job("stopped")
    left = job.source(first, name="a", event_time="ts")
    right = job.source(second, name="b", event_time="ts")
    JOBS[kind](left, right).sink(Capture(), name="out")
    right.filter(col("n") < 0).sink(plait.Discard(), name="none")
    return job.graph()


def check_stopped(graph: Graph, feeds: list[Feed], finish: Finish, **settings: Any) -> plait.Result:
    """Stops a run that has read all there is and waits for more; compares it with the loop."""
    captured, sinks = capturing(graph)
    running = start(captured, epoch_records=8, finish=finish, **settings)
    for feed in feeds:
        for at in range(0, ROWS, 10):
            feed.push(rows()[at : at + 10])
    while running.engine.records_read() < ROWS * len(feeds):
        running.engine.wait(0.001)
    running.stop()
    result = running.wait()
    assert result.stopped == ("a", "b")
    wanted = sequential(
        graph,
        epoch_records=8,
        cuts=result.cuts,
        stamps=result.stamps,
        stop_at=max(map(len, result.cuts.values())),
        finish=finish,
        stopped=result.stopped,
    )
    outputs = {label: rows_of(sink, wanted.schemas[label]) for label, sink in sinks.items()}
    compare_outputs("stopped", outputs, wanted, None)
    compare_accounts("stopped", result, wanted)
    assert result.unfinished == result.account.unfinished
    return result


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("finish", ["leave", "flush"])
@pytest.mark.parametrize("workers", [1, 4])
def test_what_is_not_complete(kind: str, finish: Finish, workers: int) -> None:
    feeds = [Feed(SCHEMA), Feed(SCHEMA)]
    result = check_stopped(job_of(kind, *feeds), feeds, finish, workers=workers)
    waits = finish == "leave" and kind not in ("running", "inner join")
    assert (result.unfinished > 0) == waits
    assert f"{result.unfinished:,} unfinished" in str(result.account) or not waits


@pytest.mark.parametrize("finish", ["leave", "flush"])
def test_timers_in_worker_processes(finish: Finish) -> None:
    feeds = [Feed(SCHEMA), Feed(SCHEMA)]
    graph = job_of("timers", *feeds)
    result = check_stopped(graph, feeds, finish, workers=2, pool=2)
    assert result.unfinished == (20 if finish == "leave" else 0)


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("finish", ["leave", "flush"])
def test_on_nodes(kind: str, finish: Finish) -> None:
    names = list(SCHEMA)
    table = pa.table({name: [row[i] for row in rows()] for i, name in enumerate(names)})
    graph = job_of(kind, plait.Table(table), plait.Table(table))
    changes = (Move(owners={0: 1, 3: 1}, at=3), Join(bins=(1, 2), at=5), Stop())
    settings = {"epoch_records": 8, "bin_bits": 2, "workers": 2, "finish": finish}
    wanted = assert_same_on_nodes(graph, settings, nodes=2, changes=changes)
    assert 0 < wanted.account.read < 2 * ROWS
    waits = finish == "leave" and kind not in ("running", "inner join")
    assert (wanted.account.unfinished > 0) == waits


def test_a_source_that_ends_by_itself_completes_everything() -> None:
    feeds = [Feed(SCHEMA), Feed(SCHEMA)]
    for feed in feeds:
        feed.push(rows())
        feed.close()
    result = plait.run(job_of("tumbling", *feeds))
    assert (result.stopped, result.unfinished) == ((), 0)


def test_what_hangs_on_a_source_at_its_end_is_complete() -> None:
    """The other source is stopped; what it reaches is left out."""
    ends, goes_on = Feed(SCHEMA), Feed(SCHEMA)
    job = plait.Job("half")
    done = plait.Collect()
    first = job.source(ends, name="a", event_time="ts")
    first.key_by("k").tumbling("10m").count().sink(done, name="done")
    second = job.source(goes_on, name="b", event_time="ts")
    second.key_by("k").tumbling("10m").count().sink(plait.Collect(), name="open")
    running = start(job, workers=2)
    ends.push(rows())
    ends.close()
    goes_on.push(rows()[:1])
    while running.engine.records_delivered() < 5:
        goes_on.push(rows()[:1])
        running.engine.wait(0.001)
    running.stop()
    result = running.wait()
    assert result.stopped == ("b",)
    assert (result.outputs["done"].num_rows, result.outputs["open"].num_rows) == (5, 0)
    assert result.unfinished == 1


def test_a_timeout_and_its_choice() -> None:
    for finish, given in (("leave", 0), ("flush", 5)):
        feed = Feed(SCHEMA)
        feed.push(rows())
        counts = plait.stream(feed, event_time="ts").key_by("k").tumbling("10m").count()
        counts.sink(plait.Collect(), name="out")
        with pytest.raises(plait.TimedOut) as caught:
            plait.run(counts.job, timeout=0.2, finish=finish)
        result = caught.value.result
        assert (result.outputs["out"].num_rows, result.unfinished) == (given, 5 - given)


@pytest.mark.parametrize("finish", ["leave", "flush"])
@pytest.mark.parametrize("settings", [{"workers": 1}, {"workers": 4}, {"workers": 2, "pool": 2}])
def test_ctrl_c_counts_them_too(finish: Finish, settings: dict[str, Any]) -> None:
    """Windows, sessions, joins and timers of one job, interrupted when all was read."""
    feed = Feed(SCHEMA)
    feed.push(rows())
    job = plait.Job("interrupted")
    source = job.source(feed, name="a", event_time="ts")
    for kind in ("tumbling", "session", "left join", "timers"):
        JOBS[kind](source, source).sink(plait.Collect(), name=kind)
    read = 0

    def count(_: Any) -> None:
        nonlocal read
        read += 1
        if read == ROWS:
            os.kill(os.getpid(), signal.SIGINT)

    source.sink(plait.Call(count), name="all")
    with pytest.raises(plait.Interrupted) as caught:
        plait.run(in_pool(job.graph()) if "pool" in settings else job, finish=finish, **settings)
    result = caught.value.result
    given = {label: n.num_rows for label, n in result.outputs.items() if label != "all"}
    whole = {
        label: len(rows)
        for label, rows in sequential(finished(job)).outputs.items()
        if label != "all"
    }
    left = sum(whole.values()) - sum(given.values())
    assert (left > 0) == (finish == "leave")
    assert result.unfinished == left


def in_pool(graph: Graph) -> Graph:
    """With its processes in worker processes."""
    operators = tuple(
        replace(op, route="pool")
        if isinstance(op, TimedOp) and isinstance(op.spec, ProcessSpec)
        else op
        for op in graph.operators
    )
    return replace(graph, operators=operators)


def finished(job: plait.Job) -> Graph:
    """The job, with a source that has ended."""
    feed = Feed(SCHEMA)
    feed.push(rows())
    feed.close()
    graph = job.graph()
    operators = tuple(
        replace(op, source=feed) if isinstance(op, SourceOp) else op for op in graph.operators
    )
    return replace(graph, operators=operators)


def test_a_wrong_choice_is_refused() -> None:
    stream = plait.stream([{"n": 1}])
    stream.sink(plait.Discard())
    with pytest.raises(plait.JobError, match=r'finish is .all.; .* "leave", "flush"'):
        plait.run(stream.job, finish="all")


def whole_of(stream: Any) -> list[tuple[int, bool]]:
    """The seconds at which windows end, and whether each was over."""
    return [(int((r.window_end - BASE).total_seconds()), r.whole) for r in stream]


def test_windows_at_the_end_of_their_source_are_over() -> None:
    stream = plait.stream(plait.Items(rows(), schema=SCHEMA), event_time="ts")
    windows = stream.tumbling("50s", complete="whole").count()
    assert windows.schema.names == ("window_start", "window_end", "count", "whole")
    assert whole_of(windows.collect()) == [(50, True), (100, True), (150, True)]


def test_early_results_are_not() -> None:
    stream = plait.stream(plait.Items(rows(), schema=SCHEMA), event_time="ts")
    windows = stream.tumbling("50s", early="30s", complete="whole").count()
    assert whole_of(windows.collect()) == [
        (50, False),
        (50, True),
        (100, False),
        (100, False),
        (100, True),
        (150, True),
    ]


def test_nor_are_windows_that_a_stopped_run_gives() -> None:
    feed = Feed(SCHEMA)
    records: list[Any] = []
    job = plait.Job("stopped")
    windows = job.source(feed, event_time="ts").tumbling("50s", complete="whole").count()
    windows.sink(plait.Call(records.append))
    running = start(job, finish="flush")
    feed.push(rows())
    while running.engine.records_read() < ROWS:
        running.engine.wait(0.001)
    running.stop()
    running.wait()
    assert whole_of(records) == [(50, True), (100, True), (150, False)]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s: s.tumbling("1s", complete="count").count(), "the name of another column"),
        (lambda s: s.tumbling("1s", complete="window_end").count(), "the name of another"),
        (lambda s: s.tumbling("1s", complete="n").top(1, by="n"), "the name of another column"),
        (lambda s: s.tumbling("1s", complete=True).count(), "must be the name of a column"),
        (lambda s: s.window(plait.Rows(3), complete="c").count(), "always complete"),
    ],
)
def test_what_complete_cannot_be(build: Any, words: str) -> None:
    stream = plait.stream(plait.Items(rows(), schema=SCHEMA), event_time="ts")
    with pytest.raises(plait.JobError, match=words):
        build(stream)
