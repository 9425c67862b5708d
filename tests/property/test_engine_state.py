"""State that leaves a running job: snapshots at any moment, bins taken out and put back.

A snapshot holds the state and the positions of one epoch boundary, so the job that goes on from it
gives exactly the rest of the output, whatever the workers and lanes of either run. Bins that are
taken and put back before more rows come change nothing. Bytes that are damaged are refused, and
the job goes on as if nothing had been said.
"""

from __future__ import annotations

import dataclasses
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.connectors.memory_sources import Table
from plait.errors import Interrupted, StateError
from plait.execution.local_run import LocalRun, start
from plait.expr import aggregates
from plait.graph.operators import AggregateOp, FoldOp, Graph, SourceOp, StatefulOp
from plait.streams.job import Job
from plait.testing import Capture, Feed, sequential
from plait.testing.check import capturing, rows_of
from plait.testing.difference import story
from plait.testing.random_jobs import graphs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plait.graph.snapshot import Snapshot
    from plait.streams.stream import Stream

Rows = list[Any]
slow = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
BIN_BITS = 3


@st.composite
def run_settings(draw: Any) -> dict[str, Any]:
    return {
        "workers": draw(st.integers(1, 4)),
        "queue": draw(st.sampled_from(["lanes", "hybrid", "partitioned", "shared"])),
        "reorder": draw(st.sampled_from(["nonblocking", "locked"])),
        "lanes": draw(st.sampled_from([None, 1, 2, 4, 8])),
        "epoch_records": draw(st.sampled_from([1, 3, 4096])),
        "queue_batches": draw(st.sampled_from([2, 32])),
        "bin_bits": BIN_BITS,
        "timeout_s": 60.0,
    }


@contextmanager
def ended(running: LocalRun) -> Iterator[LocalRun]:
    """A running job that is over afterwards, also when the test fails."""
    try:
        yield running
    except BaseException:
        running.abort()
        with suppress(Interrupted):
            running.wait()
        raise


def fed(graph: Graph, sizes: Sequence[int]) -> tuple[Graph, dict[str, list[Rows]]]:
    """The graph without the policy "fail", with a feed for each source, and what to push there."""
    nodes: list[Any] = []
    pushes: dict[str, list[Rows]] = {}
    for node in graph.operators:
        if isinstance(node, SourceOp):
            source = node.source
            rows: Rows = source.arrow().to_pylist() if isinstance(source, Table) else list(source)
            pushes[node.label] = parts(rows, sizes)
            nodes.append(dataclasses.replace(node, source=Feed(node.schema)))
        else:
            policy = "skip" if node.on_error == "fail" else node.on_error
            nodes.append(dataclasses.replace(node, on_error=policy))
    return dataclasses.replace(graph, operators=tuple(nodes)), pushes


def parts(rows: Rows, sizes: Sequence[int]) -> list[Rows]:
    found: list[Rows] = []
    at = 0
    for size in sizes:
        found.append(rows[at : at + size])
        at += size
    return [part for part in [*found, rows[at:]] if part]


def refilled(graph: Graph, pushes: Mapping[str, list[Rows]], closed: bool) -> Graph:
    """The graph with feeds of its own that hold the pushes."""
    nodes: list[Any] = []
    for node in graph.operators:
        if isinstance(node, SourceOp):
            feed = Feed(node.schema)
            for part in pushes[node.label]:
                feed.push(part)
            if closed:
                feed.close()
            nodes.append(dataclasses.replace(node, source=feed))
        else:
            nodes.append(node)
    return dataclasses.replace(graph, operators=tuple(nodes))


def feeds(graph: Graph) -> dict[str, Feed]:
    found: dict[str, Feed] = {}
    for node in graph.operators:
        if isinstance(node, SourceOp):
            assert isinstance(node.source, Feed)
            found[node.label] = node.source
    return found


def outputs(sinks: Mapping[str, Capture], graph: Graph) -> dict[str, list[Any]]:
    schemas = {getattr(node, "label", ""): node.schema for node in graph.operators}
    return {label: rows_of(sink, schemas[label]) for label, sink in sinks.items()}


def assert_rows(title: str, graph: Graph, got: Mapping[str, list[Any]], want: Any) -> None:
    schemas = {getattr(node, "label", ""): node.schema for node in graph.operators}
    for label, rows in got.items():
        told = story(f"{title}: {label}", schemas[label], rows, want[label], "sequential")
        assert not told, told


