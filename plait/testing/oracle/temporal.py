"""The operator of the plain loop for each kind of `TimedNode`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.temporal import JoinSpec, OperatorSpec, ProcessSpec, SpanSpec
from plait.testing.oracle.joins import join_operator
from plait.testing.oracle.loop_operators import Loops
from plait.testing.oracle.process import Processes
from plait.testing.oracle.windows import window_operator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.graph.operators import TimedNode
    from plait.model.schema import Schema
    from plait.testing.oracle.time import TimedOperator


def timed_operator(
    node: TimedNode, schema: Schema, ends: Callable[[], Sequence[bool]]
) -> TimedOperator:
    """The operator of a node; `schema` is its input's. `ends`: see `Loops`."""
    match node.spec:
        case OperatorSpec():
            return Loops(node, schema, ends)
        case ProcessSpec():
            return Processes(node, schema)
        case JoinSpec() | SpanSpec():
            return join_operator(node, schema)
    return window_operator(node, schema)
