"""The state of a checkpoint as the job that goes on from it takes it: by its numbers, in its bins.

Bins of a checkpoint that had more or fewer of them are made anew, some at a time, so that no more
of the state is held than the engine will hold anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.checkpoints.evolution import compare_operators
from plait.checkpoints.manifests import StateShape
from plait.errors import StateError
from plait.graph.operators import FoldOp, StatefulOp, TimedOp
from plait.graph.state_types import state_type
from plait.graph.temporal import ProcessSpec
from plait.node_runtime.host.state_entries import Keyed, state_entries
from plait.node_runtime.lowering.state_shapes import migration_of
from plait.node_runtime.state.saved_bins import Takeover, group_of, remake
from plait.node_runtime.state.states_codec import StatesCodec, codec_of, kept_codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.checkpoints.folder_reader import FolderReader
    from plait.checkpoints.manifests import BinRef, Manifest
    from plait.graph.operators import Graph

ONLY_TIME = StateShape(holder="timed")
"""Of operators that keep nothing but how far time is: late records."""
TOGETHER_BYTES = 64_000_000
"""So much is read at once, if bins are made anew."""


def takeovers(graph: Graph, ids: Sequence[str], manifest: Manifest) -> dict[str, Takeover]:
    """How the operators of the job, by their ids, take over the state of a checkpoint."""
    now = {entry.id: entry for entry in state_entries(graph, ids)}
    before = {entry.id: entry for entry in manifest.operators}
    comparison = compare_operators(manifest.operators, tuple(now.values()), graph.dropped)
    converted = {each.id for each in comparison.verdicts if each.fate == "converted"}
    found: dict[str, Takeover] = {}
    for op, id in zip(graph.operators, ids, strict=True):
        source = comparison.sources.get(id)
        if source is None or not isinstance(op, Keyed):
            continue
        shape = now[id].shape or ONLY_TIME
        older = before[source].version < now[id].version
        found[id] = Takeover(
            source=source,
            shape=shape,
            before=before[source].shape if id in converted else None,
            version=before[source].version,
            migrate=migration_of(op) if older else None,
            kinds=kinds_of(op),
            codec=states_codec(op),
        )
    return found


def states_codec(op: Keyed) -> StatesCodec | None:
    """How the states of a Python operator are written."""
    if isinstance(op, FoldOp | StatefulOp):
        return codec_of(state_type(op))
    return kept_codec(kinds_of(op))


def kinds_of(op: Keyed) -> dict[str, Any]:
    is_process = isinstance(op, TimedOp) and isinstance(op.spec, ProcessSpec)
    return dict(op.spec.process.state) if is_process else {}  # type: ignore[union-attr]


def read_state_bins(
    graph: Graph, ids: Sequence[str], folder: FolderReader, manifest: Manifest, bin_bits: int
) -> Iterator[tuple[int, int, bytes]]:
    """Operator, bin and bytes, of the operators that the job has."""
    found = takeovers(graph, ids, manifest)
    by_source = {how.source: (ids.index(id), how) for id, how in found.items()}
    refs = folder.bin_refs(manifest, lambda name, _: name in by_source)
    old_bits = manifest.bin_bits

    def is_as_it_was(ref: BinRef) -> bool:
        return old_bits == bin_bits and by_source[ref.operator][1].before is None

    for id, bin, data in folder.read_refs([ref for ref in refs if is_as_it_was(ref)]):
        yield by_source[id][0], bin, data
    others = [ref for ref in refs if not is_as_it_was(ref)]
    for together in in_groups(others, old_bits, bin_bits):
        groups: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        for id, bin, data in folder.read_refs(together):
            groups.setdefault((id, group_of(bin, old_bits, bin_bits)), []).append((bin, data))
        for (id, _), bins in groups.items():
            op, how = by_source[id]
            for bin, data in remake(how, bins, old_bits, bin_bits):
                yield op, bin, data


def try_takeovers(
    graph: Graph, ids: Sequence[str], folder: FolderReader, manifest: Manifest
) -> dict[str, str]:
    """Makes a bin of each state that must be made anew; why that fails, by operator."""
    failed: dict[str, str] = {}
    bits = manifest.bin_bits
    for id, how in takeovers(graph, ids, manifest).items():
        if how.before is None:
            continue
        source = how.source
        refs = folder.bin_refs(manifest, lambda name, _: name == source)  # noqa: B023
        try:
            for _, bin, data in folder.read_refs(refs[:1]):
                remake(how, [(bin, data)], bits, bits)
        except StateError as error:
            failed[id] = str(error)
    return failed


def in_groups(refs: Sequence[BinRef], old_bits: int, new_bits: int) -> Iterator[list[BinRef]]:
    """The bins of whole groups, not much more than is read at once."""

    def place(ref: BinRef) -> tuple[str, int]:
        return ref.operator, group_of(ref.bin, old_bits, new_bits)

    together: list[BinRef] = []
    size = 0
    for ref in sorted(refs, key=place):
        if size >= TOGETHER_BYTES and place(ref) != place(together[-1]):
            yield together
            together, size = [], 0
        together.append(ref)
        size += ref.size
    if together:
        yield together
