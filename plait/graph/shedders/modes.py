"""Which operators give wrong answers on which samples; pure.

Counts, sums and means of a sample of records can be scaled to all of them. Nothing else can: a join
of two samples has the square of their ratio of the pairs, a session loses the records that held it
together, and nobody knows how many distinct values were dropped. There all records of a key are
kept, or none, and what a kept key gets is exactly right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.errors import JobError
from plait.graph.operators import AggregateOp, AnyOp, FoldOp, StatefulOp, TimedOp
from plait.graph.temporal import (
    CarriedWindow,
    Grid,
    JoinSpec,
    LateSpec,
    SessionWindow,
    SpanSpec,
    TopSpec,
    WindowSpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.expr.aggregates import Aggregate
    from plait.graph.operators import SinkOp
    from plait.graph.shedders.quality import ShedMode

STATE = (AggregateOp, FoldOp, StatefulOp, TimedOp)
SCALES = ("count", "sum", "mean")
"""Aggregates whose value over all records follows from that over a sample of them."""


def whole_keys_for(op: AnyOp) -> str:
    """Why an operator needs all records of a key, if it does."""
    match op:
        case AggregateOp():
            return not_scaled(op.aggregates)
        case FoldOp() | StatefulOp():
            return "its function sees one record after the other"
        case TimedOp(spec=WindowSpec(window=Grid() | CarriedWindow()) as spec):
            return not_scaled(spec.aggregates)
        case TimedOp(spec=WindowSpec(window=SessionWindow()) | TopSpec(window=SessionWindow())):
            return "a session falls apart where a record is missing"
        case TimedOp(spec=JoinSpec() | SpanSpec()):
            return "two samples of records have the square of their ratio of the pairs"
        case TimedOp(spec=LateSpec()):
            return ""
        case TimedOp():
            return "its results are of single records"
    return ""


def not_scaled(aggregates: Iterable[tuple[str, Aggregate]]) -> str:
    kinds = sorted({aggregate.kind for _, aggregate in aggregates} - {*SCALES})
    return f"{' and '.join(kinds)} cannot be told from a sample of records" if kinds else ""


def broken_by_records(op: AnyOp) -> str:
    """Why an operator cannot be given a sample of records, whatever the user says."""
    pairs = isinstance(op, TimedOp) and isinstance(op.spec, JoinSpec | SpanSpec)
    gaps = isinstance(op, TimedOp) and isinstance(getattr(op.spec, "window", None), SessionWindow)
    counts = getattr(op, "aggregates", getattr(getattr(op, "spec", None), "aggregates", ()))
    distinct = any(aggregate.kind == "distinct" for _, aggregate in counts)
    return whole_keys_for(op) if pairs or gaps or distinct else ""


def mode_of(
    operators: Sequence[AnyOp], sink: SinkOp, before: Sequence[int]
) -> tuple[ShedMode, tuple[int, ...], str]:
    """How records of a query are chosen, the operators that must see whole keys, and why.

    `before`: the operators that lead to the sink. JobError if what the sink asks for would make
    results wrong.
    """
    asked = sink.quality.shed
    needy = {number: why for number in before if (why := whole_keys_for(operators[number]))}
    if asked == "records":
        for number in needy:
            if why := broken_by_records(operators[number]):
                raise JobError(
                    f'{sink}: shed="records" would break {operators[number]}: {why}; write'
                    ' shed="keys", or leave out min_accuracy='
                )
        return "records", (), "as the sink says"
    if needy:
        number, why = next(iter(needy.items()))
        return "keys", tuple(needy), f"{operators[number]}: {why}"
    if asked == "auto":
        return "records", (), "its state is counts, sums and means alone"
    keyed = tuple(number for number in before if getattr(operators[number], "keys", ()))
    if not keyed:
        raise JobError(
            f'{sink}: shed="keys", and no operator before it has a key; write shed="records"'
        )
    return "keys", keyed, "as the sink says"
