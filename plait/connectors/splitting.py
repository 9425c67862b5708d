"""Which sources every node of a job can read its own slice of; any other is read by one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.connectors.memory_sources import Table, has_bad_rows
from plait.connectors.rate import Rate
from plait.graph.operators import SourceOp
from plait.graph.source_order import is_in_time

if TYPE_CHECKING:
    from plait.graph.operators import Graph
    from plait.model.settings import Order

SPLIT = (Table, Rate)


def splitting(graph: Graph, order: Order | None) -> list[bool]:
    """Of each source, whether every node reads a part of it. In order of time, which takes the
    times of all sources, one node reads all if it must read one."""
    sources = [op for op in graph.operators if isinstance(op, SourceOp)]
    splits = [type(op.source) in SPLIT and not has_bad_rows(op) for op in sources]
    if is_in_time(graph, order) and not all(splits):
        return [False] * len(splits)
    return splits
