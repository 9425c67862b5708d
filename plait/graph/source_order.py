"""How the records of several sources follow each other; pure.

In order of time it is (slice, source, row), where slices are stretches of event time: a function of
the records alone. Otherwise it is (epoch, source, row), and where epochs are cut depends on how the
sources are read. `docs/order_and_time.md` has the definition, `plait.testing.oracle.slices` the
plain loop, `sources/time_slicer.hpp` the engine's way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.errors import JobError
from plait.graph.delays import is_arrival
from plait.graph.operators import Graph, SourceOp

if TYPE_CHECKING:
    from plait.model.settings import Order


def is_in_time(graph: Graph, order: Order | None) -> bool:
    """Whether the records of several sources follow each other by slices of event time. Of one
    source they come as they are.

    JobError if that is asked for and cannot be.
    """
    reason = why_not_in_time(graph)
    if order == "time" and any(is_arrival(op) for op in graph.operators):
        raise JobError(
            f'order="time" is by event time alone, and {reason}; leave out order=, or give'
            ' by="event_time" to the windows'
        )
    if order == "time" and reason:
        raise JobError(f'order="time" needs sources with an end and an event time: {reason}')
    return len(graph.sources) > 1 and order != "total" and not reason


def why_not_in_time(graph: Graph) -> str:
    """What keeps a job from running in order of time; empty: nothing."""
    for op in graph.operators:
        if is_arrival(op):
            return f"{op} has windows by arrival"
    for op in graph.operators:
        if not isinstance(op, SourceOp):
            continue
        if not op.source.bounded:
            return f"source {op.label} has no end"
        if getattr(op.source, "rate_per_s", None) is not None:
            return f"source {op.label} has a rate"
        if op.clock is not None:
            return f"source {op.label} has a time for each of its partitions"
        if op.event_time is None and op.computed_time is None:
            return f"source {op.label} has no event time of its own; give it event_time="
    return ""


def order_text(graph: Graph, order: Order | None) -> str:
    """The order of a job in words, and why it is this one if nobody chose it.

    >>> order_text(Graph(name="none", operators=()), "key")
    'order by key'
    """
    words = {"key": "order by key", "none": "no order between batches"}
    if order in words:
        return words[order]
    if is_in_time(graph, order) or order == "time":
        return "order of time (slice, source, row)"
    if order is None and len(graph.sources) > 1:
        return f"total order (epoch, source, row), not of time: {why_not_in_time(graph)}"
    return "total order"
