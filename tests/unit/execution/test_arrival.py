"""Windows by arrival: the plain loop by stamps that a test gives, and the engine against the loop.

The stamps of a run are in its result, and with its cuts they repeat it exactly.
"""

from __future__ import annotations

import datetime
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.execution.local_run import start
from plait.graph.explain import explain
from plait.testing import Capture, Feed, assert_same, sequential
from plait.testing.changes import Join, Move
from plait.testing.check import rows_of
from plait.testing.check_nodes import assert_same_on_nodes
from plait.testing.oracle import Loop
from plait.testing.oracle.epochs import epochs

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph.operators import Graph
    from plait.streams.stream import Stream
    from plait.testing.oracle import OracleResult

SCHEMA = {"k": str, "v": int}
TIMED = {**SCHEMA, "ts": plait.Timestamp}
START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MS = 1_000
PATIENCE_S = 30
Made = list[tuple[Any, ...]]


def rows(*given: tuple[str, int]) -> Any:
    return plait.Items([{"k": k, "v": v} for k, v in given], schema=SCHEMA)


def graph_of(build: Callable[..., Stream], *sources: Any, **time: Any) -> Graph:
    job = plait.Job("arrival")
    streams = [job.source(source, f"in-{n}", **time) for n, source in enumerate(sources)]
    build(*streams).sink(Capture(), name="out")
    return job.graph()


def shown(result: OracleResult) -> Made:
    """The rows with times in milliseconds since 1970."""
    return [
        tuple(
            (one - START) / datetime.timedelta(milliseconds=1)
            if isinstance(one, datetime.datetime)
            else one
            for one in row
        )
        for row in result.outputs["out"]
    ]


def run_loop(build: Callable[[Stream], Stream], *units: tuple[int, str]) -> Made:
    """What the loop makes of units: the milliseconds of each, and a key for each of its records."""
    given = [(key, n) for n, key in enumerate("".join(keys for _, keys in units))]
    graph = graph_of(build, rows(*given))
    cuts = {"in-0": [len(keys) for _, keys in units]}
    stamps = {"in-0": [ms * MS for ms, _ in units]}
    result = sequential(graph, cuts=cuts, stamps=stamps)
    assert result.account.difference == 0
    return shown(result)


def test_a_window_ends_when_the_clock_passes_its_end() -> None:
    """In front of the records of the unit that comes then; the last at the end of the input."""
    made = run_loop(
        lambda s: s.key_by("k").tumbling("10ms", by="arrival").count(),
        (1000, "ab"),
        (1009, "a"),
        (1010, "ba"),
        (1031, "a"),
    )
    assert made == [
        ("a", 1000, 1010, 2),
        ("b", 1000, 1010, 1),
        ("b", 1010, 1020, 1),
        ("a", 1010, 1020, 1),
        ("a", 1030, 1040, 1),
    ]


def test_a_unit_without_records_ends_windows() -> None:
    """What it makes due comes there, in front of what comes later."""

    def both(s: Stream) -> Stream:
        counts = s.tumbling("10ms", by="arrival").count().select(what=col("count"))
        return plait.union(counts, s.select(what=-col("v")))

    assert run_loop(both, (1000, "ab"), (1010, ""), (1011, "a")) == [(0,), (-1,), (2,), (-2,), (1,)]


def test_a_stamp_that_goes_back_counts_as_the_one_before() -> None:
    made = run_loop(
        lambda s: s.tumbling("10ms", by="arrival").count(), (1000, "a"), (900, "a"), (1010, "a")
    )
    assert made == [(1000, 1010, 2), (1010, 1020, 1)]


def test_overlapping_windows() -> None:
    made = run_loop(
        lambda s: s.sliding("10ms", every="5ms", by="arrival").sum("v"), (1001, "aa"), (1006, "a")
    )
    assert made == [(995, 1005, 1), (1000, 1010, 3), (1005, 1015, 2)]


def test_sessions() -> None:
    """A unit exactly `gap` later begins another."""
    made = run_loop(
        lambda s: s.key_by("k").session(gap="5ms", by="arrival").count(),
        (1000, "aab"),
        (1004, "a"),
        (1006, ""),
        (1009, "ab"),
    )
    assert made == [
        ("b", 1000, 1005, 1),
        ("a", 1000, 1009, 3),
        ("a", 1009, 1014, 1),
        ("b", 1009, 1014, 1),
    ]


def test_early_results_and_complete_ones() -> None:
    made = run_loop(
        lambda s: (
            s.tumbling("10ms", early="4ms", complete="whole", by="arrival")
            .count()
            .select("count", "whole")
        ),
        (1000, "a"),
        (1003, "a"),
        (1004, "a"),
        (1009, ""),
        (1010, "a"),
    )
    assert made == [(2, False), (3, False), (3, True), (1, True)]


