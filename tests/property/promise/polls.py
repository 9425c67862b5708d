"""A job whose sources are read in pieces of any size."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Reader, Source
from plait.graph.operators import SourceOp

if TYPE_CHECKING:
    from plait.graph.operators import Graph


class SomeRows(Reader):
    """Gives as many rows at a poll as it likes."""

    def __init__(self, reader: Reader, seed: int) -> None:
        self.reader = reader
        self.chance = random.Random(seed)

    def poll(self, max_records: int) -> Any:
        return self.reader.poll(min(max_records, self.chance.choice((1, 1, 2, 3, 7, 50))))

    def position(self) -> Any:
        return self.reader.position()

    def close(self) -> None:
        self.reader.close()


class InPieces(Source):
    """Another source, read in pieces of any size."""

    bounded = True

    def __init__(self, source: Source, seed: int) -> None:
        self.source = source
        self.seed = seed
        self.schema = source.schema
        self.label = source.label

    def open(self, position: Any = None) -> Reader:
        return SomeRows(self.source.open(position), self.seed)


def in_pieces(graph: Graph, seed: int) -> Graph:
    operators = tuple(
        dataclasses.replace(op, source=InPieces(op.source, seed))
        if isinstance(op, SourceOp)
        else op
        for op in graph.operators
    )
    return dataclasses.replace(graph, operators=operators)
