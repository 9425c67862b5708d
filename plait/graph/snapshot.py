"""A snapshot: the state of all bins of a job at one epoch boundary, and where its sources stood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.errors import StateError
from plait.graph.operators import (
    AggregateOp,
    FoldOp,
    Graph,
    SourceOp,
    StatefulOp,
    TimedOp,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a job and the positions of its sources at an epoch: what another run of the job
    needs to go on from there. Taken by `LocalRun.snapshot`, given to `plait.start(job, state=...)`.

    >>> running = plait.start(job)                 # doctest: +SKIP
    >>> state = running.snapshot()                 # doctest: +SKIP
    >>> plait.start(job, state=state).wait()       # doctest: +SKIP
    """

    job: str
    """The name of the job."""
    epoch: int
    """The epoch in front of which it was taken: another run goes on with it."""
    positions: Mapping[str, Any]
    """Of each source, by its label: where the next record is."""
    rows: tuple[int, ...]
    """Of each source: how many of its records are before that epoch."""
    bins: tuple[tuple[int, int, bytes], ...]
    """(operator, bin, bytes); bins without keys are left out."""


def check_snapshot(state: Snapshot, graph: Graph) -> Snapshot:
    """The snapshot, if it can be one of this job."""
    labels = {op.label for op in graph.operators if isinstance(op, SourceOp)}
    if set(state.positions) != labels:
        raise StateError(
            f"the snapshot has positions of {', '.join(sorted(state.positions))}; "
            f"this job's sources are {', '.join(sorted(labels))}"
        )
    for op, _, _ in state.bins:
        if not keeps_state(graph, op):
            raise StateError(
                f"the snapshot has state of operator {op}, which keeps none in this job"
            )
    return state


def keeps_state(graph: Graph, op: int) -> bool:
    known = 0 <= op < len(graph.operators)
    kinds = AggregateOp | FoldOp | StatefulOp | TimedOp
    return known and isinstance(graph.operators[op], kinds)
