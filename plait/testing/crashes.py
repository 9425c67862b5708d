"""Runs with checkpoints that crash: ends that live on when a run is abandoned, and the abandoning.

A crash in this process is a run of which nothing more is done: the engine is ended, the writers are
dropped without `close` or `abort`, and the folder is free for the next run, as after `kill -9`.
`Durable` is a sink whose "disk" stays; what a run has shown there must stay visible for ever.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Delivered, Kind, Reader, Resume, Sink, Source, Wait, Writer
from plait.connectors.memory_sources import Table
from plait.graph.operators import Graph, SourceOp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.execution.local_run import LocalRun
    from plait.model.schema import Schema

STILL_S = 0.05
"""A source that has not moved for so long waits for another one."""


class Durable(Sink):
    """A sink of a job with checkpoints that keeps its batches where a test finds them, also when a
    run is abandoned: a follower, or a decider.

    >>> sink = Durable()
    >>> sink.kind, sink.batches
    ('follower', [])
    """

    def __init__(self, label: str = "", kind: Kind = "follower", commit: str | None = None) -> None:
        self.label = label
        self.kind = kind
        self.commit = commit
        self.notes = b""
        """What was given with the boundary."""
        self.disk: dict[str, list[Any]] = {}
        """Parts that are safe, by name."""
        self.shown: list[str] = []
        """The names of those that are visible, in order."""
        self.boundary = 0
        """Before which all is visible."""
        self.writers = 0
        """How many runs have opened it: only the last one may commit."""
        self.ended = ""

    @property
    def batches(self) -> list[Any]:
        """What is visible."""
        return [batch for name in self.shown for batch in self.disk[name]]

    def survey(self, seen: Any) -> Delivered | None:
        self.writers += 1  # older writers are fenced
        return Delivered(self.boundary, self.notes) if self.boundary else None

    def open(self, schema: Schema, resume: Resume | None = None) -> Writer:
        if resume is None:
            raise AssertionError(f"sink {self.label} was opened without a checkpoint to go on from")
        if self.kind == "decider":
            self.expect_own(resume)
        else:
            self.go_back(list(resume.position or ()), resume.boundary)
        self.ended = ""
        self.writers += 1
        return DurableWriter(self, resume.run)

    def expect_own(self, resume: Resume) -> None:
        """A decider goes on from where it is itself."""
        if resume.boundary != self.boundary:
            raise AssertionError(
                f"sink {self.label} is at boundary {self.boundary}, not {resume.boundary}"
            )
        position: list[str] = list(resume.position or ())
        if position[: len(self.shown)] != self.shown[: len(position)]:
            raise AssertionError(
                f"sink {self.label} has shown {self.shown}; the checkpoint has {position}"
            )
        self.disk = {name: self.disk[name] for name in self.shown}

    def go_back(self, position: list[str], boundary: int) -> None:
        """A follower shows what the checkpoint has."""
        if self.shown != position[: len(self.shown)]:
            raise AssertionError(
                f"sink {self.label} has shown {self.shown}; the checkpoint takes back some of it,"
                f" it has {position}"
            )
        self.disk = {name: self.disk[name] for name in position}
        self.shown, self.boundary = position, boundary


class DurableWriter(Writer):
    """Its rows are lost in a crash, but for those of parts that were prepared."""

    def __init__(self, sink: Durable, run: str) -> None:
        self.sink = sink
        self.run = run
        self.number = sink.writers
        self.rows: list[Any] = []
        self.parts: list[tuple[int, list[Any]]] = []
        """Of each mark since the last commit: its boundary and its rows."""
        self.names = list(sink.shown)
        """All before the boundary that was prepared last."""
        self.marked = self.prepared = 0

    def write(self, batch: Any) -> None:
        self.rows.append(batch)

    def mark(self, boundary: int) -> None:
        before = max(self.sink.boundary, self.marked)  # the same again: nothing came since
        self.expect(
            boundary > before or (boundary == before and not self.rows), f"mark({boundary})"
        )
        self.marked = boundary
        if self.rows:
            self.parts.append((boundary, self.rows))
            self.rows = []

    def prepare(self, boundary: int) -> list[str]:
        if self.sink.commit is not None:  # what it has shown, wherever it is
            return list(self.sink.shown)
        self.expect(boundary == self.marked, f"prepare({boundary})")
        self.put_on_disk(boundary)
        return list(self.names)

    def put_on_disk(self, boundary: int) -> None:
        self.names = list(self.sink.shown)
        for at, rows in self.parts:  # those of checkpoints that were given up, too
            name = f"{self.run}/{at}"
            self.sink.disk[name] = rows
            self.names.append(name)
        self.prepared = boundary

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        self.expect(self.number == self.sink.writers, f"commit({boundary}) of an older run")
        if self.sink.commit is not None:
            self.expect(boundary == self.marked, f"commit({boundary})")
            self.put_on_disk(boundary)
        self.expect(boundary == self.prepared, f"commit({boundary})")
        self.sink.shown, self.sink.boundary = list(self.names), boundary
        self.sink.notes = notes
        self.parts = [part for part in self.parts if part[0] > boundary]

    def expect(self, right: bool, what: str) -> None:
        if not right:
            raise AssertionError(
                f"sink {self.sink.label}: {what} is out of turn; shown up to {self.sink.boundary},"
                f" marked {self.marked}, prepared {self.prepared}"
            )

    def close(self) -> None:
        self.expect(not self.rows and not self.parts, "close() with rows that are not visible")
        self.sink.ended = "close"

    def abort(self) -> None:
        self.sink.ended = "abort"


class Gated(Source):
    """Another source, of which no more rows are read than a test allows. Its positions are those
    of the other, and the number of rows before them unless they say that number themselves: then
    the other source can go on without the gate.

    >>> gated = Gated(plait.Items([1, 2, 3]))
    >>> reader = gated.open()
    >>> gated.most = 2
    >>> reader.poll(10).num_rows, reader.poll(10)
    (2, Wait(seconds=0.001))
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.schema, self.label = source.schema, source.label
        self.bounded, self.fixed = source.bounded, source.fixed
        self.most: int | None = 0
        """How many rows may be read, since the beginning; None: all."""
        self.over = False
        self.read = 0

    def nulls(self, column: str) -> int:
        return self.source.nulls(column)

    def position_at(self, row: int) -> Any:
        return self.source.position_at(row)

    def row_at(self, position: Any) -> int:
        return self.source.row_at(position)

    def open(self, position: Any = None) -> Reader:
        rows = self.rows_before(position)
        self.read, inner = position if rows is None else (rows, position)
        self.over = False
        return GatedReader(self, self.source.open(inner))

    def rows_before(self, position: Any) -> int | None:
        """The number of rows before a position of the other source, if that is what it says."""
        with suppress(TypeError, ValueError):
            return self.source.row_at(position)
        return None

    def is_at_gate(self) -> bool:
        """Whether it has given all that it may."""
        return self.over or (self.most is not None and self.read >= self.most)


