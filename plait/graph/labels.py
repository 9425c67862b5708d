"""Names of sources and sinks: unique in a job, given where the user gave none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.graph.operators import SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.graph.operators import AnyNode


def labelled(nodes: Sequence[AnyNode]) -> tuple[AnyNode, ...]:
    """The nodes with a label at each source ("source-1", ...) and each sink ("sink-1", ...)."""
    done = list(nodes)
    for kind, stem in ((SourceNode, "source"), (SinkNode, "sink")):
        ends = [number for number, node in enumerate(done) if isinstance(node, kind)]
        taken: set[str] = set()
        for place, number in enumerate(ends, start=1):
            node = done[number]
            assert isinstance(node, SourceNode | SinkNode)
            label = unique(node.label or f"{stem}-{place}", taken)
            taken.add(label)
            done[number] = replace(node, label=label)
    return tuple(done)


def unique(label: str, taken: set[str]) -> str:
    """The label, numbered if there is one like it."""
    candidate, count = label, 1
    while candidate in taken:
        count += 1
        candidate = f"{label}-{count}"
    return candidate
