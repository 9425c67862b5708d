"""Moves in as few steps as possible, when a node may send one bin and receive one bin a step.

Nodes that send are one side of a bipartite graph, nodes that receive the other, a move is an edge
and a step is a colour: no two edges of a colour meet. Such a graph needs just as many colours as
its busiest node has edges (König), and they are found edge by edge: where the two ends have no
free colour in common, the colours along one alternating path are exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Edge = tuple[int, int]


@dataclass(slots=True)
class End:
    """A node as sender, or as receiver: which edge has which colour here."""

    edges: dict[int, int] = field(default_factory=dict)
    """From colour to the number of the edge."""
    fresh: int = 0
    """Colours from here on were never used here."""
    freed: list[int] = field(default_factory=list)
    """Colours below `fresh` that may be free again, as a heap."""

    def free(self) -> int:
        """The least colour that is not used here."""
        while self.freed and self.freed[0] in self.edges:
            heappop(self.freed)
        while self.fresh in self.edges:
            self.fresh += 1
        return self.freed[0] if self.freed and self.freed[0] < self.fresh else self.fresh

    def take(self, colour: int, edge: int) -> None:
        self.edges[colour] = edge

    def give_up(self, colour: int) -> None:
        del self.edges[colour]
        heappush(self.freed, colour)


def colours(edges: Sequence[Edge]) -> list[int]:
    """A colour for every edge (sender, receiver), from 0 to one less than the greatest degree."""
    senders: dict[int, End] = {}
    receivers: dict[int, End] = {}
    found: list[int] = []
    for number, (source, target) in enumerate(edges):
        sender = senders.setdefault(source, End())
        receiver = receivers.setdefault(target, End())
        mine, other = sender.free(), receiver.free()
        if mine != other:
            if mine in receiver.edges and other in sender.edges:
                exchange(edges, found, senders, receivers, receiver.edges[mine], mine, other)
            elif mine in receiver.edges:
                mine = other
        found.append(mine)
        sender.take(mine, number)
        receiver.take(mine, number)
    return found


def exchange(
    edges: Sequence[Edge],
    found: list[int],
    senders: dict[int, End],
    receivers: dict[int, End],
    first: int,
    mine: int,
    other: int,
) -> None:
    """Exchanges two colours on the path that begins with edge `first` at its receiver.

    That receiver has `mine` and lacks `other`. On this path every sender is entered by an edge of
    colour `mine`, so it cannot reach the sender that lacks `mine`.
    """
    path: list[int] = []
    edge: int | None = first
    colour, at_sender = mine, True
    while edge is not None:
        path.append(edge)
        source, target = edges[edge]
        colour = other if colour == mine else mine
        end = senders[source] if at_sender else receivers[target]
        edge = end.edges.get(colour)
        at_sender = not at_sender
    for edge in path:
        for end in (senders[edges[edge][0]], receivers[edges[edge][1]]):
            end.give_up(found[edge])
    for edge in path:
        found[edge] = other if found[edge] == mine else mine
        for end in (senders[edges[edge][0]], receivers[edges[edge][1]]):
            end.take(found[edge], edge)
