"""The accuracy that every query got, measured by counting; pure, plain Python.

A sub-pipeline passes the share of its rows that its shedder lets through, and what came to it had
passed those before it (Eq. 3): along the way of a query that is the share of the input it got.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCounts:
    """What a sub-pipeline took and shed, on all nodes; inputs come before it."""

    inputs: tuple[int, ...]
    queries: tuple[str, ...]
    taken: float
    """Before its shedders."""
    shed: float
    gathers: bool = False
    """It is the sinks of all queries, which say nothing of one."""


def accuracies(parts: Sequence[PartCounts]) -> dict[str, float]:
    """The accuracy of every query, from 0 to 1. What took nothing lost nothing.

    >>> first = PartCounts(inputs=(), queries=("a", "b"), taken=100, shed=20)
    >>> own = PartCounts(inputs=(0,), queries=("a",), taken=80, shed=40)
    >>> rest = PartCounts(inputs=(0,), queries=("b",), taken=80, shed=0)
    >>> accuracies((first, own, rest))
    {'a': 0.4, 'b': 0.8}
    """
    passed: list[float] = []
    found: dict[str, float] = {}
    for part in parts:
        own = 1.0 - part.shed / part.taken if part.taken > 0 else 1.0
        above = min((passed[given] for given in part.inputs), default=1.0)
        passed.append(above * min(max(own, 0.0), 1.0))
        if not part.gathers:
            for query in part.queries:
                found[query] = min(found.get(query, 1.0), passed[-1])
    for part in parts:
        for query in part.queries:
            found.setdefault(query, 1.0)
    return found
