"""The operator of the plain loop for each kind of `TimedOp`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.temporal import JoinSpec, OperatorSpec, ProcessSpec, SpanSpec
from plait.testing.oracle.joins import join_operator
from plait.testing.oracle.loop_operators import Loops
from plait.testing.oracle.process import Processes
from plait.testing.oracle.windows import window_operator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.graph.operators import TimedOp
    from plait.model.schema import Schema
    from plait.testing.oracle.time import TimedOperator


def timed_operator(
    op: TimedOp, schema: Schema, ends: Callable[[], Sequence[bool]]
) -> TimedOperator:
    """What runs an operator; `schema` is its input's. `ends`: see `Loops`."""
    match op.spec:
        case OperatorSpec():
            return Loops(op, schema, ends)
        case ProcessSpec():
            return Processes(op, schema)
        case JoinSpec() | SpanSpec():
            return join_operator(op, schema)
    return window_operator(op, schema)
