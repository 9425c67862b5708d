"""A line under the error of a failed record, where its words alone do not say what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.operators import CallOp, FoldOp
from plait.model.records import Misfit

if TYPE_CHECKING:
    from plait.graph.operators import Graph
    from plait.results.engine_failures import EngineFailure


def hint_of(failure: EngineFailure, graph: Graph) -> str:
    """What to write instead, or ""."""
    op, cause = graph.operators[failure.op], failure.error
    misfit = cause is None or isinstance(cause, Misfit)
    if isinstance(op, FoldOp) and misfit:
        return (
            "the column has the type of the first state; start with a value such as 0.0, or write"
            " type=float"
        )
    if not isinstance(op, CallOp) or op.mode not in ("map", "flat_map") or op.columns:
        return ""
    if op.mode == "flat_map" and (misfit or "is not iterable" in failure.message):
        return (
            "flat_map needs a function that returns a list of records, or yields them;"
            " for one record each use map"
        )
    assumed = op.schema.fields == graph.operators[op.inputs[0]].schema.fields
    if misfit and assumed:
        return (
            "without schema= or a return annotation the output has the columns of the input;"
            ' if it has others, write schema={"name": str, ...}'
        )
    return ""
