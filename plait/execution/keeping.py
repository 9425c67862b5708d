"""What is kept of each query of a run in this process: bounds by hand, and what the quality watch
decided; the lesser of both goes to the engine.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from plait.errors import StateError
from plait.graph.shedders.bounds import checked_bound
from plait.shedding.plan import thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import Graph
    from plait.node_runtime.native._engine import NativeEngine


class Keeping:
    """Tells the engine. Any thread may call."""

    def __init__(self, graph: Graph, engine: NativeEngine) -> None:
        self.graph = graph
        self.engine = engine
        self.lock = threading.Lock()
        self.bounds: dict[int, float] = {}
        """The most that is kept of queries, by hand; by their numbers."""
        self.decided: dict[int, float] = {}

    def bound(self, query: str, ratio: float | None) -> int:
        """Bounds a query by hand, or lifts its bound; the epoch from which on that holds."""
        number = checked_bound(self.graph, query, ratio)
        with self.lock:
            self.bounds.pop(number, None)
            if ratio is not None:
                self.bounds[number] = float(ratio)
            return self.tell()

    def decide(self, ratios: Mapping[int, float]) -> int:
        """What is to be kept of the queries that are to be shed; the epoch from which on it is."""
        with self.lock:
            self.decided = dict(ratios)
            return self.tell()

    def hand_over(self) -> None:
        """Nothing decides here: what was decided before a checkpoint is a bound by hand."""
        with self.lock:
            self.bounds |= self.decided
            self.decided = {}

    def tell(self) -> int:
        """Under the lock."""
        both = {*self.bounds, *self.decided}
        kept = {q: min(self.bounds.get(q, 1.0), self.decided.get(q, 1.0)) for q in both}
        item = self.engine.keep(thresholds(kept, len(self.graph.sinks)))
        if item is None:
            raise StateError("shed: the job is at its end")
        return item.epoch

    def in_force(self) -> dict[int, float]:
        """The bounds by hand, by the number of their query."""
        with self.lock:
            return dict(self.bounds)
