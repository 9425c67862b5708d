"""Writes one engine's part of a checkpoint, when a mark is through: bins, positions, counts, rows.

The mark has met every lane, source and sink between the same two epochs, so all that is read here
belongs to one boundary; some state is written only now, as it was at the mark, while the workers
go on, and what has not changed since the last sealed checkpoint is not written at all. The same on
one machine and on every node; who decides when, and makes the parts a checkpoint, is elsewhere.
Called by one thread at a time, beside the workers.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from plait.checkpoints.manifests import ManifestId, SinkEntry, SourceEntry
from plait.errors import StateError
from plait.graph.operators import SinkOp, SourceOp
from plait.node_runtime.assembly.engine_parts import RateEnd, TableEnd
from plait.node_runtime.host.committing import commit_sinks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.checkpoints.job_folder import JobFolder, PartWriter
    from plait.checkpoints.manifests import Claim, Part, PartRef
    from plait.graph.operators import Graph
    from plait.node_runtime.assembly.engine_parts import EngineParts
    from plait.node_runtime.host.committing import Committer
    from plait.node_runtime.host.endpoints import Ends
    from plait.node_runtime.native._control import ControlItem
    from plait.results.failures import Letters

TICK_S = 0.2
PATIENCE_S = 10.0

Counts = tuple[int, ...]
"""Of one operator, in the order of `COUNTED`."""


@dataclass(slots=True, kw_only=True)
class Saver:
    """Writes the parts of one engine, one after the other."""

    graph: Graph
    ids: Sequence[str]
    """The stable id of each operator."""
    parts: EngineParts
    ends: Ends
    letters: Letters | None
    folder: JobFolder
    claim: Claim
    rank: int = 0
    base: Mapping[str, Counts] = field(default_factory=dict)
    """Counts from before this engine, by operator."""
    before: Part | None = None
    """The part of the last sealed checkpoint: what did not change since is not written again."""
    part: Part | None = None
    """The part written last, and the bytes that were written for it."""
    written_bytes: int = 0
    hold_ms: float = 0.0
    """The longest time for which the last mark kept one holder of state from its work at a time."""
    closed: dict[str, Counts] = field(default_factory=dict)
    """Of each operator: the set of counts that the mark before the last one closed."""
    tables: dict[str, list[str]] = field(default_factory=dict)
    """Of each sink that keeps its rows: the names of the blobs with the earlier ones ..."""
    in_blobs: dict[str, int] = field(default_factory=dict)
    """... and how many of its batches are in them."""
    pending: dict[str, tuple[list[str], int]] = field(default_factory=dict)
    """The same, of a part that is being written."""
    committer: Committer | None = None
    """In a job that may have to repeat epochs, where the sinks are."""
    at_end: bool = False
    """The part of the end is written: the next commit is the last."""

    def save(self, number: int, item: ControlItem) -> PartRef:
        """Writes the part of the mark `item`, which has arrived at all sinks."""
        counts = self.counts_at_mark()  # at every mark, whatever becomes of it
        self.refuse_bad(item)
        writer = self.folder.part_writer(self.claim, number, self.rank, self.before)
        self.add_bins(writer, item)
        sinks = (*self.prepare_sinks(item.epoch), *self.kept_rows(writer, number))
        ref = writer.finish(
            epoch=item.epoch,
            sources=self.sources_at(item),
            sinks=sinks,
            counts=counts,
            letters=0 if self.letters is None else self.letters.before,
        )
        self.part, self.written_bytes = writer.part, writer.written_bytes
        return ref

    def add_bins(self, writer: PartWriter, item: ControlItem) -> None:
        """All state, as of the mark."""
        self.wait_written(item)
        self.refuse_bad(item)
        self.hold_ms = item.hold_ns / 1e6
        gone: dict[int, set[int]] = {op: set() for op in item.partial()}
        for op, bin, data in chain(item.bins(), iter(item.take_late, None)):
            if data or op not in gone:
                writer.add(self.ids[op], bin, data)
            else:
                gone[op].add(bin)
        if gone and (self.before is None or self.before.number != item.since):
            raise StateError(f"checkpoint {item.since} is not known here to be sealed")
        for op, bins in gone.items():
            writer.keep_rest(self.ids[op], bins)

    def wait_written(self, item: ControlItem) -> None:
        """Has written what the mark left to be written. Whoever holds a state lets go of it between
        two batches, unless a run that has ended left a function that does not return."""
        engine = self.parts.engine
        ended_at: float | None = None
        while not engine.save(item, TICK_S):
            if ended_at is None and engine.wait(0.0):
                ended_at = time.monotonic()
            if ended_at is not None and time.monotonic() - ended_at > PATIENCE_S:
                raise StateError("the run ended before the state at the mark was written")

    def confirm_sealed(self) -> None:
        """Looks whether the checkpoint of the last part is sealed: the next part may name again
        what is in it."""
        part = self.part
        if part is not None and part is not self.before:
            id = ManifestId(part.number, part.attempt)
            if id in self.folder.contents().manifests:
                self.confirm()

    def confirm(self) -> None:
        """The checkpoint of the last part is sealed."""
        self.before = self.part
        for id, (names, count) in self.pending.items():
            self.tables[id], self.in_blobs[id] = names, count

    def save_end(self, number: int, epoch: int) -> PartRef:
        """Writes the part of a run that has come to its end, when its workers have left: all rows
        are before the boundary, and there is no state to go on with."""
        self.at_end = True
        for marked in self.ends.writers.values():
            marked.mark(epoch)
        writer = self.folder.part_writer(self.claim, number, self.rank, self.before)
        sinks = (*self.prepare_sinks(epoch), *self.kept_rows(writer, number, at_end=True))
        sources = tuple(
            SourceEntry(id=self.ids[op], rows=self.total(op)[0]) for op in self.graph.sources
        )
        ref = writer.finish(
            epoch=epoch,
            sources=sources,
            sinks=sinks,
            counts={id: self.total(op) for op, id in enumerate(self.ids)},
            letters=0 if self.letters is None else self.letters.before,
        )
        self.part, self.written_bytes = writer.part, writer.written_bytes
        return ref

    def refuse_bad(self, item: ControlItem) -> None:
        if errors := item.errors():
            raise StateError(f"the state cannot be saved: {'; '.join(errors)}")

    def sources_at(self, item: ControlItem) -> tuple[SourceEntry, ...]:
        """Where the sources that are read here stood."""
        entries = []
        for op, (rows, handle, skip) in zip(self.graph.sources, item.positions(), strict=True):
            position = self.parts.engine.raised[handle] if handle >= 0 else None
            if isinstance(position, BaseException):
                label = self.source_op(op).label
                raise StateError(f"source {label} cannot tell its position: {position!r}")
            found = None if handle < 0 else [position, skip]
            counted = isinstance(self.ends.sources[op], (TableEnd, RateEnd))
            entries.append(
                SourceEntry(
                    id=self.ids[op],
                    position=found,
                    rows=rows,
                    input=self.source_op(op).source.position_at(rows) if counted else None,
                )
            )
        return tuple(entries)

    def prepare_sinks(self, boundary: int) -> tuple[SinkEntry, ...]:
        """What the writers give for the boundary; theirs and that of dead letters."""
        entries = []
        for number, writer in self.ends.writers.items():
            op = self.graph.operators[number]
            assert isinstance(op, SinkOp)
            with nullcontext() if self.committer is None else self.committer.lock:
                prepared = writer.prepare(boundary)
            entries.append(SinkEntry(id=self.ids[number], kind=op.sink.kind, prepared=prepared))
        if self.letters is not None and self.letters.writer is not None:
            kind = self.graph.dead_letters.kind
            prepared = self.letters.prepare(boundary)
            entries.append(SinkEntry(id=LETTERS, kind=kind, prepared=prepared))
        return tuple(entries)

    def kept_rows(
        self, writer: PartWriter, number: int, *, at_end: bool = False
    ) -> tuple[SinkEntry, ...]:
        """The rows of sinks that keep them, as blobs: those that are in none yet are written, the
        others named again."""
        entries = []
        for op, end in self.ends.sinks.items():
            if not end.keep:
                continue
            id = self.ids[op]
            batches = self.ends.kept_until_mark(op, self.parts, at_end=at_end)
            names = list(self.tables.get(id, ()))
            for name in names:
                writer.keep_blob(name)
            fresh = batches[self.in_blobs.get(id, 0) :]
            if fresh:
                names.append(f"{id}/{number}")
                writer.add_blob(names[-1], to_ipc(fresh))
            self.pending[id] = (names, len(batches))
            entries.append(SinkEntry(id=id, kind="follower", prepared=list(names)))
        return tuple(entries)

    def commit(self, boundary: int) -> None:
        """Output before the boundary becomes visible, letters last."""
        commit_sinks(
            self.committer,
            self.graph,
            self.ends.writers,
            boundary,
            self.letters,
            at_end=self.at_end,
        )

    def counts_at_mark(self) -> dict[str, Counts]:
        """The counts of all epochs before the mark: of the set that it closed, and of the other one
        as the mark before left it."""
        now = {id: tuple(self.parts.engine.closed_counts(op)) for op, id in enumerate(self.ids)}
        totals = {
            id: add(add(now[id], self.closed.get(id, ())), self.base.get(id, ())) for id in self.ids
        }
        self.closed = now
        return totals

    def total(self, op: int) -> Counts:
        return add(tuple(self.parts.engine.counts(op)), self.base.get(self.ids[op], ()))

    def source_op(self, op: int) -> SourceOp:
        found = self.graph.operators[op]
        assert isinstance(found, SourceOp)
        return found


LETTERS = "dead letters"
"""The id of the sink for dead letters."""


def add(first: Counts, second: Counts) -> Counts:
    """Both counts; an empty one counts nothing."""
    if not second:
        return first
    # An older checkpoint counts less: what it did not know was 0.
    return tuple(a + b for a, b in zip_longest(first, second, fillvalue=0))


def to_ipc(batches: Sequence[Any]) -> bytes:
    """Batches as an Arrow stream; at least one."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> list[Any]:
    """The batches of `to_ipc`."""
    import pyarrow as pa

    with pa.ipc.open_stream(data) as stream:
        return list(stream)
