"""Names of sources and sinks: unique in a job, given where the user gave none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.graph.operators import SinkOp, SourceOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.graph.operators import AnyOp


def with_labels(operators: Sequence[AnyOp]) -> tuple[AnyOp, ...]:
    """The operators with a label at each source ("source-1", ...) and each sink ("sink-1", ...)."""
    done = list(operators)
    for kind, stem in ((SourceOp, "source"), (SinkOp, "sink")):
        ends = [number for number, op in enumerate(done) if isinstance(op, kind)]
        taken: set[str] = set()
        for place, number in enumerate(ends, start=1):
            op = done[number]
            assert isinstance(op, SourceOp | SinkOp)
            label = unique(op.label or f"{stem}-{place}", taken)
            taken.add(label)
            done[number] = replace(op, label=label)
    return tuple(done)


def unique(label: str, taken: set[str]) -> str:
    """The label, numbered if there is one like it."""
    candidate, count = label, 1
    while candidate in taken:
        count += 1
        candidate = f"{label}-{count}"
    return candidate