@slow
@given(
    drawn=graphs(max_rows=40),
    sizes=st.lists(st.integers(1, 8), max_size=6),
    early=st.integers(0, 4),
    first=run_settings(),
    second=run_settings(),
)
def test_a_snapshot_at_any_moment_gives_the_rest(
    drawn: Graph,
    sizes: list[int],
    early: int,
    first: dict[str, Any],
    second: dict[str, Any],
) -> None:
    graph, pushes = fed(drawn, sizes)
    graph, sinks = capturing(graph)
    second["epoch_records"] = first["epoch_records"]
    running = start(graph, **first)
    for label, feed in feeds(graph).items():
        for part in pushes[label][:early]:
            feed.push(part)
    snapshot = running.snapshot()
    for label, feed in feeds(graph).items():
        for part in pushes[label][early:]:
            feed.push(part)
        feed.close()
    done = running.wait()
    whole = refilled(graph, pushes, closed=True)
    cuts = {label: list(sizes) for label, sizes in done.cuts.items()}
    right = sequential(whole, epoch_records=first["epoch_records"], cuts=cuts)
    assert_rows("the first run", graph, outputs(sinks, graph), right.beyond)

    again, later = capturing(refilled(graph, pushes, closed=True))
    rest = start(again, state=snapshot, **second).wait()
    before = {label: sizes[: snapshot.epoch] for label, sizes in cuts.items()}
    joined = {label: before[label] + list(rest.cuts[label]) for label in cuts}
    prefix = sequential(whole, epoch_records=first["epoch_records"], cuts=before)
    right = sequential(whole, epoch_records=first["epoch_records"], cuts=joined)
    want = {label: rows[len(prefix.beyond[label]) :] for label, rows in right.beyond.items()}
    assert_rows("the resumed run", graph, outputs(later, graph), want)


def two_states(rows: Stream) -> None:
    """A native aggregate and a Python fold over the same rows, each with a sink."""
    rows.key_by("k").aggregate(
        n=aggregates.count(), total=aggregates.sum("v"), last=aggregates.last("s")
    ).sink(Capture(), name="native")
    rows.key_by("s").fold([], listed, type=object).sink(Capture(), name="python")


def listed(state: Any, record: Any) -> Any:
    return [*state[-2:], record.v]


def job_of(build: Any = two_states) -> tuple[Graph, Feed, dict[str, Capture]]:
    job = Job("states")
    feed = Feed({"k": int, "s": str, "v": int})
    build(job.source(feed, name="feed"))
    graph, sinks = capturing(job.graph())
    return graph, feed, sinks


def keepers(graph: Graph) -> list[int]:
    kinds = (AggregateOp, FoldOp, StatefulOp)
    return [i for i, node in enumerate(graph.operators) if isinstance(node, kinds)]


