"""How far the watermark of an operator stays behind the time of each origin that reaches it.

An origin is a source with an event time, or an operator that names one or goes by arrival: those
before it do not reach what is behind it. The delay is the origin's `out_of_order`, and what the
operators in between hold back: a semi join gives a left record when its first match comes, with the
time of that record, which may be long gone. What is behind such an operator would call its results
late, so time there waits as long as they can. The length is a constant of the graph.

    >>> from plait.graph.temporal import Side
    >>> hold_us(JoinSpec(left=Side(columns=()), right=Side(columns=()), how="semi", ttl_us=5))
    5
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.operators import EventTimeOp, SourceOp, TimedOp
from plait.graph.temporal import Between, Grid, JoinSpec, is_by_arrival

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.graph.operators import AnyOp
    from plait.graph.temporal import TimedSpec


def hold_us(spec: TimedSpec) -> int:
    """How much older than the operator's watermark the time of a result in time may be."""
    match spec:
        case JoinSpec(how="semi" | "left" | "anti", within=Grid(size_us=size)):
            return size
        case JoinSpec(how="semi", within=Between(high_us=high)):
            return max(high, 0)
        case JoinSpec(how="semi", within=None, ttl_us=ttl):
            return ttl
    return 0


def watermark_delays(operators: Sequence[AnyOp]) -> list[dict[int, int]]:
    """For each operator: the origins of time that reach it, by their numbers among the operators,
    and how far its watermark stays behind the time of each, in microseconds."""
    behind: list[dict[int, int]] = []
    """The same for what reads the operator's output."""
    delays: list[dict[int, int]] = []
    for number, op in enumerate(operators):
        mine: dict[int, int] = {}
        for given in op.inputs:
            for origin, delay in behind[given].items():
                mine[origin] = max(delay, mine.get(origin, 0))
        if isinstance(op, SourceOp) and op.event_time is not None:
            mine = {number: op.out_of_order_us}
        if is_arrival(op):
            mine = {number: 0}
        held = hold_us(op.spec) if isinstance(op, TimedOp) else 0
        delays.append(mine)
        if isinstance(op, EventTimeOp):
            behind.append({number: op.out_of_order_us})
        else:
            behind.append({origin: delay + held for origin, delay in mine.items()})
    return delays


def is_arrival(op: AnyOp) -> bool:
    """Whether the operator goes by when its records arrived."""
    return isinstance(op, TimedOp) and is_by_arrival(op.spec)


def origins_read(operators: Sequence[AnyOp]) -> frozenset[int]:
    """The origins by whose time some operator goes."""
    delays = watermark_delays(operators)
    timed = (i for i, op in enumerate(operators) if isinstance(op, TimedOp))
    return frozenset(origin for i in timed for origin in delays[i])
