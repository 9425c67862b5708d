"""The operators of a job that keep state, as a checkpoint names them.

The fingerprint says in words what the state is of: keys with their types, aggregates, windows. One
that differs is a state that the operator could not read. Digests of functions tell what changed in
the code; state goes on with other code if its shape is the same.
"""

from __future__ import annotations

import hashlib
from types import CodeType
from typing import TYPE_CHECKING, Any

from plait.checkpoints.manifests import OperatorEntry
from plait.graph.explain import what_of
from plait.graph.operators import AggregateOp, FoldOp, StatefulOp, TimedOp
from plait.graph.temporal import ProcessSpec
from plait.node_runtime.lowering.state_shapes import migration_of, shape_of, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.graph.operators import Graph

Keyed = AggregateOp | FoldOp | StatefulOp | TimedOp


def state_entries(graph: Graph, ids: Sequence[str]) -> tuple[OperatorEntry, ...]:
    """An entry for each operator that keeps state."""
    return tuple(
        OperatorEntry(
            id=id,
            kind=op.name,
            fingerprint=fingerprint(graph, op),
            functions=tuple(map(digest_of, functions_in(op))),
            shape=shape_of(graph.operators[op.inputs[0]].schema, op),
            version=version_of(op),
            migrates=migration_of(op) is not None,
            was=op.was,
        )
        for op, id in zip(graph.operators, ids, strict=True)
        if isinstance(op, Keyed)
    )


def functions_in(op: Keyed) -> tuple[Any, ...]:
    """The user's functions in an operator."""
    if isinstance(op, FoldOp | StatefulOp):
        return op.functions
    if isinstance(op, TimedOp) and isinstance(op.spec, ProcessSpec):
        process = type(op.spec.process)
        return tuple(value for _, value in sorted(vars(process).items()) if callable(value))
    return ()


def fingerprint(graph: Graph, op: Keyed) -> str:
    """What the operator's state is of."""
    schema = graph.operators[op.inputs[0]].schema
    types = {field.name: field.type.name.lower() for field in schema}
    keys = ", ".join(f"{key} {types.get(key, '?')}" for key in op.keys) or "no key"
    if isinstance(op, FoldOp | StatefulOp):
        return f"{op.name} by {keys}"
    return f"{keys}; {what_of(op, graph)}"


def digest_of(function: Any) -> str:
    """Sixteen digits that change with the code of a function."""
    made = hashlib.sha256()
    code = getattr(function, "__code__", None) or getattr(type(function), "__code__", None)
    if isinstance(code, CodeType):
        add_code(made, code)
    else:
        made.update(f"{type(function).__module__}.{type(function).__qualname__}".encode())
    return made.hexdigest()[:16]


def add_code(made: Any, code: CodeType) -> None:
    made.update(code.co_code)
    made.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            add_code(made, constant)
        else:
            made.update(repr(constant).encode())