record = st.tuples(st.integers(0, 9), st.sampled_from(["", "a", "b", "é" * 40]), st.integers(-5, 5))
ALL_BINS = range(1 << BIN_BITS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Bins that are taken out behind a push, and what is done to their bytes meanwhile."""

    rows: Rows
    keeper: int
    bins: list[int]
    damage: str
    place: float

    def damaged(self, held: bytes) -> bytes:
        at = int(self.place * (len(held) - 1))
        match self.damage:
            case "bit":
                return held[:at] + bytes([held[at] ^ 1 << int(self.place * 7)]) + held[at + 1 :]
            case "short":
                return held[:at]
            case "long":
                return held + b"\x00"
        return b""


moves = st.builds(
    Move,
    rows=st.lists(record, min_size=1, max_size=12),
    keeper=st.integers(0, 1),
    bins=st.lists(st.sampled_from(ALL_BINS), unique=True),
    damage=st.sampled_from(["bit", "bit", "short", "long", "none"]),
    place=st.floats(0, 1),
)


@slow
@given(plan=st.lists(moves, min_size=1, max_size=6), chosen=run_settings())
def test_bins_taken_and_put_back_change_nothing(plan: list[Move], chosen: dict[str, Any]) -> None:
    graph, feed, sinks = job_of()
    with ended(start(graph, **chosen)) as running:
        pushed = 0
        for move in plan:
            feed.push(move.rows)
            pushed += len(move.rows)
            wait_until_read(running, pushed)  # no row may come between taking and putting
            node = keepers(graph)[move.keeper]
            taken = running.take_bins(node, move.bins)
            assert sorted(taken) == sorted(move.bins)
            for number, held in taken.items():
                with pytest.raises(StateError, match="put at epoch"):
                    running.put_bins(node, {number: move.damaged(held)})
            running.put_bins(node, taken)
        feed.close()
        running.wait()
    right = sequential(graph, epoch_records=chosen["epoch_records"])
    assert_rows("taken and put", graph, outputs(sinks, graph), right.beyond)


@slow
@given(
    pushed=st.lists(st.lists(record, min_size=1, max_size=12), min_size=1, max_size=6),
    split=st.integers(0, 6),
    first=run_settings(),
    second=run_settings(),
)
def test_all_bins_move_to_another_run(
    pushed: list[Rows], split: int, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """Bins leave one engine and come into another, which has other lanes."""
    graph, feed, sinks = job_of()
    other, other_feed, other_sinks = job_of()
    one = start(graph, **first)
    for part in pushed[:split]:
        feed.push(part)
    wait_until_read(one, sum(map(len, pushed[:split])))
    moved = {node: one.take_bins(node, ALL_BINS) for node in keepers(graph)}
    feed.close()
    one.wait()
    two = start(other, **second)
    for node, bins in moved.items():
        two.put_bins(node, bins)
    for part in pushed[split:]:
        other_feed.push(part)
    other_feed.close()
    two.wait()
    whole = refilled(graph, {"feed": pushed}, closed=True)
    right = sequential(whole, epoch_records=4096)
    mine, theirs = outputs(sinks, graph), outputs(other_sinks, other)
    joined = {label: mine[label] + theirs[label] for label in mine}
    assert_rows("moved", graph, joined, right.beyond)


def wait_until_read(running: LocalRun, rows: int) -> None:
    while running.engine.records_read() < rows:
        running.snapshot()


def test_snapshots_while_records_flow() -> None:
    """Snapshot after snapshot of a job that never pauses; each resumes to the same end."""
    graph, feed, _ = job_of()
    rows = [(i % 7, "ab"[i % 2], i) for i in range(600)]
    running = start(graph, workers=4, epoch_records=2, bin_bits=BIN_BITS, queue_batches=4)

    def push() -> None:
        for i in range(0, len(rows), 3):
            feed.push(rows[i : i + 3])
        feed.close()

    pusher = threading.Thread(target=push)
    pusher.start()
    found: list[Snapshot] = []
    while pusher.is_alive() or not found:
        with suppress(StateError):  # the job may end meanwhile
            found.append(running.snapshot())
    pusher.join()
    running.wait()
    whole = refilled(graph, {"feed": [rows]}, closed=True)
    right = sequential(whole)
    for snapshot in found[:: max(1, len(found) // 5)]:
        again, sinks = capturing(graph)
        start(again, state=snapshot, workers=2, bin_bits=BIN_BITS).wait()
        got = outputs(sinks, graph)
        rest = {label: rows[len(rows) - len(got[label]) :] for label, rows in right.beyond.items()}
        assert_rows(f"epoch {snapshot.epoch}", graph, got, rest)
        push_at, row_at = snapshot.positions["feed"]
        assert len(got["native"]) == len(rows) - 3 * push_at - row_at


def test_a_table_at_a_rate_is_resumed_twice() -> None:
    """The position of a resumed run counts from the beginning of the table."""
    job = Job("table")
    rows = {"k": [i % 5 for i in range(3000)]}
    source = Table(pa.table(rows), rate_per_s=4000.0)
    job.source(source, name="table").key_by("k").count().sink(Capture(), name="out")
    state: Snapshot | None = None
    positions: list[int] = []
    for _ in range(3):
        graph, sinks = capturing(job.graph())
        running = start(graph, state=state, workers=2)
        wait_until_read(running, 100)
        state = running.snapshot()
        positions.append(state.positions["table"])
        running.stop()
        running.wait()
        begin = positions[-2] if len(positions) > 1 else 0
        counts = [row[1] for row in outputs(sinks, graph)["out"]]
        assert counts[: positions[-1] - begin] == [i // 5 + 1 for i in range(begin, positions[-1])]
    assert positions == sorted(positions)
    assert positions[0] >= 100


def test_taken_bins_start_anew() -> None:
    graph, feed, sinks = job_of()
    running = start(graph, workers=2, bin_bits=BIN_BITS)
    feed.push([(1, "a", 1), (1, "a", 2)])
    wait_until_read(running, 2)
    (native, python) = keepers(graph)
    running.take_bins(native, ALL_BINS)
    running.take_bins(python, ALL_BINS)
    feed.push([(1, "a", 3)])
    feed.close()
    running.wait()
    got = outputs(sinks, graph)
    assert got["native"] == [(1, 1, 1, "a"), (1, 2, 3, "a"), (1, 1, 3, "a")]
    assert got["python"] == [("a", [1]), ("a", [1, 2]), ("a", [3])]


class TestRefusals:
    """What cannot be is refused in words, and the job goes on."""

    @pytest.fixture
    def running(self) -> Any:
        graph, feed, _ = job_of()
        running = start(graph, workers=2, bin_bits=BIN_BITS)
        feed.push([(1, "a", 1)])
        yield running
        feed.close()
        assert running.wait().account.read == 1

    def test_an_operator_without_state(self, running: LocalRun) -> None:
        with pytest.raises(StateError, match="operator 0 keeps no state"):
            running.take_bins(0, [1])
        with pytest.raises(StateError, match="operator 99 keeps no state"):
            running.put_bins(99, {1: b""})

    def test_a_bin_that_is_not_there(self, running: LocalRun) -> None:
        node = keepers(running.graph)[0]
        with pytest.raises(StateError, match="there is no bin 8: bins go from 0 to 7"):
            running.take_bins(node, [0, 8])
        with pytest.raises(StateError, match="there is no bin -1"):
            running.put_bins(node, {-1: b""})

    def test_bytes_of_another_operator(self, running: LocalRun) -> None:
        wait_until_read(running, 1)
        native, python = keepers(running.graph)
        for here, there in ((native, python), (python, native)):
            bins = running.take_bins(here, ALL_BINS)
            with pytest.raises(StateError, match=r"put at epoch \d+: "):
                running.put_bins(there, bins)
            running.put_bins(here, bins)

    def test_a_bin_that_is_there_already(self, running: LocalRun) -> None:
        wait_until_read(running, 1)
        for node in keepers(running.graph):
            snapshot = running.snapshot()
            bins = {bin: held for owner, bin, held in snapshot.bins if owner == node}
            with pytest.raises(StateError, match="already"):
                running.put_bins(node, bins)

    def test_a_snapshot_of_another_job(self, running: LocalRun) -> None:
        snapshot = running.snapshot()
        graph, _, _ = job_of(lambda rows: rows.sink(Capture()))
        assert not keepers(graph)
        wait_until_read(running, 1)
        with pytest.raises(StateError, match="keeps none in this job"):
            start(graph, state=running.snapshot())
        renamed = dataclasses.replace(snapshot, positions={"other": [0, 0]})
        with pytest.raises(StateError, match="positions of other; this job's sources are feed"):
            start(graph, state=renamed)


@pytest.mark.parametrize("where", [0, 1])
def test_a_damaged_snapshot_is_refused_before_the_first_record(where: int) -> None:
    graph, feed, _ = job_of()
    running = start(graph, bin_bits=BIN_BITS)
    feed.push([(1, "a", 1)])
    wait_until_read(running, 1)
    snapshot = running.snapshot()
    feed.close()
    running.wait()
    node, bin, held = snapshot.bins[where]
    bins = list(snapshot.bins)
    bins[where] = (node, bin, held[:-1] + bytes([held[-1] ^ 1]))
    again, sinks = capturing(graph)
    with pytest.raises(StateError, match="the snapshot: "):
        start(again, state=dataclasses.replace(snapshot, bins=tuple(bins)), bin_bits=BIN_BITS)
    assert {sink.ended for sink in sinks.values()} == {"abort"}
    with pytest.raises(StateError, match="the snapshot: "):
        start(capturing(graph)[0], state=snapshot, bin_bits=BIN_BITS + 1)


def test_a_job_that_has_ended_has_no_state_left() -> None:
    graph, feed, _ = job_of()
    feed.close()
    running = start(graph)
    running.wait()
    with pytest.raises(StateError, match="the job ended"):
        running.snapshot()
