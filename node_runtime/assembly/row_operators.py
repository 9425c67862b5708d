"""Operators that take a batch row by row and run inside a stage: filters, projections, and what a
running aggregate needs before its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.operators import AggregateOp, FilterOp, ProjectOp
from plait.model.schema import Type
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.native._kernels import NativeProgram

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.expr.tree import Expr
    from plait.model.schema import Schema
    from plait.node_runtime.assembly.stage_context import StageContext


def add_operators(context: StageContext, numbers: Iterable[int]) -> None:
    for number in numbers:
        add_operator(context, number)


def add_operator(context: StageContext, number: int) -> None:
    op = context.graph.operators[number]
    schema = context.input_schema(op)
    match op:
        case FilterOp():
            program = NativeProgram(lower(op.predicate, schema))
            context.engine.filter(number, op.on_error, program)
        case ProjectOp():
            items = [project_item(expr, schema) for _, expr in op.columns]
            context.engine.project(number, op.on_error, items)
        case AggregateOp():
            add_aggregate(context, number, op)
        case _:
            raise AssertionError(f"{op} does not run inside a stage")


def project_item(expr: Expr, schema: Schema) -> NativeProgram | int:
    lowered = lower(expr, schema)
    return lowered.passthrough if lowered.passthrough is not None else NativeProgram(lowered)


def float_keys(keys: Sequence[str], schema: Schema) -> list[int]:
    """The key columns that may hold a NaN."""
    return [schema.index(key) for key in keys if schema[key].type is Type.FLOAT64]


def add_aggregate(context: StageContext, number: int, op: AggregateOp) -> None:
    """Keys and the aggregates' inputs are projected first; the state reads them by position."""
    engine, schema = context.engine, context.input_schema(op)
    items: list[NativeProgram | int] = [schema.index(key) for key in op.keys]
    aggregates: list[tuple[str, int, Type, bool]] = []
    for _, aggregate in op.aggregates:
        if aggregate.over is None:
            aggregates.append((aggregate.kind, -1, Type.INT64, False))
            continue
        lowered = lower(aggregate.over, schema)
        aggregates.append((aggregate.kind, len(items), lowered.type, lowered.nullable))
        passed = lowered.passthrough
        items.append(passed if passed is not None else NativeProgram(lowered))
    keys = [(i, schema[key].type) for i, key in enumerate(op.keys)]
    engine.key_guard(number, op.on_error, float_keys(op.keys, schema))
    engine.project(number, op.on_error, items, True)
    lane_bits = context.lane_bits if op.keys else 0
    engine.keyed(number, keys, aggregates, context.settings.bin_bits, lane_bits)
