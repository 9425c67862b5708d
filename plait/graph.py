"""The job as plain data: nodes in the order they were made, each with its inputs, schema and place in the user's code.

Few core operators; the fluent builder composes the rest of them. Fan-out is several nodes that name the same
input. The numbers of the nodes are their indices in `Graph.nodes`, and inputs come before their users.

The order that defines a right answer: a record's place is its order tag (epoch, source, row), sources
numbered in the order of their nodes. Every source emits one batch for every epoch. Operators keep the tags;
`flat_map` gives all its results the tag of the record they came from. A union emits, epoch by epoch and source by
source, the rows of its inputs by row number, and rows of the same number by the position of the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from plait.expr import Expr
from plait.model import Location, Schema

OnError = Literal["fail", "skip", "dead_letter"]
CallMode = Literal["map", "filter", "flat_map", "columns", "batches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What all operators share. `name` is the verb the user wrote."""

    name: str
    at: Location
    inputs: tuple[int, ...]
    schema: Schema
    on_error: OnError = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode(Node):
    """Where records come from. `label` names it in errors and results."""

    source: Any
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterNode(Node):
    """Keeps the rows for which the predicate is true; false and null are filtered."""

    predicate: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectNode(Node):
    """Computes each output column from the input row: select, with_columns, rename and drop."""

    columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNode(Node):
    """A Python function.

    map: record -> record; filter: record -> truth; flat_map: record -> iterable of records;
    columns: each (name, function) adds or replaces a column, the function's parameters named after the columns it reads;
    batches: pyarrow.Table (one batch) -> pyarrow.Table or RecordBatch, any number of rows.
    """

    mode: CallMode
    function: Callable[..., Any]
    columns: tuple[tuple[str, Callable[..., Any]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One result: kind over an expression of the input row (None only for count of rows)."""

    kind: Literal["count", "sum", "min", "max", "mean", "first", "last"]
    over: Expr | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateNode(Node):
    """Running aggregates by key: one output row for each input row, key columns first, then the results.

    Nulls are skipped by all but count of rows; a result is null until its first value (count: 0). min and max leave
    NaN out unless there is nothing else; first and last are of the values that are not null. No keys: one state.
    """

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldNode(Node):
    """A running fold in Python: state = step(state, record); one output row for each input row: keys and `value`."""

    keys: tuple[str, ...]
    init: Any
    """A value (deep-copied for each key) or a function without parameters that makes one."""
    step: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulNode(Node):
    """A state machine in Python: state, out = step(state, record); `out` is a record, or None for nothing."""

    keys: tuple[str, ...]
    init: Any
    step: Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionNode(Node):
    """Several streams of one schema as one, in the order of their tags (see the module's first lines)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode(Node):
    """Where records go. Its schema is its input's."""

    sink: Any
    label: str


AnyNode = (
    SourceNode | FilterNode | ProjectNode | CallNode | AggregateNode | FoldNode | StatefulNode | UnionNode | SinkNode
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """All nodes of a job."""

    name: str
    nodes: tuple[AnyNode, ...]

    def users(self, node: int) -> tuple[int, ...]:
        """The nodes that read from `node`, in their order."""
        return tuple(i for i, other in enumerate(self.nodes) if node in other.inputs)
