"""From a `TimedOp` to the plain numbers that the native operator is made from.

Pure. The rows that reach the native operator are projected first, as for a running aggregate: for
windows and last_n the keys, the times and the inputs of the aggregates; for everything else the
whole row. `Lowered.numbers` has the fields of `TimedSpec` in timed_spec.hpp by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

from plait.graph.temporal import (
    SIDE,
    AsOf,
    Between,
    CarriedWindow,
    Grid,
    JoinSpec,
    LastSpec,
    LateSpec,
    OperatorSpec,
    ProcessSpec,
    RowWindow,
    RunningSpec,
    SessionWindow,
    SpanSpec,
    TopSpec,
    WindowSpec,
    is_by_arrival,
)
from plait.model.schema import Type

if TYPE_CHECKING:
    from plait.expr.aggregates import Aggregate
    from plait.expr.tree import Expr
    from plait.graph.operators import TimedOp
    from plait.graph.temporal import Side
    from plait.model.schema import Schema

WINDOW_START, WINDOW_END = "window_start", "window_end"

AggregateInput = tuple[str, int, Type, bool]
"""Kind, column or -1, type, whether it may be null."""


@dataclass(slots=True)
class Lowered:
    """What the native operator is made from."""

    items: list[Expr | int] = field(default_factory=list)
    """The columns that it reads: a column of the operator's input, or an expression over it."""
    whole_row: bool = False
    """They are the columns of the input as they are."""
    keys: list[tuple[int, Type]] = field(default_factory=list)
    """Their columns and types."""
    aggregates: list[AggregateInput] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)


def lower_timed(op: TimedOp, given: Schema) -> Lowered:
    """The plan of `operator`, whose input has the schema `given`."""
    spec = op.spec
    match spec:
        case WindowSpec():
            made = narrow(op, given, spec.aggregates)
            add_window(made, op, given, spec.window)
            made.numbers |= {
                "kind": "Window",
                "lateness": spec.lateness_us,
                "early": spec.early_us,
                "complete": bool(spec.complete),
            }
            add_ttl(made, op, given, spec.ttl_us)
        case LastSpec():
            made = narrow(op, given, spec.aggregates)
            made.numbers |= {"kind": "Last", "k": spec.n}
            add_ttl(made, op, given, spec.ttl_us)
        case RunningSpec():
            made = narrow(op, given, spec.aggregates)
            made.numbers |= {"kind": "Running"}
            add_ttl(made, op, given, spec.ttl_us)
        case TopSpec():
            made = whole(op, given)
            add_window(made, op, given, spec.window)
            made.numbers |= {
                "kind": "Top",
                "k": spec.k,
                "by": given.index(spec.by),
                "greatest": spec.greatest,
                "ties": spec.ties,
                "lateness": spec.lateness_us,
                "complete": bool(spec.complete),
            }
        case LateSpec():
            made = whole(op, given)
            add_window(made, op, given, spec.window)
            made.numbers |= {"kind": "Late", "lateness": spec.lateness_us}
        case JoinSpec():
            made = whole(op, given)
            add_sides(made, given, spec.left, spec.right)
            made.numbers |= {"kind": "Join", "how": spec.how.capitalize(), "ttl": spec.ttl_us}
            made.numbers |= within(spec.within)
        case SpanSpec():
            made = whole(op, given)
            add_sides(made, given, spec.left, spec.right)
            add_aggregates(made, given, spec.aggregates)
            made.numbers |= {
                "kind": "Span",
                "span_start": given.index(spec.start),
                "span_end": given.index(spec.end),
                "empty": spec.empty,
                "wait": spec.wait_us,
            }
        case ProcessSpec() | OperatorSpec():
            raise AssertionError(f"{op} runs in Python")
        case _:
            assert_never(spec)
    return made


def narrow(op: TimedOp, given: Schema, aggregates: tuple[tuple[str, Aggregate], ...]) -> Lowered:
    """Only the keys and what the aggregates read."""
    made = Lowered()
    for key in op.keys:
        made.keys.append((len(made.items), given[key].type))
        made.items.append(given.index(key))
    add_aggregates(made, given, aggregates)
    return made


def whole(op: TimedOp, given: Schema) -> Lowered:
    """The row as it is."""
    made = Lowered(items=list(range(len(given))), whole_row=True)
    made.keys = [(given.index(key), given[key].type) for key in op.keys]
    return made


def add_aggregates(
    made: Lowered, given: Schema, aggregates: tuple[tuple[str, Aggregate], ...]
) -> None:
    from plait.node_runtime.lowering.expressions import lower

    for _, aggregate in aggregates:
        if aggregate.over is None:
            made.aggregates.append((aggregate.kind, -1, Type.INT64, False))
            continue
        over = lower(aggregate.over, given)
        kind = native_kind(aggregate)
        made.aggregates.append((kind, len(made.items), over.type, over.nullable))
        made.items.append(aggregate.over if over.passthrough is None else over.passthrough)
        made.whole_row = False


def native_kind(aggregate: Aggregate) -> str:
    """The kind as the engine names it."""
    return f"wrapping_{aggregate.kind}" if aggregate.wrap else aggregate.kind


def column(made: Lowered, given: Schema, name: str) -> int:
    """The place of an input column among the items; it is added if it is not there."""
    number = given.index(name)
    for place, item in enumerate(made.items):
        if isinstance(item, int) and item == number:
            return place
    made.items.append(number)
    return len(made.items) - 1


def add_window(made: Lowered, op: TimedOp, given: Schema, window: Any) -> None:
    if isinstance(window, CarriedWindow):
        made.numbers |= {
            "within": "Given",
            "window_start": column(made, given, WINDOW_START),
            "window_end": column(made, given, WINDOW_END),
        }
        return
    made.numbers |= within(window)
    if is_by_arrival(op.spec):
        made.numbers["arrival"] = True
    elif not isinstance(window, RowWindow):
        made.numbers["time"] = column(made, given, op.time)


def add_ttl(made: Lowered, op: TimedOp, given: Schema, ttl_us: int) -> None:
    if ttl_us:
        made.numbers |= {"ttl": ttl_us, "time": column(made, given, op.time)}


def within(window: Grid | SessionWindow | RowWindow | Between | AsOf | None) -> dict[str, Any]:
    match window:
        case None:
            return {"within": "Nothing"}
        case Grid():
            return {
                "within": "Grid",
                "size": window.size_us,
                "every": window.every_us,
                "offset": window.offset_us,
            }
        case SessionWindow():
            return {"within": "Session", "gap": window.gap_us}
        case RowWindow():
            return {"within": "Rows", "size": window.size, "every": window.every}
        case Between():
            return {"within": "Between", "low": window.low_us, "high": window.high_us}
        case AsOf():
            return {"within": "AsOf", "tolerance": window.tolerance_us}
        case _:
            assert_never(window)


def add_sides(made: Lowered, given: Schema, left: Side, right: Side) -> None:
    made.numbers["side"] = given.index(SIDE)
    for name, side in (("left", left), ("right", right)):
        made.numbers[name] = [given.index(one) for one in side.columns]
        made.numbers[f"{name}_time"] = given.index(side.time) if side.time else -1
