"""What an engine takes in from a checkpoint before it starts.

`Restored` is everything of a manifest that a node, or a run on one machine, needs to go on at its
boundary, by the numbers of the job as it is now: operators are found by their stable ids. Reading
is checked by the store; here it is checked that it fits the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from plait.checkpoints.manifests import Part
from plait.connectors.base import Resume
from plait.connectors.memory_sinks import Collect
from plait.errors import StateError
from plait.graph.checkpoint_rules import LETTERS
from plait.graph.operators import SinkOp, SourceOp, TimedOp
from plait.node_runtime.host.endpoints import open_ends, table_of
from plait.node_runtime.host.manifest_making import restored_plans
from plait.node_runtime.host.saving import LETTERS as LETTERS_ID
from plait.node_runtime.host.saving import from_ipc
from plait.node_runtime.host.state_bins import read_state_bins
from plait.results.failures import Letters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.checkpoints.job_folder import JobFolder
    from plait.checkpoints.manifests import Manifest, SinkEntry, SourceEntry
    from plait.graph.operators import Graph
    from plait.node_runtime.assembly.engine_parts import EngineParts
    from plait.node_runtime.host.choosing import Chosen
    from plait.node_runtime.host.endpoints import Ends
    from plait.node_runtime.host.saving import Saver
    from plait.results.outcomes import Plan

SLICES = "slices"
"""The setting of a manifest that says how far the order of time was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A checkpoint, by the numbers of the job."""

    epoch: int
    rows: tuple[int, ...] = ()
    """Of each source: how many of its rows are before the boundary ..."""
    skips: tuple[int, ...] = ()
    """... and how many behind its position are, too."""
    slices: tuple[int, ...] = ()
    """How far the order of time was."""
    positions: Mapping[str, Any] = field(default_factory=dict)
    """Of each source, by its label."""
    resumes: Mapping[int, Resume] = field(default_factory=dict)
    """Of each sink."""
    letters: Resume | None = None
    """Of the sink for dead letters."""
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    kept: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Of each sink that keeps its rows: the blobs with those before the boundary."""
    script: Sequence[Sequence[int]] = ()
    """Of each source: what it repeats ..."""
    repeat_until: int = 0
    """... before this epoch; 0: nothing is repeated."""
    keeps: Sequence[Plan] = ()
    """What was kept of each query, from the beginning up to the boundary."""
    choices: Sequence[Sequence[bytes]] = ()
    """Of each source: what its reader chose for the epochs with rows that it repeats."""

    def put_into(self, parts: EngineParts) -> None:
        """Before the start: epochs and rows go on; at the beginning there is nothing to say."""
        self.repeat_on(parts)
        for epoch, kept in self.keeps:
            parts.engine.keep_from(epoch, kept)
        if not any((self.epoch, *self.rows, *self.skips)):
            return
        if not parts.engine.start_at(self.epoch, self.rows, self.skips, self.slices):
            raise StateError(
                "the checkpoint does not say how far the order of time was; it was taken in"
                ' another order: start with order="total"'
            )

    def repeat_on(self, parts: EngineParts) -> None:
        """Before the start: sources repeat what sinks have delivered."""
        if self.repeat_until:
            parts.engine.repeat(self.script, self.repeat_until)


def restore(
    graph: Graph, ids: Sequence[str], manifest: Manifest, run: str, chosen: Chosen | None = None
) -> Restored:
    """What the job takes over from a checkpoint; `run` is the name of the new attempt, `chosen`
    says how far its deciders are."""
    delivered = {} if chosen is None else chosen.delivered
    script = None if chosen is None else chosen.script
    sources = {entry.id: entry for entry in manifest.sources}
    sinks = {entry.id: entry for entry in manifest.sinks}
    rows, skips, positions = [], [], {}
    for op in graph.sources:
        source = graph.operators[op]
        assert isinstance(source, SourceOp)
        entry = sources.get(ids[op])
        rows.append(0 if entry is None else entry.rows)
        position, skip = position_of(entry)
        if entry is not None and entry.input is not None:
            source.source.row_at(entry.input)  # refuses other records
        skips.append(skip)
        positions[source.label] = position
    resumes, kept = {}, {}
    for op in graph.sinks:
        sink = graph.operators[op]
        assert isinstance(sink, SinkOp)
        found = sinks.get(ids[op])
        if type(sink.sink) is Collect:
            kept[op] = tuple(found.prepared or ()) if found is not None else ()
        resume = resume_of(found, manifest, run)
        resumes[op] = replace(resume, boundary=max(resume.boundary, delivered.get(op, 0)))
    letters = resume_of(sinks.get(LETTERS_ID), manifest, run)
    return Restored(
        epoch=manifest.epoch,
        rows=tuple(rows),
        skips=tuple(skips),
        slices=tuple(manifest.settings.get(SLICES, ())),
        positions=positions,
        resumes=resumes,
        letters=replace(letters, boundary=max(letters.boundary, delivered.get(LETTERS, 0))),
        counts=counts_of(manifest, ids),
        keeps=restored_plans(graph, ids, manifest.settings),
        kept=kept,
        script=() if script is None else script.logs([ids[op] for op in graph.sources]),
        repeat_until=0 if script is None else script.until,
        choices=() if script is None else script.choices([ids[op] for op in graph.sources]),
    )


