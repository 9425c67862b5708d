"""What the bytes of an operator's bins are, as a checkpoint says it in plain data.

Pure. `shape_of` is written into the manifest; `plan_of` makes from it the numbers that the native
operator was made from, so that the bytes can be read by that operator itself, without the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.checkpoints.manifests import StateShape
from plait.errors import StateError
from plait.graph.operators import AggregateOp, FoldOp, StatefulOp, TimedOp
from plait.graph.state_types import describe, state_type
from plait.graph.temporal import JoinSpec, LateSpec, OperatorSpec, ProcessSpec, SpanSpec
from plait.model.schema import Type
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.lowering.temporal import lower_timed, native_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.model.schema import Schema

Keyed = AggregateOp | FoldOp | StatefulOp | TimedOp
NamedType = tuple[str, Type]


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan:
    """What a native operator is made from; `keys` and `aggregates` are as `NativeTimedPlan` and
    `RestingState` take them."""

    keys: list[tuple[int, Type]]
    aggregates: list[tuple[str, int, Type, bool]]
    types: list[Type] = field(default_factory=list)
    out_types: list[Type] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)


def shape_of(given: Schema, op: Keyed) -> StateShape | None:
    """The shape of an operator's state, whose input has the schema `given`; None: it has none."""
    keys = tuple(op.keys)
    key_types = tuple(given[key].type.value for key in keys)
    if isinstance(op, FoldOp | StatefulOp):
        found = describe(state_type(op))
        plan: dict[str, Any] = {} if found is None else {"type": found}
        return StateShape(holder="keyed", keys=keys, key_types=key_types, plan=plan)
    if isinstance(op, AggregateOp):
        return aggregate_shape(given, op, key_types)
    if isinstance(op.spec, ProcessSpec):
        kinds = op.spec.process.state
        plan = {"state": {name: kind_text(kind) for name, kind in kinds.items()}}
        return StateShape(holder="process", keys=keys, key_types=key_types, plan=plan)
    if isinstance(op.spec, OperatorSpec | LateSpec):
        return None
    return timed_shape(given, op, key_types)


def version_of(op: Keyed) -> int:
    """The version of its state, as the user counts."""
    if isinstance(op, FoldOp | StatefulOp):
        return op.version
    if isinstance(op, TimedOp) and isinstance(op.spec, ProcessSpec):
        return int(op.spec.process.version)
    return 1


def migration_of(op: Keyed) -> Callable[[Any, int], Any] | None:
    """The user's function that makes a state of an older one and its version."""
    if isinstance(op, FoldOp | StatefulOp):
        return op.migrate
    if isinstance(op, TimedOp) and isinstance(op.spec, ProcessSpec):
        found = getattr(op.spec.process, "migrate", None)
        return None if getattr(op.spec.process, "migrates", found) is None else found
    return None


def kind_text(kind: Any) -> str:
    return str(kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else kind)


def aggregate_shape(given: Schema, op: AggregateOp, key_types: tuple[str, ...]) -> StateShape:
    aggregates: list[list[Any]] = []
    for at, (name, aggregate) in enumerate(op.aggregates):
        if aggregate.over is None:
            aggregates.append([name, aggregate.kind, -1, Type.INT64.value, False])
            continue
        over = lower(aggregate.over, given)
        facts = [native_kind(aggregate), len(op.keys) + at, over.type.value, over.nullable]
        aggregates.append([name, *facts])
    columns = [(one.name, one.type) for one in op.schema]
    return shown("aggregate", op.keys, key_types, columns, {"aggregates": aggregates})


def timed_shape(given: Schema, op: TimedOp, key_types: tuple[str, ...]) -> StateShape:
    made = lower_timed(op, given)
    types = [
        given.fields[i].type if isinstance(i, int) else lower(i, given).type for i in made.items
    ]
    plan = {
        "types": [kind.value for kind in types],
        "out_types": [one.type.value for one in op.schema],
        "keys": [column for column, _ in made.keys],
        "aggregates": [
            ["", kind, at, over.value, null] for kind, at, over, null in made.aggregates
        ],
        "numbers": {name: plain_number(value) for name, value in made.numbers.items()},
    }
    return shown("timed", key_names(op), key_types, listed(given, op), plan)


def key_names(op: TimedOp) -> tuple[str, ...]:
    """The key columns of a join have names of their own making."""
    if not isinstance(op.spec, JoinSpec | SpanSpec):
        return tuple(op.keys)
    return ("key",) if len(op.keys) == 1 else tuple(f"key_{i}" for i in range(len(op.keys)))


def listed(given: Schema, op: TimedOp) -> list[NamedType]:
    """The columns in which the lane of an operator lists what it keeps."""
    spec = op.spec
    keys = [(name, given[old].type) for name, old in zip(key_names(op), op.keys, strict=True)]
    if isinstance(spec, SpanSpec):
        left = [(f"left_{name[2:]}", given[name].type) for name in spec.left.columns]
        results = [(one.name, one.type) for one in op.schema][len(left) :]
        return [*keys, *left, *results]
    if isinstance(spec, JoinSpec):
        sides = {"left": spec.left, "right": spec.right}
        if spec.how in ("semi", "anti"):
            del sides["right"]
        records = [
            (f"{side}_{name[2:]}", given[name].type)
            for side, found in sides.items()
            for name in found.columns
        ]
        return [*keys, ("side", Type.INT64), ("time", Type.TIMESTAMP), *records]
    return [(one.name, one.type) for one in op.schema]


def plain_number(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


def shown(
    holder: str,
    keys: tuple[str, ...],
    key_types: tuple[str, ...],
    columns: list[NamedType],
    plan: dict[str, Any],
) -> StateShape:
    return StateShape(
        holder=holder,
        keys=tuple(keys),
        key_types=key_types,
        columns=tuple(name for name, _ in columns),
        column_types=tuple(kind.value for _, kind in columns),
        plan=plan,
    )


def plan_of(shape: StateShape) -> NativePlan:
    """The plan of a shape of native state; a StateError if it is none that this version knows."""
    try:
        aggregates = [
            (kind, at, Type(over), null) for _, kind, at, over, null in shape.plan["aggregates"]
        ]
        key_types = [Type(kind) for kind in shape.key_types]
        if shape.holder == "aggregate":
            return NativePlan(keys=list(enumerate(key_types)), aggregates=aggregates)
        return NativePlan(
            keys=list(zip(shape.plan["keys"], key_types, strict=True)),
            aggregates=aggregates,
            types=[Type(kind) for kind in shape.plan["types"]],
            out_types=[Type(kind) for kind in shape.plan["out_types"]],
            numbers=shape.plan["numbers"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"the checkpoint says of its state what this plait does not know: {error}"
        ) from None
