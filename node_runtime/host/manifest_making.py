"""Makes the manifest of a checkpoint, and says whether a job can go on from one.

The same for a run on one machine, which has one part, and for nodes, which have one each.
"""

from __future__ import annotations

import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

from plait.checkpoints.evolution import compare_operators
from plait.checkpoints.manifests import Manifest
from plait.node_runtime.host.saving import add

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


def plait_version() -> str:
    try:
        return metadata.version("plait")
    except metadata.PackageNotFoundError:
        return ""