def counts_of(manifest: Manifest, ids: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The counts that go on. Of a job with other operators they begin anew: what was counted at one
    that is gone would be missing in the account."""
    if not manifest.finished and set(manifest.counts) != set(ids):
        return {}
    return {id: tuple(numbers) for id, numbers in manifest.counts.items()}


def position_of(entry: SourceEntry | None) -> tuple[Any, int]:
    """Where a source is opened, and how many of its rows come again from there."""
    if entry is None:
        return None, 0
    if entry.position is None:
        return entry.rows or None, 0
    position, skip = entry.position
    return position, skip


def resume_of(entry: SinkEntry | None, manifest: Manifest, run: str) -> Resume:
    """A sink that is new in the job begins at the boundary."""
    prepared = None if entry is None else entry.prepared
    return Resume(position=prepared, boundary=manifest.epoch if entry is not None else 0, run=run)


def put_bins(
    graph: Graph,
    ids: Sequence[str],
    parts: EngineParts,
    folder: JobFolder,
    manifest: Manifest,
    bin_bits: int,
    mine: Callable[[int, int], bool] | None = None,
) -> int:
    """Puts the state of a checkpoint into an engine before its start: the bins for which `mine`
    says so, and of all others what they say of time. Gives the bytes that were put or passed."""
    size = 0
    errors: list[str] = []
    told: set[int] = set()
    for op, bin, data in read_state_bins(graph, ids, folder, manifest, bin_bits):
        size += len(data)
        if mine is None or mine(op, bin):
            errors += parts.engine.put_now([(op, bin, data)])
            told.add(op)
        elif op not in told and is_timed(graph, op):
            errors += parts.engine.put_now([(op, bin, head_of(data))])
            told.add(op)
    if errors:
        raise StateError(f"checkpoint {manifest.number}: {'; '.join(errors[:3])}")
    return size


def all_parts(folder: JobFolder, manifest: Manifest) -> Part:
    """The parts of a checkpoint as one: what the next part may name again."""
    parts = [folder.read_part(ref) for ref in manifest.parts]
    if not parts:
        return Part(
            number=manifest.number,
            attempt=manifest.attempt,
            rank=0,
            epoch=manifest.epoch,
            lineage=manifest.lineage,
            job=manifest.job,
        )
    chunks = {chunk.path: chunk for part in parts for chunk in part.chunks}
    return replace(
        parts[0],
        bins=tuple(ref for part in parts for ref in part.bins),
        blobs={name: ref for part in parts for name, ref in part.blobs.items()},
        chunks=tuple(chunks.values()),
    )


def put_rows(
    restored: Restored, ids: Sequence[str], saver: Saver, ends: Ends, manifest: Manifest
) -> None:
    """Gives sinks that keep their rows those from before the boundary; the next part names again
    what is in this checkpoint."""
    saver.before = all_parts(saver.folder, manifest)
    for op, batches in read_rows(restored, saver.folder, saver.before).items():
        if op in ends.sinks:
            ends.kept[op] = batches
            saver.tables[ids[op]] = list(restored.kept[op])
            saver.in_blobs[ids[op]] = len(batches)


def read_rows(restored: Restored, folder: JobFolder, part: Part) -> dict[int, list[Any]]:
    """Of each sink that keeps its rows: the batches from before the boundary."""
    return {
        op: [batch for name in names for batch in from_ipc(folder.read_blob(part.blobs[name]))]
        for op, names in restored.kept.items()
    }


def show_outputs(
    graph: Graph, ids: Sequence[str], restored: Restored, folder: JobFolder, manifest: Manifest
) -> dict[str, Any]:
    """What the sinks of a finished job gave, by their labels. They show it, if a crash came before
    they did."""
    ends = open_ends(graph, {}, set(graph.sinks), restored.resumes)
    kept = read_rows(restored, folder, all_parts(folder, manifest))
    outputs: dict[str, Any] = {}
    for number in graph.sinks:
        op = graph.operators[number]
        assert isinstance(op, SinkOp)
        if number in ends.writers:
            outputs[op.label] = ends.writers[number].close()
        elif number in kept:
            outputs[op.label] = table_of(kept[number], op.schema)
        else:
            outputs[op.label] = restored.counts[ids[number]][1]
    Letters(graph, restored.letters).close(True)
    return outputs


def is_timed(graph: Graph, op: int) -> bool:
    """Whether the bytes of its bins begin with what is known of time."""
    return isinstance(graph.operators[op], TimedOp)


def is_owned(graph: Graph, owners: Sequence[int], rank: int) -> Callable[[int, int], bool]:
    """Whether the state of an operator's bin is that node's: state without keys is one bin, and
    goes with a bin that its number says (`singleton_bin` in state_moves.hpp)."""
    single = {
        op: (op * 2654435761 & 0xFFFFFFFF) % len(owners)
        for op, found in enumerate(graph.operators)
        if not getattr(found, "keys", ())
    }

    def is_mine(op: int, bin: int) -> bool:
        return owners[single.get(op, bin)] == rank

    return is_mine


def head_of(data: bytes) -> bytes:
    """What is known of time, in front of the bytes of a bin (`unit_time.hpp`): a count, the size of
    what follows, and that."""
    return data[: 16 + int.from_bytes(data[8:16], "little")]
