"""Drives runs with checkpoints into crashes, and says what must be true of what they leave.

Everything that a run does to the world outside is counted: writes to the store, `prepare` and
`commit` of sinks. A crash is a number: at that event the run is abandoned, before or after it. So
one number covers a crash in a save, between seal and commit, between two sinks, or at the end. An
event can fail instead, as a full disk would; then the checkpoint is given up and the run goes on.
The next attempt has other workers, lanes and queues. What all of them showed together must be what
one sequential run gives over the cuts that the attempts really had.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow.parquet as pq
from hypothesis import strategies as st

from plait.checkpoints.config import Checkpoint
from plait.checkpoints.store import LocalStore, StoreFailed
from plait.connectors.files import Files
from plait.connectors.memory_sinks import Collect
from plait.errors import SinkError
from plait.execution import checkpointing
from plait.execution.checkpointing import Checkpointing
from plait.execution.local_run import LocalRun
from plait.graph.operators import CallOp, SinkOp, SourceOp
from plait.model.settings import Settings
from plait.testing import sequential
from plait.testing.check import compare_accounts, rows_of, rows_of_arrow, same_record
from plait.testing.crashes import (
    Durable,
    Lineage,
    abandon,
    open_gates,
    rows_in,
    with_durable_sinks,
    with_gates,
)
from plait.testing.difference import story

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.graph.operators import Graph
    from plait.results.result import Result
    from plait.testing.oracle import OracleResult

BIN_BITS = (3, 3, 0, 1, 6, 9)
EPOCHS = (1, 2, 3, 7, 64, 4096)
ALL = 1_000_000
"""More rows than any source has."""
MEMORY = "/dev/shm"
"""Where a flush costs nothing."""


class Crash(BaseException):
    """The process is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One life of a job."""

    settings: Mapping[str, Any]
    gates: tuple[int, ...] = ()
    """Rows of each source before each checkpoint; () leaves the sources alone."""
    free: int = 0
    """How many checkpoints are taken as fast as possible, after those."""
    crash_at: int | None = None
    """The event at which it ends; None: only when the job does."""
    fail_at: frozenset[int] = frozenset()
    """Events that fail."""
    busy: bool = False
    """Whether the sources go on between a mark and its save."""
    ticks: int = 0
    """How often sinks that may commit between checkpoints do it, around each checkpoint."""


@st.composite
def run_settings(draw: Any) -> dict[str, Any]:
    """Settings that may differ from attempt to attempt."""
    found: dict[str, Any] = {
        "workers": draw(st.integers(1, 4)),
        "queue": draw(st.sampled_from(["lanes", "lanes", "hybrid", "partitioned", "shared"])),
        "reorder": draw(st.sampled_from(["nonblocking", "locked"])),
        "lanes": draw(st.sampled_from([None, 1, 2, 4, 8])),
        "epoch_records": draw(st.sampled_from(EPOCHS)),
        "scheduler": draw(st.sampled_from(["ct", "lru"])),
        "threading": draw(st.sampled_from(["dynamic", "dynamic", "dedicated", "manual"])),
        "fuse": draw(st.booleans()),
        "bin_bits": draw(st.sampled_from(BIN_BITS)),
    }
    if draw(st.integers(0, 3)) == 0:
        found |= {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    return found


@st.composite
def attempts(
    draw: Any, chosen: Callable[[], Any] = run_settings, most: int = 4, rows: int = 40
) -> list[Attempt]:
    """Some attempts that crash, and a last one that does not."""
    found: list[Attempt] = []
    count = draw(st.integers(1, most))
    for n in range(count + 1):
        gated = draw(st.integers(0, 3)) > 0
        gates = draw(st.lists(st.integers(0, rows), min_size=1, max_size=4)) if gated else []
        found.append(
            Attempt(
                settings=draw(chosen()),
                gates=tuple(sorted(gates)),
                free=draw(st.integers(0, 3)),
                crash_at=draw(st.integers(0, 60)) if n < count else None,
                busy=draw(st.booleans()),
                ticks=draw(st.integers(0, 2)),
                fail_at=frozenset(draw(st.sets(st.integers(0, 60), max_size=2)))
                if draw(st.integers(0, 3)) == 0
                else frozenset(),
            )
        )
    return found


@dataclass(slots=True)
class Events:
    """Counts what a run does to the outside, and ends it where it must."""

    crash_at: int | None = None
    fail_at: frozenset[int] = frozenset()
    count: int = 0
    story: list[str] = field(default_factory=list)

    def before(self, what: str, *, fails: bool = True) -> None:
        at, self.count = self.count, self.count + 1
        self.story.append(f"{at}: {what}")
        if at == self.crash_at:
            raise Crash(what)
        if fails and at in self.fail_at:
            self.story[-1] += " fails"
            raise StoreFailed(f"event {at}, {what}: no space left on device")

    def wrap(self, what: str, call: Callable[..., Any], *, fails: bool = True) -> Any:
        """The call as two events: not done yet, and just done."""

        def counted(*given: Any) -> Any:
            self.before(f"before {what} {short(given)}", fails=fails)
            result = call(*given)
            self.before(f"after {what} {short(given)}", fails=False)
            return result

        return counted


def short(given: tuple[Any, ...]) -> str:
    return str(given[0]) if given else ""


class CountedStore(LocalStore):
    """A local store of which every change is an event."""

    def __init__(self, url: str, events: Events) -> None:
        super().__init__(Path(url))
        self.write = events.wrap("write", self.write)  # type: ignore[method-assign]
        self.create = events.wrap("create", self.create)  # type: ignore[method-assign]
        self.delete = events.wrap("delete", self.delete)  # type: ignore[method-assign]


@dataclass(slots=True)
class World:
    """A job, its folder, and the sinks that outlive its runs."""

    graph: Graph
    """Without gates, with durable sinks."""
    sinks: Mapping[str, Durable]
    letters: Durable
    folder: str
    lineage: Lineage = field(default_factory=Lineage)
    keep: int = 2
    shown: dict[str, int] = field(default_factory=dict)
    """Rows that were visible after the last attempt; they may never become fewer."""
    story: list[str] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        return [op.label for op in self.graph.operators if isinstance(op, SourceOp)]

    def live(self, attempt: Attempt) -> Result | None:
        """One attempt; its result, or None if it crashed."""
        events = Events(attempt.crash_at, attempt.fail_at)
        told = self.story
        told.append(f"attempt {attempt}")
        graph, gates = with_gates(self.graph) if attempt.gates else (self.graph, [])
        with mock.patch.object(checkpointing, "open_store", lambda url: CountedStore(url, events)):
            try:
                return self.run(graph, gates, attempt, events)
            except Crash as crash:
                told.append(f"crashed at {crash}")
                return None
            except StoreFailed as error:
                if "no space left" not in str(error):
                    raise
                told.append(f"could not start: {error}")
                return None
            finally:
                told += events.story
                self.check_shown()

    def check_shown(self) -> None:
        """Output that was visible stays so."""
        for label, sink in (*self.sinks.items(), ("letters", self.letters)):
            rows = sum(batch.num_rows for batch in sink.batches)
            assert rows >= self.shown.get(label, 0), f"{label} took back rows"
            self.shown[label] = rows

    def run(
        self, graph: Graph, gates: list[Any], attempt: Attempt, events: Events
    ) -> Result | None:
        config = Checkpoint(self.folder, every="1h", keep=self.keep)
        settings = Settings(**attempt.settings)
        saved = None
        try:
            saved = Checkpointing(graph, settings, config)
            if saved.manifest is not None and saved.manifest.finished:
                events.story.append("was finished")
                return saved.finished_result()
            epoch = saved.restored.epoch
            events.story.append(
                f"goes on from {'the start' if saved.manifest is None else saved.manifest.id}"
                f" at {epoch}, repeats up to {saved.restored.repeat_until}"
            )
            running = LocalRun(graph, settings, None, saved)
        except BaseException:
            if saved is not None:
                saved.close()
            raise
        self.lineage.begin(epoch, saved.restored.repeat_until)
        for op, writer in running.ends.writers.items():
            for name in ("prepare", "commit"):
                call = getattr(writer, name)
                fails = name == "prepare"
                setattr(writer, name, events.wrap(f"{name} of sink {op} at", call, fails=fails))
        try:
            return self.drive(running, saved, gates, attempt)
        except BaseException:
            abandon(running)
            raise
        finally:
            self.lineage.note(running, self.labels)

    def drive(
        self, running: LocalRun, saved: Checkpointing, gates: list[Any], attempt: Attempt
    ) -> Result:
        collect = saved.collect
        # A mark comes behind what is repeated: no gate may hold that back.
        restored = saved.restored
        script = restored.script or [()] * len(restored.rows)
        least = max(rows + sum(log[1::3]) for rows, log in zip(restored.rows, script, strict=True))
        gates_open = [max(most, least) for most in attempt.gates]
        for most, then in itertools.pairwise((*gates_open, ALL)):
            open_gates(gates, most, running)
            commit_between(saved, attempt.ticks > 0)
            if attempt.busy:
                saved.collect = partial(go_on, gates, then, running, collect, saved, attempt.ticks)
            self.take(saved)
            saved.collect = collect
        open_gates(gates, None, running)
        for _ in range(attempt.free):
            commit_between(saved, attempt.ticks > 0)
            self.take(saved)
        commit_between(saved, attempt.ticks > 0)
        return running.wait(progress=False)

    def take(self, saved: Checkpointing) -> None:
        try:
            saved.take()
        except StoreFailed as error:
            if "no space left" not in str(error):
                raise
            self.story.append(f"given up: {error}")


def go_on(
    gates: list[Any],
    most: int,
    running: LocalRun,
    collect: Callable[[], None],
    saved: Checkpointing,
    ticks: int,
) -> None:
    """Between a mark and its save the sources go on, and what they gave is worked on."""
    open_gates(gates, most, running)
    running.engine.wait(0.003)
    commit_between(saved, ticks > 1)
    collect()


def commit_between(saved: Checkpointing, really: bool) -> None:
    """What the thread of a run does now and then."""
    committer = saved.committer
    if committer is not None and really and not saved.saver.parts.engine.wait(0.0):
        for op in committer.sinks:
            committer.commit(op)


def world_of(graph: Graph, folder: str, deciders: int = 0, commits: Sequence[bool] = ()) -> World:
    """`deciders`: so many of the sinks decide; `commits`: which of these commit between
    checkpoints."""
    operators = [
        op
        if getattr(op, "on_error", "skip") != "fail" or isinstance(op, SourceOp)
        else dataclasses.replace(op, on_error="dead_letter")
        for op in graph.operators
    ]
    operators = [
        dataclasses.replace(op, repeatable=True) if isinstance(op, CallOp) else op
        for op in operators
    ]
    plain = dataclasses.replace(graph, name="random", operators=tuple(operators))
    labels = [op.label for op in plain.operators if isinstance(op, SinkOp)][:deciders]
    often = {label: "1h" for label, does in zip(labels, commits, strict=False) if does}
    made, sinks, letters = with_durable_sinks(plain, labels, often)
    return World(made, sinks, letters, folder)


def survive(
    graph: Graph, plan: Sequence[Attempt], *, deciders: int = 0, commits: Sequence[bool] = ()
) -> World:
    """Runs the job through all its attempts, and compares what it showed with the plain loop."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        world = world_of(graph, folder, deciders, commits)
        try:
            result = None
            for attempt in plan:
                result = world.live(attempt)
                if result is not None:
                    break
            if result is None:  # the last one could not write, at its end
                result = world.live(dataclasses.replace(plan[-1], fail_at=frozenset()))
            assert result is not None
            compare(world, result)
            again = world.live(dataclasses.replace(plan[-1], fail_at=frozenset()))
            assert again is not None
            assert again.account == result.account
            compare_sinks(world, right_answer(world))
        except BaseException as error:
            error.add_note("\n".join(world.story))
            raise
    return world