def test_what_is_behind_a_window_goes_by_its_end() -> None:
    """Results are in the window that they carry, and in the one that has the end of theirs."""

    def most(s: Stream) -> Stream:
        counts = s.key_by("k").tumbling("10ms", by="arrival").count()
        return counts.by_window().top(1, by="count").select("k", "count", "window_end")

    units = ((1000, "aab"), (1012, "b"), (1020, ""))
    assert run_loop(most, *units) == [("a", 2, 1010), ("b", 1, 1020)]
    made = run_loop(
        lambda s: s.tumbling("10ms", by="arrival").count().tumbling("20ms").sum("count"), *units
    )
    assert made == [(1000, 1020, 4)]


def test_windows_by_arrival_of_results() -> None:
    """They arrive when the clock has passed their end, or at the end of the input."""
    made = run_loop(
        lambda s: s.tumbling("10ms", by="arrival").count().tumbling("20ms", by="arrival").count(),
        (1000, "aab"),
        (1020, "b"),
        (1025, "b"),
    )
    assert made == [(1020, 1040, 2)]


def test_rows_that_come_when_the_input_has_ended() -> None:
    """The window by event time gives its result then; it arrives by the last stamp there was."""
    given = plait.Items([("a", 1, START), ("b", 2, START)], schema=TIMED)
    graph = graph_of(
        lambda s: s.tumbling("1h").count().tumbling("10ms", by="arrival").count(),
        given,
        event_time="ts",
    )
    assert shown(sequential(graph, stamps={"in-0": [1003 * MS]})) == [(1000, 1010, 1)]
    assert_same(graph, {"workers": 2})


def model(units: list[tuple[int, str]], size: int, every: int) -> Made:
    """A dict of dicts, by end and key."""
    open_windows: dict[int, dict[str, int]] = {}
    made: Made = []

    def close(now: float) -> None:
        for end in sorted(end for end in open_windows if end <= now):
            made.extend((k, end - size, end, n) for k, n in open_windows.pop(end).items())

    now = 0
    for stamp, keys in units:
        now = max(now, stamp)
        close(now)
        for key in keys:
            start = now - now % every
            while start + size > now:
                window = open_windows.setdefault(start + size, {})
                window[key] = window.get(key, 0) + 1
                start -= every
    close(float("inf"))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_as_a_dict_of_dicts(seed: int) -> None:
    chance = random.Random(seed)
    units: list[tuple[int, str]] = []
    stamp = 1000
    for _ in range(chance.randrange(40)):
        stamp += chance.choice((0, 1, 2, 3, 7, 30, -5))
        units.append((stamp, "".join(chance.choices("abc", k=chance.choice((0, 0, 1, 2, 5))))))
    size, every = chance.choice(((10, 10), (6, 2), (3, 3), (7, 4)))
    made = run_loop(
        lambda s: s.key_by("k").sliding(f"{size}ms", every=f"{every}ms", by="arrival").count(),
        *units,
    )
    assert made == model(units, size, every)


def chained(s: Stream) -> Stream:
    return s.key_by("k").tumbling("300us", by="arrival").count().by_window().top(1, by="count")


JOBS: dict[str, Callable[[Stream], Stream]] = {
    "tumbling": lambda s: s.key_by("k").tumbling("300us", by="arrival").sum("v"),
    "sliding": lambda s: s.sliding("300us", every="100us", by="arrival").count(),
    "session": lambda s: s.key_by("k").session(gap="200us", by="arrival").count(),
    "top": lambda s: s.tumbling("300us", by="arrival").top(2, by="v"),
    "early": lambda s: s.key_by("k").tumbling("1ms", early="200us", by="arrival").count(),
    "by window": chained,
    "a day": lambda s: s.key_by("k").tumbling("1d", by="arrival").count(),
    "beside its records": lambda s: (
        plait.union(
            s.select("k", n=col("v")),
            s.key_by("k")
            .tumbling("300us", by="arrival")
            .aggregate(n=plait.count())
            .select("k", "n"),
        )
        .key_by("k")
        .session(gap="200us", by="arrival")
        .sum("n")
    ),
}


def table(size: int) -> pa.Table:
    times = [START + plait.seconds(n) for n in range(size)]
    keys = [f"{n * 7919 % 13}" for n in range(size)]
    return pa.table({"k": keys, "v": list(range(size)), "ts": times})


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("kind", JOBS)
def test_as_the_plain_loop(kind: str, timed: bool) -> None:
    time = {"event_time": "ts", "out_of_order": "5s"} if timed else {}
    graph = graph_of(JOBS[kind], plait.Table(table(300)), **time)
    wanted = assert_same(graph, {"workers": 2, "epoch_records": 3})
    assert wanted.account.late == 0
    assert wanted.account.delivered > 0
    settings = {"workers": 2, "epoch_records": 3, "bin_bits": 4}
    assert_same_on_nodes(graph, settings, nodes=2, seed=len(kind))
    changes = (Move(owners={0: 1, 3: 1, 5: 1}, at=20), Join(bins=(1, 2, 8, 9), at=40))
    assert_same_on_nodes(graph, settings, nodes=2, changes=changes)


