"""Which way a plain Python function goes: in the engine's process, or in worker processes; pure.

`pool`: in worker processes from the first record on, because the user said so. `auto`: it starts in
the engine's process and moves on, with its state if it has one, when it has proved to cost enough.
`inline`: it stays, and the reason says why. Functions that follow each other on the same route make
one trip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from plait.functions.pickling import why_not
from plait.functions.shared_state import shared_in_process, shared_thing
from plait.graph.operators import FoldOp, StatefulOp, TimedOp
from plait.graph.temporal import ProcessSpec
from plait.model.schema import Type

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from plait.graph.operators import CallOp, Graph
    from plait.model.settings import Settings

    StateNode = FoldOp | StatefulOp | TimedOp
    """Of these TimedNodes those that are a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A route, and why."""

    route: Literal["pool", "auto", "inline"]
    why: str


def processes_of(settings: Settings) -> int:
    """How many worker processes a pool has."""
    return settings.threads if settings.pool is None else settings.pool


def functions_of(op: CallOp | StateNode) -> tuple[Any, ...]:
    """What of an operator would be sent to a worker process."""
    if isinstance(op, TimedOp):
        assert isinstance(op.spec, ProcessSpec)
        return (op.spec.process,)
    return op.functions


def route_of_call(op: CallOp | StateNode, graph: Graph, settings: Settings) -> Routed:
    """The route of one operator."""
    if settings.pool == 0:
        return Routed(route="inline", why="pool=0: no worker processes")
    if op.route == "inline":
        return Routed(route="inline", why='route="inline"')
    if op.route == "pool":
        return Routed(route="pool", why='route="pool"')
    kept = kept_inline(op, graph, settings)
    if kept is not None:
        return Routed(route="inline", why=f"kept inline: {kept}")
    if settings.pool is not None:
        return Routed(route="pool", why=f"pool={settings.pool}")
    return Routed(route="auto", why="inline until it has proved to cost enough for the pool")


def kept_inline(op: CallOp | StateNode, graph: Graph, settings: Settings) -> str | None:
    """Why a function does not go to the pool by itself; None: it may."""
    if settings.pool is None and settings.threads < 2:
        return "one worker, and a pool of one process gains nothing"
    if isinstance(op, FoldOp | StatefulOp | TimedOp) and not op.keys:
        return "one state for all records, which only one process could have"
    look = shared_in_process if isinstance(op, TimedOp) else shared_thing
    for function in functions_of(op):
        found = look(function)
        if found is not None:
            return f'{found}, and worker processes would have copies; route="pool" if that is fine'
    given = graph.operators[op.inputs[0]].schema
    for field in (*given.fields, *op.schema.fields):
        if field.type is Type.OBJECT:
            return f'column "{field.name}" holds Python objects, which would be pickled'
    # Without `pool=` this is found out when the pool is started, if it ever is.
    return why_not(functions_of(op)) if settings.pool is not None else None


def trips(
    operators: Sequence[int], routes: Sequence[Routed]
) -> list[tuple[Routed, tuple[int, ...]]]:
    """Operators that follow each other, in groups of one route."""
    found: list[tuple[Routed, tuple[int, ...]]] = []
    for op, routed in zip(operators, routes, strict=True):
        if found and found[-1][0].route == routed.route:
            found[-1] = (found[-1][0], (*found[-1][1], op))
        else:
            found.append((routed, (op,)))
    return found
