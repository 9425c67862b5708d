"""Random jobs made fit for nodes and for live sources, and the thread that pushes their rows."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from plait.connectors.memory_sources import Table
from plait.graph.operators import CallOp, Graph, SourceOp
from plait.testing import Feed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Live = tuple[Graph, dict[Feed, list[Any]]]
"""A graph with live sources, and the rows to push to each."""


@dataclasses.dataclass(frozen=True, slots=True)
class Same:
    """map_batches: the batch as it is. On nodes a batch is a node's part of an epoch, so only a
    function that treats each row by itself gives the same everywhere."""

    def __call__(self, table: Any) -> Any:
        return table


def row_by_row(graph: Graph) -> Graph:
    """The graph with functions of batches that do not depend on how rows are batched."""
    nodes = [
        dataclasses.replace(node, function=Same())
        if isinstance(node, CallOp) and node.mode == "batches"
        else node
        for node in graph.operators
    ]
    return dataclasses.replace(graph, operators=tuple(nodes))


def with_feeds(graph: Graph) -> Live:
    """The graph with a live source in place of each."""
    rows: dict[Feed, list[Any]] = {}
    nodes: list[Any] = []
    for node in graph.operators:
        if isinstance(node, SourceOp):
            source = node.source
            feed = Feed(node.schema)
            rows[feed] = source.arrow().to_pylist() if isinstance(source, Table) else list(source)
            nodes.append(dataclasses.replace(node, source=feed))
        else:
            nodes.append(node)
    return dataclasses.replace(graph, operators=tuple(nodes)), rows


@contextmanager
def pushing(rows: dict[Feed, list[Any]], sizes: Sequence[int]) -> Iterator[None]:
    """A thread pushes the rows, so many at a time in turn, and closes the sources."""

    def push() -> None:
        places = dict.fromkeys(rows, 0)
        for size in itertools.cycle(sizes):
            for feed, at in places.items():
                feed.push(rows[feed][at : at + size])
                places[feed] = at + size
            if all(at >= len(rows[feed]) for feed, at in places.items()):
                break
        for feed in rows:
            feed.close()

    pusher = threading.Thread(target=push)
    pusher.start()
    try:
        yield
    finally:
        pusher.join()