@pytest.mark.parametrize("workers", [1, 2])
def test_two_sources(workers: int) -> None:
    """Of both the clock is the greatest so far; one ends long before the other."""

    def build(one: Stream, two: Stream) -> Stream:
        return plait.union(one, two).key_by("k").tumbling("200us", by="arrival").count()

    graph = graph_of(build, plait.Table(table(60)), plait.Table(table(240)), event_time="ts")
    settings = {"workers": workers, "epoch_records": 4, "bin_bits": 4}
    assert_same(graph, settings)
    assert_same_on_nodes(graph, settings, nodes=3, seed=workers)


def test_windows_end_while_no_record_comes() -> None:
    feed = Feed(SCHEMA)
    graph = graph_of(lambda s: s.key_by("k").tumbling("5ms", by="arrival").count(), feed)
    sink = next(op.sink for op in graph.operators if hasattr(op, "sink"))
    running = start(graph, workers=2)
    feed.push([("a", 1), ("b", 2)])
    waited = 0
    while not sink.batches and waited < PATIENCE_S * 1000:
        running.engine.wait(0.001)
        waited += 1
    assert sink.batches, "no window ended while the source was silent"
    feed.push([("a", 3)])
    feed.close()
    result = running.wait()
    again = sequential(graph, cuts=result.cuts, stamps=result.stamps)
    assert again.outputs["out"] == rows_of(sink, again.schemas["out"])
    assert list(result.stamps["in-0"]) == sorted(result.stamps["in-0"])
    assert len(result.stamps["in-0"]) == len(result.cuts["in-0"]) > 2


@pytest.mark.parametrize("cut", [0, 1, 17, 30])
@pytest.mark.parametrize("kind", ["sliding", "session", "by window", "a day"])
def test_a_run_goes_on_from_a_snapshot(kind: str, cut: int) -> None:
    """Open windows and the clock are in it."""
    records = [(f"{n * 7919 % 5}", n) for n in range(40)]
    feed = Feed(SCHEMA)
    running = start(graph_of(JOBS[kind], feed), workers=2)
    for record in records[:cut]:
        feed.push([record])
    snapshot = running.snapshot()
    for record in records[cut:]:
        feed.push([record])
    feed.close()
    done = running.wait()

    feed = Feed(SCHEMA)
    graph = graph_of(JOBS[kind], feed)
    sink = next(op.sink for op in graph.operators if hasattr(op, "sink"))
    for record in records:
        feed.push([record])
    feed.close()
    rest = start(graph, state=snapshot, workers=1).wait()
    at = snapshot.epoch
    cuts = [*done.cuts["in-0"][:at], *rest.cuts["in-0"]]
    stamps = [*done.stamps["in-0"][:at], *rest.stamps["in-0"]]
    wanted = sequential(graph, cuts={"in-0": cuts}, stamps={"in-0": stamps})
    before = rows_until(graph, cuts[:at], stamps)
    assert rows_of(sink, wanted.schemas["out"]) == wanted.outputs["out"][before:]


def rows_until(graph: Graph, cuts: list[int], stamps: list[int]) -> int:
    """How many rows the loop has delivered behind these epochs."""
    loop = Loop(graph)
    units = epochs(graph.operators[0], 4096, cuts, None, [])  # type: ignore[arg-type]
    for unit, stamp in zip(units, stamps, strict=False):
        loop.unit(0, unit, stamp=stamp)
    return len(loop.outputs["out"])


def test_only_jobs_that_use_the_clock_have_stamps() -> None:
    stamped = graph_of(JOBS["a day"], rows(("a", 1)))
    assert plait.run(stamped).stamps.keys() == {"in-0"}
    assert plait.run(graph_of(lambda s: s.key_by("k").count(), rows(("a", 1)))).stamps == {}


def test_the_order_is_that_of_epochs() -> None:
    def build(one: Stream, two: Stream) -> Stream:
        return plait.union(one, two).key_by("k").tumbling("1d", by="arrival").count()

    both = graph_of(build, table(5), table(5), event_time="ts")
    assert "(epoch, source, row), not of time: count at test_arrival.py" in explain(both)
    assert ": by k, tumbling 1d by arrival: count=count()" in explain(both)
    for sources in (1, 2):
        graph = graph_of(lambda *s: build(s[0], s[-1]), *[table(5)] * sources, event_time="ts")
        with pytest.raises(plait.JobError, match=r'order="time".* has windows by arrival'):
            plait.run(graph, order="time")
        assert plait.run(graph, order="total").account.late == 0
