"""Shedding by hand: a bound on what is kept of a query, checked against what its sink asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.graph.operators import SinkOp

if TYPE_CHECKING:
    from plait.graph.operators import Graph


def checked_bound(graph: Graph, query: str, ratio: Any) -> int:
    """The number of the query that may be bounded so; JobError if it may not."""
    sinks = [op for op in graph.operators if isinstance(op, SinkOp)]
    labels = [sink.label for sink in sinks]
    if query not in labels:
        raise JobError(
            f'{graph.name} has no query "{query}"; its sinks are: {", ".join(map(repr, labels))}'
        )
    sink = sinks[labels.index(query)]
    if ratio is None:
        return labels.index(query)
    good = isinstance(ratio, int | float) and not isinstance(ratio, bool)
    if not good or not 0 <= ratio <= 1:
        raise JobError(f"the share to keep is {ratio!r}; it must be from 0 to 1, or None for all")
    if ratio < sink.quality.min_accuracy:
        floor = sink.quality.min_accuracy
        what = "it is lossless" if sink.quality.lossless else f"its floor is {floor:g}"
        raise JobError(
            f"{sink}: {query} cannot be kept at {ratio:g}: {what}; give its sink a lower"
            " min_accuracy="
        )
    return labels.index(query)
