"""The exchanges of a job on several nodes: a route stage that sends rows to their nodes, and a
gather stage that puts the parts of all nodes together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.graph.operators import AggregateOp, FoldOp, StatefulOp, TimedOp
from plait.node_runtime.assembly.stage_context import StageEnds
from plait.node_runtime.native.stage_specs import GatherStageSpec, RouteStageSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.node_runtime.assembly.stage_context import StageContext
    from plait.node_runtime.lowering.exchanges import Exchange
    from plait.node_runtime.native.stage_specs import KeyColumns, RowOperatorSpec

STATE_OPS = (AggregateOp, FoldOp, StatefulOp, TimedOp)


@dataclass(frozen=True, slots=True)
class ExchangePair:
    """The two sides of an exchange among the engine's stages; gather -1: no part comes here."""

    route: int
    gather: int


def add_exchange_before(
    context: StageContext, keys: KeyColumns, operators: Sequence[RowOperatorSpec] = ()
) -> ExchangePair | None:
    """The exchange before a stage, if it has one; `operators` run before the rows leave."""
    exchange = context.parts.exchanges.before.get(context.number)
    return None if exchange is None else add_exchange(context, keys, exchange, operators)


def add_exchange(
    context: StageContext,
    keys: KeyColumns,
    exchange: Exchange,
    operators: Sequence[RowOperatorSpec] = (),
) -> ExchangePair:
    seat = context.parts.seat
    assert seat is not None
    engine, ops = context.engine, context.graph.operators
    with_state = (i for i in context.stage.operators if isinstance(ops[i], STATE_OPS))
    op = next(with_state, context.first)
    route = engine.route_stage(
        RouteStageSpec(
            stage=context.spec(f"to {context.name}"),
            channel=exchange.channel,
            by=exchange.by,
            op=op,
            home=seat.home,
            keys=keys,
            bin_bits=context.settings.bin_bits,
            repeats=exchange.repeats,
            tags=exchange.tags,
            operators=operators,
        )
    )
    if exchange.by == "home" and seat.rank != seat.home:
        return ExchangePair(route, -1)
    gather = engine.gather_stage(
        GatherStageSpec(
            stage=context.spec(f"at {context.name}"),
            channel=exchange.channel,
            op=op,
            sources=context.pipeline.sources_of(context.number),
            unique=exchange.unique,
            tags=exchange.tags,
            index=exchange.index,
        )
    )
    engine.connect(route, gather, 0)
    return ExchangePair(route, gather)


def connect_after(context: StageContext, exchange: ExchangePair | None, tail: int) -> StageEnds:
    """A stage after its exchange, if there is one."""
    if exchange is None:
        return StageEnds(tail, tail)
    if exchange.gather >= 0:
        context.engine.connect(exchange.gather, tail, 0)
    return StageEnds(exchange.route, tail)
