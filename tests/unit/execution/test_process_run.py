"""Processes with timers in the engine: the same rows as the plain loop, in the same order.

Whatever the epochs, the workers and the nodes; also for records and timers that fail, and for a
run that goes on from a snapshot.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import plait
from plait.errors import RecordError, StateError
from plait.execution.local_run import start
from plait.functions.process import Process
from plait.graph.operators import SourceOp
from plait.testing import check, sequential
from plait.testing.check import capturing, graph_of, rows_of
from plait.testing.clock import Capture, Feed
from plait.testing.difference import story
from plait.testing.oracle import Loop
from plait.testing.oracle.epochs import epochs
from plait.testing.random_jobs.processes import Met, Watched
from tests.unit.node_runtime.state.process_jobs import (
    CLOCK,
    OUT,
    SECOND,
    Restless,
    Seen,
    given,
    rows,
    watched,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plait.graph.operators import Graph
    from plait.testing.oracle import OracleResult


@pytest.mark.parametrize("epoch_records", [1, 3, 64, 4096])
def test_rows_and_timers_come_as_in_the_plain_loop(epoch_records: int) -> None:
    check(
        lambda stream: stream.key_by("k").process(watched()),
        given(250, epoch_records),
        workers=(1, 2),
        epoch_records=epoch_records,
        **CLOCK,
    )


@pytest.mark.parametrize("on_error", ["fail", "skip", "dead_letter"])
@pytest.mark.parametrize("epoch_records", [1, 10, 4096])
def test_records_that_fail(on_error: Any, epoch_records: int) -> None:
    check(
        lambda stream: stream.key_by("k").process(watched(7), on_error=on_error),
        given(120, 3),
        workers=(1, 2),
        epoch_records=epoch_records,
        raises=RecordError if on_error == "fail" else None,
        **CLOCK,
    )


@pytest.mark.parametrize("epoch_records", [1, 5, 4096])
def test_two_streams_and_what_is_left_of_them(epoch_records: int) -> None:
    def build(left: Any, right: Any) -> Any:
        process = Met("v", ("ts", "ts"), 7 * SECOND)
        return plait.connect(left.key_by("k"), right.key_by("k")).process(process)

    check(
        build,
        (given(80, 1), given(120, 2)),
        workers=(1, 2),
        epoch_records=epoch_records,
        **CLOCK,
    )


def test_a_process_behind_filters_flat_maps_and_another_process() -> None:
    class Twice:
        def __call__(self, record: Any) -> list[Any]:
            return [record] * (record.v % 3)

    def build(stream: Any) -> Any:
        told = stream.filter(plait.col("v") % 2 == 0).key_by("k").process(watched(delay_s=3))
        return told.key_by("what").process(Watched("ts", "n", 4 * SECOND))

    check(build, given(150, 8), workers=(1, 2), epoch_records=9, **CLOCK)

    def repeated(stream: Any) -> Any:
        more = stream.flat_map(Twice(), schema=stream.schema)
        return more.key_by("k").process(Seen())

    check(repeated, given(60, 9), workers=(1, 2), epoch_records=7, **CLOCK)


@pytest.mark.parametrize("failing", [7, 47])
def test_a_record_that_fails_on_several_nodes(failing: int) -> None:
    check(
        lambda stream: stream.key_by("k").process(watched(failing)),
        given(120, 3, 12),
        workers=(2,),
        nodes=(2,),
        epoch_records=10,
        raises=RecordError if failing == 7 else None,
        **CLOCK,
    )


@pytest.mark.parametrize("rescale_at", [None, 6])
def test_on_several_nodes(rescale_at: int | None) -> None:
    def build(left: Any, right: Any) -> Any:
        both = plait.connect(left.key_by("k"), right.key_by("k"))
        met = both.process(Met("v", ("ts", "ts"), 7 * SECOND), on_error="skip")
        return met.key_by("key").process(Watched("ts", "n", 3 * SECOND, 5), on_error="dead_letter")

    check(
        build,
        (given(90, 4, 12), given(90, 5, 12)),
        workers=(2,),
        nodes=(2,),
        rescale_at=rescale_at,
        epoch_records=6,
        **CLOCK,
    )


def test_without_event_time_and_without_timers() -> None:
    check(lambda stream: stream.key_by("k", "v").process(Seen()), given(80, 2), epoch_records=11)


def test_numbers_as_keys() -> None:
    """-0.0 is 0.0, and NaN is no key."""
    import pyarrow as pa

    values = [1.5, -0.0, math.nan, 0.0, None, 1.5, math.nan, -0.0]
    table = pa.table({"k": pa.array(values, pa.float64())})
    for on_error in ("skip", "dead_letter", "fail"):
        check(
            lambda stream, policy=on_error: stream.key_by("k").process(Seen(), on_error=policy),
            table,
            epoch_records=3,
            raises=RecordError if on_error == "fail" else None,
        )


class Kinds(Process):
    """Changes every kind of state, and fails behind that on every fourth record."""

    state: ClassVar[Mapping[str, Any]] = {
        "whole": int,
        "real": float,
        "truth": bool,
        "text": str,
        "raw": bytes,
        "time": datetime.datetime,
        "many": list[int],
        "by_name": dict[str, float],
    }
    out: ClassVar[Any] = OUT

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        state.whole += record.v
        state.real = state.real / 2 + record.v
        state.truth = not state.truth
        state.text += "."
        state.raw += b"x"
        state.time = record.ts
        state.many.append(record.v)
        state.by_name[str(record.v % 3)] = state.real
        timers.at(record.ts + SECOND)
        yield key, repr(state), len(state.many)
        if record.v % 4 == 0:
            raise ValueError(f"{record.v} is a multiple of four")
        if record.v % 11 == 0:
            state.clear()

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield key, repr(state), time.second
        if state.many:
            state.many.pop()


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_state_of_all_types_is_as_before_a_failed_record(on_error: Any) -> None:
    check(
        lambda stream: stream.key_by("k").process(Kinds(), on_error=on_error),
        given(150, 6),
        workers=(1, 2),
        epoch_records=8,
        **CLOCK,
    )


@pytest.mark.parametrize("epoch_records", [1, 4, 4096])
def test_timers_that_set_timers(epoch_records: int) -> None:
    check(
        lambda stream: stream.key_by("k").process(Restless()),
        given(60, 7),
        workers=(1, 2),
        nodes=(2,),
        epoch_records=epoch_records,
        **CLOCK,
    )


class Broken(Process):
    """A timer that raises, or gives what does not fit."""

    state: ClassVar[Mapping[str, Any]] = {"seen": int}
    out: ClassVar[Any] = OUT

    def __init__(self, *, raises: bool) -> None:
        self.raises = raises

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        timers.at(record.ts + SECOND)
        yield key, "record", record.v

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
        state.seen += 1
        yield key, "timer", state.seen
        if state.seen == 4 and self.raises:
            raise KeyError(key)
        if state.seen == 4:
            yield key, "timer", "four"


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_timer_that_fails_ends_the_run(raises: bool, on_error: Any) -> None:
    """What comes before it is delivered, whatever the policy: there is no record to leave out."""

    def build(stream: Any) -> Any:
        return stream.key_by("k").process(Broken(raises=raises), on_error=on_error)

    check(
        build,
        given(50, 7),
        workers=(1, 2),
        nodes=(2,),
        epoch_records=6,
        raises=RecordError,
        **CLOCK,
    )
    graph, _ = capturing(graph_of(build, given(50, 7), CLOCK)[0])
    with pytest.raises(RecordError, match=r"on_timer of key 'k\d' at 2024-05-01 00:0") as failed:
        plait.run(graph)
    assert failed.value.operator == "process"
    assert isinstance(failed.value.__cause__, KeyError if raises else ValueError)


class Belated(Process):
    """Sets a timer for a time gone by, which fails for the third record."""

    state: ClassVar[Mapping[str, Any]] = {"seen": int}
    out: ClassVar[Any] = OUT

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        state.seen += 1
        timers.at(record.ts - SECOND)

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> None:
        if state.seen == 3:
            raise KeyError(key)


@pytest.mark.parametrize("epoch_records", [1, 2, 4096])
def test_a_timer_that_fails_comes_after_the_record_that_set_it(epoch_records: int) -> None:
    seconds = [datetime.datetime(2024, 5, 1, 0, 0, n, tzinfo=datetime.UTC) for n in range(5)]
    records = plait.Items([{"k": "a", "ts": second, "v": 1} for second in seconds])

    def build(stream: Any) -> Any:
        return stream.key_by("k").process(Belated())

    settings: Any = {"epoch_records": epoch_records, "event_time": "ts"}
    check(build, records, nodes=(1, 2), raises=RecordError, **settings)
    stream = build(plait.stream(records, event_time="ts"))
    with pytest.raises(RecordError, match=r"it was due after record 3 of source") as failed:
        stream.sink(plait.Discard()).run(epoch_records=epoch_records)
    assert failed.value.row == 3


class Impatient(Process):
    out: ClassVar[Any] = OUT

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        raise KeyboardInterrupt

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> None:
        """Never called."""


def test_an_interrupt_is_no_failed_record() -> None:
    graph, _ = graph_of(
        lambda stream: stream.key_by("k").process(Impatient(), on_error="skip"),
        given(5, 1),
        CLOCK,
    )
    with pytest.raises(KeyboardInterrupt):
        plait.run(graph)


def fed(process: Process) -> tuple[Graph, Feed, Capture]:
    """A job that reads a feed."""
    graph, _ = graph_of(lambda stream: stream.key_by("k").process(process), given(1, 1), CLOCK)
    graph, sinks = capturing(graph)
    nodes = list(graph.operators)
    for i, node in enumerate(nodes):
        if isinstance(node, SourceOp):
            feed = Feed(node.schema)
            nodes[i] = dataclasses.replace(node, source=feed)
    return dataclasses.replace(graph, operators=tuple(nodes)), feed, next(iter(sinks.values()))


@pytest.mark.parametrize("cut", [0, 1, 17, 30])
def test_a_run_goes_on_from_a_snapshot(cut: int) -> None:
    """Values, timers, their order and how far time is: all are in the snapshot."""
    records = rows(40, 11)
    graph, feed, sink = fed(watched())
    running = start(graph, workers=2)
    for record in records[:cut]:
        feed.push([record])
    snapshot = running.snapshot()
    for record in records[cut:]:
        feed.push([record])
    feed.close()
    done = running.wait()
    cuts = {label: list(sizes) for label, sizes in done.cuts.items()}
    assert_tail(graph, sink, sequential(graph, cuts=cuts), 0)

    again, feed, later = fed(watched())
    for record in records:
        feed.push([record])
    feed.close()
    rest = start(again, state=snapshot, workers=1).wait()
    label = next(iter(cuts))
    joined = {label: [*cuts[label][: snapshot.epoch], *rest.cuts[label]]}
    skipped = rows_before(again, joined[label], snapshot.epoch)
    assert_tail(again, later, sequential(again, cuts=joined), skipped)


def rows_before(graph: Graph, cuts: list[int], epoch: int) -> int:
    """How many rows the plain loop has delivered before an epoch."""
    loop = Loop(graph)
    number = graph.sources[0]
    source = graph.operators[number]
    assert isinstance(source, SourceOp)
    units = epochs(source, 4096, cuts, None, [])
    for _ in range(epoch):
        loop.unit(number, next(units))
    return len(loop.outputs["returned"])


def assert_tail(graph: Graph, sink: Capture, right: OracleResult, skipped: int) -> None:
    schema = right.schemas["returned"]
    told = story("out", schema, rows_of(sink, schema), right.beyond["returned"][skipped:], "right")
    assert not told, told


def test_a_damaged_snapshot_is_refused() -> None:
    graph, feed, _ = fed(watched())
    running = start(graph, workers=1)
    feed.push(rows(20, 3))
    snapshot = running.snapshot()
    while not any(len(data) > 100 for _, _, data in snapshot.bins):
        snapshot = running.snapshot()
    feed.close()
    running.wait()
    for cut, more in ((10, b""), (-1, b""), (-1, b"?")):
        bins = tuple((node, bin, data[:cut] + more) for node, bin, data in snapshot.bins)
        again, other, _ = fed(watched())
        other.close()
        with pytest.raises(StateError):
            start(again, state=dataclasses.replace(snapshot, bins=bins))
