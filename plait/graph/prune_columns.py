"""Leaves out columns that nobody reads, before and inside joins: what is not kept costs nothing.

A user writes `auctions.join(persons, ...).select("name", "id")`, and the join would hold every
column of both streams for as long as it waits for a match. Here each node says which columns of
its inputs it needs for those that are needed of it, from the sinks upwards; then joins, and the
projections that the builder put before them, are made again without the others. What the user wrote
stays as it is, and an expression that can fail stays, needed or not. Nodes keep their numbers, and
a job gives the same records as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.expr.tree import Expr, columns_read
from plait.graph import temporal
from plait.graph.operators import (
    AggregateNode,
    AnyNode,
    CallNode,
    FilterNode,
    FoldNode,
    ProjectNode,
    SinkNode,
    SourceNode,
    StatefulNode,
    TimedNode,
    UnionNode,
)
from plait.graph.temporal import END, START
from plait.model.schema import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.expr.aggregates import Aggregate

Need = frozenset[str] | None
"""Columns; None: all."""

NOTHING: frozenset[str] = frozenset()


def narrowed(nodes: Sequence[AnyNode]) -> tuple[AnyNode, ...]:
    """The nodes without columns that nobody reads."""
    needs = needed(nodes)
    done: list[AnyNode] = []
    for node, need in zip(nodes, needs, strict=True):
        done.append(made_again(node, need, [(nodes[i], done[i]) for i in node.inputs]))
    return tuple(done)


def needed(nodes: Sequence[AnyNode]) -> list[Need]:
    """What is needed of each node by all that read it."""
    users = [0] * len(nodes)
    for node in nodes:
        for given in node.inputs:
            users[given] += 1
    needs: list[Need] = [NOTHING if count else None for count in users]
    for node, need in zip(reversed(nodes), reversed(range(len(nodes))), strict=True):
        asked = asked_of(node, needs[need])
        if isinstance(node, UnionNode):
            asked = asked_of_union([nodes[i] for i in node.inputs], users, node, needs[need])
        for given in node.inputs:
            before = needs[given]
            needs[given] = None if before is None or asked is None else before | asked
    return needs


def asked_of_union(
    inputs: Sequence[AnyNode], users: Sequence[int], node: UnionNode, need: Need
) -> Need:
    """The inputs of a union must keep the same columns: only projections for it alone are sure
    to."""
    alone = all(isinstance(one, ProjectNode) for one in inputs)
    if need is None or not alone or any(users[i] > 1 for i in node.inputs):
        return None
    stay = {
        name
        for one in inputs
        if isinstance(one, ProjectNode)
        for name, expr in one.columns
        if can_fail(expr)
    }
    return (need | stay) or frozenset(node.schema.names[:1])


def asked_of(node: AnyNode, need: Need) -> Need:
    """The columns of its input that a node needs for the needed ones of its own."""
    if node.on_error == "dead_letter":
        return None  # a letter has the whole record
    match node:
        case FilterNode():
            return None if need is None else need | columns_read(node.predicate)
        case ProjectNode():
            return read_by(expr for _, expr in kept_columns(node, need))
        case AggregateNode():
            return frozenset(node.keys) | read_by_results(node.aggregates)
        case TimedNode():
            return asked_of_timed(node, need)
        case SourceNode() | CallNode() | FoldNode() | StatefulNode() | UnionNode() | SinkNode():
            return None
        case _:
            assert_never(node)


def asked_of_timed(node: TimedNode, need: Need) -> Need:
    own = frozenset(name for name in (*node.keys, node.time) if name)
    spec = node.spec
    match spec:
        case temporal.WindowSpec() | temporal.LastSpec() | temporal.RunningSpec():
            given = isinstance(spec, temporal.WindowSpec) and isinstance(
                spec.window, temporal.Given
            )
            bounds = frozenset((START, END)) if given else NOTHING
            return own | bounds | read_by_results(spec.aggregates)
        case temporal.TopSpec():
            bounds = frozenset((START, END))
            if need is None:
                return None
            if not isinstance(spec.window, temporal.Given):
                return (need - bounds) | own | {spec.by}
            return need | bounds | own | {spec.by}
        case temporal.LateSpec():
            return None if need is None else need | own
        case temporal.JoinSpec() | temporal.SpanSpec():
            left, right = kept_sides(node, spec, need)
            return own | {temporal.SIDE, *left, *right}
        case temporal.ProcessSpec() | temporal.OperatorSpec():
            return None
        case _:
            assert_never(spec)


def read_by(exprs: Iterable[Expr]) -> frozenset[str]:
    return NOTHING.union(*(columns_read(expr) for expr in exprs))


def read_by_results(results: Sequence[tuple[str, Aggregate]]) -> frozenset[str]:
    return read_by(result.over for _, result in results if result.over is not None)


def can_fail(expr: Expr) -> bool:
    """Whether leaving the expression out might hide that it fails: all but columns and constants
    are taken to."""
    if expr.op == "cast":
        return expr.args[0].op != "lit" or expr.args[0].value is not None
    return expr.op not in ("col", "lit")


def kept_columns(node: ProjectNode, need: Need) -> tuple[tuple[str, Expr], ...]:
    made_by_user = "." not in node.name
    if need is None or made_by_user:
        return node.columns
    kept = tuple((name, expr) for name, expr in node.columns if name in need or can_fail(expr))
    return kept or node.columns[:1]


def kept_sides(
    node: TimedNode, spec: temporal.JoinSpec | temporal.SpanSpec, need: Need
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of both sides that a join must have, in their order."""
    if need is None:
        return spec.left.columns, spec.right.columns
    names = [field.name for field in node.schema.fields]
    left = dict(zip(spec.left.columns, names, strict=False))
    stay = {spec.left.time, spec.right.time}
    if isinstance(spec, temporal.SpanSpec):
        stay |= {spec.start, spec.end}
        right = spec.right.columns
    elif spec.how in temporal.ONE_SIDED:
        right = spec.right.columns
    else:
        theirs = zip(spec.right.columns, names[len(spec.left.columns) :], strict=True)
        wanted = tuple(c for c, name in theirs if name in need or c in stay)
        right = wanted or spec.right.columns[:1]
    ours = tuple(c for c in spec.left.columns if left[c] in need or c in stay)
    return ours or spec.left.columns[:1], right


