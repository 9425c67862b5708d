"""Operators that take a batch row by row and run inside a stage: filters, projections, those that
name the event time, and those that prepare the rows of a running aggregate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.delays import origins_read
from plait.graph.operators import EventTimeOp, FilterOp, ProjectOp, ShedOp, TimedOp
from plait.graph.stages import origin_numbers
from plait.graph.temporal import time_columns
from plait.model.schema import Type
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.lowering.temporal import native_kind
from plait.node_runtime.native._kernels import NativeProgram
from plait.node_runtime.native.stage_specs import (
    EventTimeSpec,
    FilterSpec,
    NanKeySpec,
    ProjectSpec,
    ShedSpec,
    StateErrorsSpec,
)
from plait.shedding.plan import SEED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plait.expr.tree import Expr
    from plait.graph.operators import AggregateOp
    from plait.model.schema import Schema
    from plait.node_runtime.assembly.stage_context import StageContext
    from plait.node_runtime.native.stage_specs import RowOperatorSpec

AggregateColumns = list[tuple[str, int, Type, bool]]
"""Of each aggregate: kind, column or -1, type, whether it may be null."""


def row_operators(context: StageContext, numbers: Iterable[int]) -> list[RowOperatorSpec]:
    """The operators of these numbers."""
    return [row_operator(context, number) for number in numbers]


def row_operator(context: StageContext, number: int) -> RowOperatorSpec:
    op = context.graph.operators[number]
    schema = context.input_schema(op)
    match op:
        case FilterOp():
            program = NativeProgram(lower(op.predicate, schema))
            return FilterSpec(op=number, on_error=op.on_error, program=program)
        case ProjectOp():
            items = [project_item(expr, schema) for _, expr in op.columns]
            return ProjectSpec(op=number, on_error=op.on_error, items=items)
        case ShedOp():
            samples = [
                (
                    [(schema.index(name), schema[name].type) for name in sample.columns],
                    sample.queries,
                )
                for sample in op.samples
            ]
            return ShedSpec(op=number, seed=SEED, samples=samples, ratio=bool(op.ratio))
        case EventTimeOp():
            return EventTimeSpec(
                op=number,
                on_error=op.on_error,
                time=project_item(op.time, schema),
                origin=origin_numbers(context.graph)[number],
                read=number in origins_read(context.graph.operators),
            )
        case _:
            raise AssertionError(f"{op} does not run inside a stage")


def project_item(expr: Expr, schema: Schema) -> NativeProgram | int:
    lowered = lower(expr, schema)
    return lowered.passthrough if lowered.passthrough is not None else NativeProgram(lowered)


def nan_filter(number: int, op: AggregateOp | TimedOp, schema: Schema) -> NanKeySpec:
    """Before a keyed operator: rows whose key holds a NaN fail, and those whose event time is too
    far off."""
    columns = [schema.index(key) for key in op.keys if schema[key].type is Type.FLOAT64]
    names = time_columns(op.time, op.spec) if isinstance(op, TimedOp) else ()
    times = [schema.index(name) for name in names]
    return NanKeySpec(op=number, on_error=op.on_error, float_keys=columns, times=times)


def state_errors(
    context: StageContext,
    op: AggregateOp | TimedOp,
    items: list[NativeProgram | int] | list[Expr | int],
    aggregates: AggregateColumns,
) -> StateErrorsSpec:
    """What becomes of rows that do not fit a sum. `items` are the columns that reach the state; the
    other columns of the record are added to them, so that an error can show it: on several nodes
    only for a dead letter, because they would travel with every record."""
    checked = any(kind == "sum" and type is Type.INT64 for kind, _, type, _ in aggregates)
    if not checked or op.on_error == "skip":
        return StateErrorsSpec(on_error=op.on_error)
    columns = range(len(context.input_schema(op)))
    places = {item: place for place, item in enumerate(items) if isinstance(item, int)}
    missing = [column for column in columns if column not in places]
    if missing and context.parts.seat is not None and op.on_error == "fail":
        return StateErrorsSpec(on_error=op.on_error)
    for column in missing:
        places[column] = len(items)
        items.append(column)
    return StateErrorsSpec(on_error=op.on_error, record=[places[column] for column in columns])


def aggregate_inputs(
    context: StageContext, number: int, op: AggregateOp
) -> tuple[list[RowOperatorSpec], AggregateColumns, StateErrorsSpec]:
    """Keys and the aggregates' inputs are projected first; the state reads them by position. Gives
    the operators that do so, the aggregates, and what becomes of rows that do not fit them."""
    schema = context.input_schema(op)
    items: list[NativeProgram | int] = [schema.index(key) for key in op.keys]
    aggregates: AggregateColumns = []
    for _, aggregate in op.aggregates:
        if aggregate.over is None:
            aggregates.append((aggregate.kind, -1, Type.INT64, False))
            continue
        lowered = lower(aggregate.over, schema)
        aggregates.append((native_kind(aggregate), len(items), lowered.type, lowered.nullable))
        passed = lowered.passthrough
        items.append(passed if passed is not None else NativeProgram(lowered))
    errors = state_errors(context, op, items, aggregates)
    project = ProjectSpec(op=number, on_error=op.on_error, items=items, hidden=True)
    return [nan_filter(number, op, schema), project], aggregates, errors