class GatedReader(Reader):
    def __init__(self, gate: Gated, reader: Any) -> None:
        self.gate = gate
        self.reader = reader

    def poll(self, max_rows: int) -> Any:
        gate = self.gate
        left = max_rows if gate.most is None else min(max_rows, gate.most - gate.read)
        if left <= 0:
            return Wait(0.001)
        answer = self.reader.poll(left)
        if answer is None:
            gate.over = True
        elif not isinstance(answer, Wait):
            gate.read += answer.num_rows if hasattr(answer, "num_rows") else len(answer)
        return answer

    def position(self) -> Any:
        inner = self.reader.position()
        said = self.gate.rows_before(inner) == self.gate.read
        return inner if said else [self.gate.read, inner]

    def log_choices(self, again: Sequence[bytes]) -> Any:
        forward = getattr(self.reader, "log_choices", None)
        return None if forward is None else forward(again)

    def close(self) -> None:
        self.reader.close()


def with_gates(graph: Graph) -> tuple[Graph, list[Gated]]:
    """The graph with gates in front of its sources."""
    gates: list[Gated] = []
    operators: list[Any] = []
    for op in graph.operators:
        if isinstance(op, SourceOp):
            gates.append(Gated(op.source))
            operators.append(dataclasses.replace(op, source=gates[-1]))
        else:
            operators.append(op)
    return dataclasses.replace(graph, operators=tuple(operators)), gates


