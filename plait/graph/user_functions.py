"""The user's functions in the operators of a job, and whether what they open can be opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.functions.open_close import check_hooks
from plait.graph.operators import CallOp, FoldOp, StatefulOp, TimedOp
from plait.graph.temporal import ProcessSpec

if TYPE_CHECKING:
    from plait.graph.operators import AnyOp, Graph


def functions_of(op: AnyOp) -> tuple[Any, ...]:
    """The functions that an operator calls; of a process the object with its handlers."""
    match op:
        case CallOp():
            return op.functions
        case FoldOp() | StatefulOp():
            return (op.step,)
        case TimedOp(spec=ProcessSpec(process=process)):
            return (process,)
        case _:
            return ()


def check_functions(graph: Graph) -> None:
    """Raises a JobError where a function that is called has to be opened by awaiting."""
    for op in graph.operators:
        if isinstance(op, CallOp) and op.mode == "async":
            continue
        for function in functions_of(op):
            try:
                check_hooks(function)
            except JobError as error:
                raise JobError(f"{op}: {error}") from None