def made_again(node: AnyNode, need: Need, inputs: Sequence[tuple[AnyNode, AnyNode]]) -> AnyNode:
    """The node with what is left of its inputs (before, after) and of its own columns."""
    changed = any(old.schema.names != new.schema.names for old, new in inputs)
    match node:
        case ProjectNode():
            kept = kept_columns(node, need)
            if len(kept) == len(node.columns):
                return node
            names = {name for name, _ in kept}
            return replace(node, columns=kept, schema=only(node.schema, names))
        case TimedNode(spec=temporal.JoinSpec() | temporal.SpanSpec()):
            return joined_again(node, need)
        case TimedNode(spec=temporal.TopSpec() | temporal.LateSpec()) if changed:
            old, new = inputs[0]
            more = node.schema.fields[len(old.schema.fields) :]
            return replace(node, schema=Schema((*new.schema.fields, *more)))
        case FilterNode() if changed:
            return replace(node, schema=inputs[0][1].schema)
        case UnionNode() if changed:
            return replace(node, schema=only(node.schema, set(inputs[0][1].schema.names)))
    return node


def joined_again(node: TimedNode, need: Need) -> TimedNode:
    spec = node.spec
    assert isinstance(spec, temporal.JoinSpec | temporal.SpanSpec)
    left, right = kept_sides(node, spec, need)
    if (left, right) == (spec.left.columns, spec.right.columns):
        return node
    fields: list[Field] = []
    out = list(node.schema.fields)
    fields += [f for c, f in zip(spec.left.columns, out, strict=False) if c in left]
    rest = out[len(spec.left.columns) :]
    if isinstance(spec, temporal.JoinSpec) and spec.how not in temporal.ONE_SIDED:
        rest = [f for c, f in zip(spec.right.columns, rest, strict=True) if c in right]
    ours, theirs = replace(spec.left, columns=left), replace(spec.right, columns=right)
    schema = Schema((*fields, *rest))
    if isinstance(spec, temporal.JoinSpec):
        return replace(node, schema=schema, spec=replace(spec, left=ours, right=theirs))
    return replace(node, schema=schema, spec=replace(spec, left=ours, right=theirs))


def only(schema: Schema, names: set[str]) -> Schema:
    return Schema(tuple(field for field in schema.fields if field.name in names))