def survive_with(graph: Graph, plan: Sequence[Attempt], kind: str) -> None:
    """The same with a sink of plait's own in place of the first one."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        world = world_of(graph, f"{folder}/checkpoints")
        label, number = next(
            (op.label, i) for i, op in enumerate(world.graph.operators) if isinstance(op, SinkOp)
        )
        sink: Any = Collect() if kind == "collect" else Files(f"{folder}/out", format="parquet")
        schema = world.graph.operators[number].schema
        try:
            sink.check(schema)
        except SinkError:  # a column that no file can hold
            sink = Collect()
        operators: list[Any] = list(world.graph.operators)
        operators[number] = dataclasses.replace(operators[number], sink=sink)
        world.graph = dataclasses.replace(world.graph, operators=tuple(operators))
        world.sinks = {name: one for name, one in world.sinks.items() if name != label}
        try:
            result = None
            for attempt in (*plan, dataclasses.replace(plan[-1], fail_at=frozenset())):
                result = world.live(attempt)
                if result is not None:
                    break
            assert result is not None
            compare(world, result)
            wanted = right_answer(world)
            if isinstance(sink, Collect):
                rows = rows_of_arrow(result.outputs[label], schema)
            else:
                paths = sorted(Path(folder, "out").glob("part-*"))
                tables = [pq.read_table(path).cast(schema.to_arrow()) for path in paths]
                rows = [row for table in tables for row in rows_of_arrow(table, schema)]
            told = story(f"{kind} {label}", schema, rows, wanted.beyond[label], "right")
            assert not told, told
        except BaseException as error:
            error.add_note("\n".join(world.story))
            raise


def right_answer(world: World) -> OracleResult:
    """The sequential run over the cuts that the attempts had."""
    return sequential(world.graph, cuts=world.lineage.cuts, stamps=world.lineage.stamps_set())


def compare(world: World, result: Result) -> None:
    for op in world.graph.operators:
        if isinstance(op, SourceOp):
            read = sum(world.lineage.cuts[op.label])
            assert read == rows_in(op.source), f"{op.label}: {read} rows of {rows_in(op.source)}"
    wanted = right_answer(world)
    assert wanted.failure is None, wanted.failure
    compare_sinks(world, wanted)
    compare_accounts("the last attempt", result, wanted)
    compare_letters(world, result, wanted)


def compare_sinks(world: World, wanted: OracleResult) -> None:
    for label, sink in world.sinks.items():
        rows = rows_of(sink, wanted.schemas[label])
        told = story(f"sink {label}", wanted.schemas[label], rows, wanted.beyond[label], "right")
        assert not told, told


def compare_letters(world: World, result: Result, wanted: OracleResult) -> None:
    """All letters are in the sink, in order; those since the last restart in the result."""
    rows = [row for batch in world.letters.batches for row in batch.to_pylist()]
    places = [(row["operator"], row["at"], row["source"], row["row"]) for row in rows]
    right = [(one.operator, one.at, one.source, one.row) for one in wanted.dead_letters]
    assert places == right, f"letters {places}\n  should be {right}"
    last = wanted.dead_letters[len(right) - len(result.dead_letters) :]
    for ours, theirs in zip(result.dead_letters, last, strict=True):
        assert (ours.operator, ours.at, ours.row) == (theirs.operator, theirs.at, theirs.row)
        assert same_record(ours.record, theirs.record)
