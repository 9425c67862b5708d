"""Makes the manifest of a checkpoint, and says whether a job can go on from one, and how much of
each query it keeps then.

The same for a run on one machine, which has one part, and for nodes, which have one each.
"""

from __future__ import annotations

import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

from plait.checkpoints.evolution import compare_operators
from plait.checkpoints.manifests import Manifest
from plait.graph.operators import SinkOp
from plait.node_runtime.host.saving import add
from plait.protocol.keeps import KEEP_ALL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.checkpoints.manifests import (
        Claim,
        ManifestId,
        OperatorEntry,
        Part,
        PartRef,
        SourceEntry,
    )
    from plait.graph.operators import Graph
    from plait.results.outcomes import Plan


KEEPS = "keeps"
"""The setting of a manifest that holds them."""


def make_manifest(
    claim: Claim,
    operators: tuple[OperatorEntry, ...],
    *,
    bin_bits: int,
    number: int,
    parent: ManifestId | None,
    epoch: int,
    name: str = "",
    finished: bool = False,
    refs: tuple[PartRef, ...] = (),
    parts: Sequence[Part] = (),
    sources: tuple[SourceEntry, ...] = (),
    settings: Mapping[str, Any] | None = None,
) -> Manifest:
    """The manifest of these parts. `sources`: where they begin, if there are no parts yet."""
    return Manifest(
        job=claim.job,
        lineage=claim.lineage,
        attempt=claim.attempt,
        number=number,
        parent=parent,
        epoch=epoch,
        finished=finished,
        name=name,
        at=time.time(),
        version=plait_version(),
        bin_bits=bin_bits,
        operators=operators,
        sources=merge_sources(parts) if parts else sources,
        sinks=tuple(entry for part in parts for entry in part.sinks),
        counts=merge_counts(parts),
        letters=sum(part.letters for part in parts),
        settings=dict(settings or {}),
        parts=refs,
    )


def check_fit(
    manifest: Manifest, operators: tuple[OperatorEntry, ...], dropped: tuple[str, ...]
) -> tuple[str, ...]:
    """Raises a StateError if the job cannot go on from the checkpoint; else what its user should
    know, one sentence each."""
    comparison = compare_operators(manifest.operators, operators, dropped)
    comparison.check()
    return comparison.told


def merge_sources(parts: Sequence[Part]) -> tuple[SourceEntry, ...]:
    """Of each source: what the node says that reads it, or all of those that share it."""
    found: dict[str, SourceEntry] = {}
    for part in parts:
        for entry in part.sources:
            known = found.get(entry.id)
            reads = entry.position is not None
            if known is None or reads or (known.position is None and entry.rows > known.rows):
                found[entry.id] = entry
    return tuple(found.values())


def merge_counts(parts: Sequence[Part]) -> dict[str, tuple[int, ...]]:
    """The counts of all nodes together."""
    found: dict[str, tuple[int, ...]] = {}
    for part in parts:
        for id, numbers in part.counts.items():
            found[id] = add(numbers, found.get(id, ()))
    return found


def plans_before(
    graph: Graph, ids: Sequence[str], plans: Sequence[Plan], epoch: int
) -> dict[str, Any]:
    """What is kept of each query, by the ids of sinks: all plans up to a boundary, as a setting of
    its manifest; nothing, if nothing was ever shed."""
    found = [[at, list(thresholds)] for at, thresholds in plans if at <= epoch]
    if not found:
        return {}
    return {KEEPS: {"queries": [ids[op] for op in graph.sinks], "plans": found}}


def restored_plans(
    graph: Graph, ids: Sequence[str], settings: Mapping[str, Any]
) -> tuple[Plan, ...]:
    """The plans by the numbers that queries have now. One that is new, or lossless now, is kept
    whole."""
    kept = settings.get(KEEPS)
    if not kept:
        return ()
    places = {id: place for place, id in enumerate(kept["queries"])}
    return tuple(
        (epoch, tuple(threshold_of(graph, op, places.get(ids[op]), found) for op in graph.sinks))
        for epoch, found in kept["plans"]
    )


def threshold_of(graph: Graph, op: int, place: int | None, found: Sequence[int]) -> int:
    sink = graph.operators[op]
    assert isinstance(sink, SinkOp)
    if place is None or not found or sink.quality.lossless:
        return KEEP_ALL
    return int(found[place])


def plait_version() -> str:
    try:
        return metadata.version("plait")
    except metadata.PackageNotFoundError:
        return ""
