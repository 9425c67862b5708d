"""Leaves out columns that no operator reads, before and inside joins: they would cost memory.

A user writes `auctions.join(persons, ...).select("name", "id")`, and the join would hold every
column of both streams for as long as it waits for a match. Here each operator says which columns of
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
    AggregateOp,
    AnyOp,
    CallOp,
    EventTimeOp,
    FilterOp,
    FoldOp,
    ProjectOp,
    ShedOp,
    SinkOp,
    SourceOp,
    StatefulOp,
    TimedOp,
    UnionOp,
)
from plait.graph.temporal import END, START
from plait.model.schema import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.expr.aggregates import Aggregate

Need = frozenset[str] | None
"""Columns; None: all."""

NOTHING: frozenset[str] = frozenset()


def prune_columns(operators: Sequence[AnyOp]) -> tuple[AnyOp, ...]:
    """The operators without columns that no operator reads."""
    needs = columns_needed(operators)
    done: list[AnyOp] = []
    for op, need in zip(operators, needs, strict=True):
        done.append(rebuild(op, need, [(operators[i], done[i]) for i in op.inputs]))
    return tuple(done)


def columns_needed(operators: Sequence[AnyOp]) -> list[Need]:
    """What is needed of each operator by all that read it."""
    users = [0] * len(operators)
    for op in operators:
        for given in op.inputs:
            users[given] += 1
    needs: list[Need] = [NOTHING if count else None for count in users]
    for op, need in zip(reversed(operators), reversed(range(len(operators))), strict=True):
        asked = asked_of(op, needs[need])
        if isinstance(op, UnionOp):
            asked = asked_of_union([operators[i] for i in op.inputs], users, op, needs[need])
        for given in op.inputs:
            before = needs[given]
            needs[given] = None if before is None or asked is None else before | asked
    return needs


def asked_of_union(inputs: Sequence[AnyOp], users: Sequence[int], op: UnionOp, need: Need) -> Need:
    """The inputs of a union must keep the same columns: only projections for it alone are sure
    to."""
    alone = all(isinstance(one, ProjectOp) for one in inputs)
    if need is None or not alone or any(users[i] > 1 for i in op.inputs):
        return None
    stay = {
        name
        for one in inputs
        if isinstance(one, ProjectOp)
        for name, expr in one.columns
        if can_fail(expr)
    }
    return (need | stay) or frozenset(op.schema.names[:1])


def asked_of(op: AnyOp, need: Need) -> Need:
    """The columns of its input that an operator needs for the needed ones of its own."""
    if op.on_error == "dead_letter":
        return None  # a letter has the whole record
    match op:
        case FilterOp():
            return None if need is None else need | columns_read(op.predicate)
        case EventTimeOp():
            return None if need is None else need | columns_read(op.time)
        case ShedOp():
            read = (name for sample in op.samples for name in sample.columns)
            return None if need is None else (need - {op.ratio}).union(read)
        case ProjectOp():
            return read_by(expr for _, expr in kept_columns(op, need))
        case AggregateOp():
            return frozenset(op.keys) | read_by_results(op.aggregates)
        case TimedOp():
            return asked_of_timed(op, need)
        case SourceOp() | CallOp() | FoldOp() | StatefulOp() | UnionOp() | SinkOp():
            return None
        case _:
            assert_never(op)


def asked_of_timed(op: TimedOp, need: Need) -> Need:
    own = frozenset(name for name in (*op.keys, op.time) if name)
    spec = op.spec
    match spec:
        case temporal.WindowSpec() | temporal.LastSpec() | temporal.RunningSpec():
            given = isinstance(spec, temporal.WindowSpec) and isinstance(
                spec.window, temporal.CarriedWindow
            )
            bounds = frozenset((START, END)) if given else NOTHING
            return own | bounds | read_by_results(spec.aggregates)
        case temporal.TopSpec():
            bounds = frozenset((START, END))
            if need is None:
                return None
            need -= {spec.complete}
            if not isinstance(spec.window, temporal.CarriedWindow):
                return (need - bounds) | own | {spec.by}
            return need | bounds | own | {spec.by}
        case temporal.LateSpec():
            return None if need is None else need | own
        case temporal.JoinSpec() | temporal.SpanSpec():
            left, right = kept_sides(op, spec, need)
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


def kept_columns(op: ProjectOp, need: Need) -> tuple[tuple[str, Expr], ...]:
    made_by_user = "." not in op.name
    if need is None or made_by_user:
        return op.columns
    kept = tuple((name, expr) for name, expr in op.columns if name in need or can_fail(expr))
    return kept or op.columns[:1]


def kept_sides(
    op: TimedOp, spec: temporal.JoinSpec | temporal.SpanSpec, need: Need
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of both sides that a join must have, in their order."""
    if need is None:
        return spec.left.columns, spec.right.columns
    names = [field.name for field in op.schema.fields]
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


def rebuild(op: AnyOp, need: Need, inputs: Sequence[tuple[AnyOp, AnyOp]]) -> AnyOp:
    """The operator with what is left of its inputs (before, after) and of its own columns."""
    changed = any(old.schema.names != new.schema.names for old, new in inputs)
    match op:
        case ProjectOp():
            kept = kept_columns(op, need)
            if len(kept) == len(op.columns):
                return op
            names = {name for name, _ in kept}
            return replace(op, columns=kept, schema=only(op.schema, names))
        case TimedOp(spec=temporal.JoinSpec() | temporal.SpanSpec()):
            return joined_again(op, need)
        case TimedOp(spec=temporal.TopSpec() | temporal.LateSpec()) if changed:
            old, new = inputs[0]
            more = op.schema.fields[len(old.schema.fields) :]
            return replace(op, schema=Schema((*new.schema.fields, *more)))
        case ShedOp(ratio=ratio) if changed and ratio:
            return replace(op, schema=Schema((*inputs[0][1].schema.fields, op.schema[ratio])))
        case FilterOp() | ShedOp() if changed:
            return replace(op, schema=inputs[0][1].schema)
        case EventTimeOp() if changed:
            return replace(op, schema=only(op.schema, set(inputs[0][1].schema.names)))
        case UnionOp() if changed:
            return replace(op, schema=only(op.schema, set(inputs[0][1].schema.names)))
    return op


def joined_again(op: TimedOp, need: Need) -> TimedOp:
    spec = op.spec
    assert isinstance(spec, temporal.JoinSpec | temporal.SpanSpec)
    left, right = kept_sides(op, spec, need)
    if (left, right) == (spec.left.columns, spec.right.columns):
        return op
    fields: list[Field] = []
    out = list(op.schema.fields)
    fields += [f for c, f in zip(spec.left.columns, out, strict=False) if c in left]
    rest = out[len(spec.left.columns) :]
    if isinstance(spec, temporal.JoinSpec) and spec.how not in temporal.ONE_SIDED:
        rest = [f for c, f in zip(spec.right.columns, rest, strict=True) if c in right]
    ours, theirs = replace(spec.left, columns=left), replace(spec.right, columns=right)
    schema = Schema((*fields, *rest))
    if isinstance(spec, temporal.JoinSpec):
        return replace(op, schema=schema, spec=replace(spec, left=ours, right=theirs))
    return replace(op, schema=schema, spec=replace(spec, left=ours, right=theirs))


def only(schema: Schema, names: set[str]) -> Schema:
    return Schema(tuple(field for field in schema.fields if field.name in names))
