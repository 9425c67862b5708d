"""Tells sources which of their records no checkpoint needs any more.

Every kept checkpoint says where each source would go on from it. A source that keeps its own
records until they are released (a batch log, a queue) is given all of these positions, and removes
what is before the least of them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from plait.connectors.base import Source
from plait.graph.operators import SourceOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.checkpoints.manifests import Manifest
    from plait.graph.operators import Graph

LOG = logging.getLogger("plait.checkpoints")


def release_sources(graph: Graph, ids: Sequence[str], kept: Sequence[Manifest]) -> None:
    """Tells each source of the job what the kept checkpoints need of it. One that some of them do
    not know is told nothing: the job would read it from its beginning again. A finished one reads
    nothing any more."""
    kept = [manifest for manifest in kept if not manifest.finished]
    for number in graph.sources:
        op = graph.operators[number]
        assert isinstance(op, SourceOp)
        if type(op.source).release is Source.release:
            continue
        entries = [
            entry for manifest in kept for entry in manifest.sources if entry.id == ids[number]
        ]
        if not kept or len(entries) < len(kept) or any(e.position is None for e in entries):
            continue
        try:
            op.source.release([e.position[0] for e in entries], f"{graph.name}.{op.label}")
        except Exception as error:  # code of the user's; the next checkpoint calls it again
            LOG.warning("source %s could not release what it keeps: %s", op.label, error)