def open_gates(gates: list[Gated], most: int | None, running: LocalRun) -> None:
    """Lets each source read so many rows, and waits until it has; in order of time one may have to
    wait for another."""
    for gate in gates:
        gate.most = most
    if most is None:
        return
    read, since = -1, time.monotonic()
    while not all(gate.is_at_gate() for gate in gates) and not running.engine.wait(0.001):
        now = sum(gate.read for gate in gates)
        if now != read:
            read, since = now, time.monotonic()
        elif time.monotonic() - since > STILL_S:
            return


def with_durable_sinks(
    graph: Graph, deciders: Sequence[str] = (), commit: Mapping[str, str] | None = None
) -> tuple[Graph, Mapping[str, Durable], Durable]:
    """The graph with a durable sink in place of each of its own, and one for its dead letters.
    Those with the labels `deciders` decide, and commit as often as `commit` says."""
    from plait.graph.operators import SinkOp

    sinks: dict[str, Durable] = {}
    operators: list[Any] = []
    for op in graph.operators:
        if isinstance(op, SinkOp):
            kind: Kind = "decider" if op.label in deciders else "follower"
            sinks[op.label] = Durable(op.label, kind, (commit or {}).get(op.label))
            operators.append(dataclasses.replace(op, sink=sinks[op.label]))
        else:
            operators.append(op)
    letters = Durable("dead-letters")
    made = dataclasses.replace(graph, operators=tuple(operators), dead_letters=letters)
    return made, sinks, letters


@dataclass(slots=True)
class Lineage:
    """The epochs that the attempts of a job had, each up to where the next one went on."""

    cuts: dict[str, list[int]] = field(default_factory=dict)
    stamps: dict[str, list[int]] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    """Sources that were at their end before the attempt began."""
    repeated: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Of each source: cuts and stamps that must come again, in the attempt that begins."""

    def begin(self, epoch: int, until: int = 0) -> None:
        """An attempt goes on from an epoch: what others did behind it does not count. Epochs before
        `until` are repeated."""
        self.repeated = {}
        for label, sizes in self.cuts.items():
            stamps = self.stamps.get(label) or [0] * len(sizes)
            some = slice(epoch, until)
            self.repeated[label] = list(zip(sizes[some], stamps[some], strict=False))
        self.over = {label for label, sizes in self.cuts.items() if len(sizes) < epoch}
        self.cuts = {label: sizes[:epoch] for label, sizes in self.cuts.items()}
        self.stamps = {label: sizes[:epoch] for label, sizes in self.stamps.items()}

    def note(self, running: LocalRun, labels: Sequence[str]) -> None:
        """Adds the epochs of an attempt, when it is over."""
        self.add(
            {label: running.engine.cuts(i) for i, label in enumerate(labels)},
            {label: running.engine.stamps(i) for i, label in enumerate(labels)},
        )

    def add(self, cuts: Mapping[str, list[int]], stamps: Mapping[str, list[int]]) -> None:
        """Adds the epochs of an attempt: of each source the rows of each epoch since it began, and
        when it was cut, if the job uses that clock."""
        for label, sizes in cuts.items():
            if label in self.over:
                if any(sizes):
                    raise AssertionError(f"{label} was at its end, and then gave {sizes}")
                continue
            times = stamps.get(label) or [0] * len(sizes)
            before = self.repeated.get(label, [])
            again = list(zip(sizes, times, strict=False))[: len(before)]
            if again != before[: len(again)]:
                raise AssertionError(f"{label} had {before}, and now {again}")
            self.cuts.setdefault(label, []).extend(sizes)
            self.stamps.setdefault(label, []).extend(stamps.get(label) or [])

    def stamps_set(self) -> dict[str, list[int]]:
        """Those of sources that have any."""
        return {label: found for label, found in self.stamps.items() if any(found)}


def abandon(running: LocalRun) -> None:
    """Ends a run as a crash would: nothing is closed, committed or aborted."""
    running.abort()
    if not running.ended:
        running.end_workers()
    saved = running.saved
    assert saved is not None
    saved.ending = True
    saved.wake.set()
    if saved.thread.is_alive():
        saved.thread.join()
    if saved.committer is not None:
        saved.committer.end()
    for reader in running.ends.readers:
        reader.close()
    for writer in running.ends.writers.values():
        thread = getattr(writer, "thread", None)  # of a user's writer: it ends, the writer does not
        if thread is not None:
            thread.end()
    saved.close()


def rows_in(source: Any) -> int:
    """How many rows a table has."""
    return source.arrow().num_rows if isinstance(source, Table) else len(source)
