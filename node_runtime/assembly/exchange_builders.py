"""The exchanges of a job on several nodes: a route stage that sends rows to their nodes, and a
gather stage that puts the parts of all nodes together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.graph.operators import AggregateOp, FoldOp, StatefulOp, TimedOp
from plait.node_runtime.assembly.stage_context import StageEnds

if TYPE_CHECKING:
    from plait.model.schema import Type
    from plait.node_runtime.assembly.stage_context import StageContext
    from plait.node_runtime.lowering.exchanges import Exchange

STATE_OPS = (AggregateOp, FoldOp, StatefulOp, TimedOp)


@dataclass(frozen=True, slots=True)
class ExchangePair:
    """The two sides of an exchange among the engine's stages; gather -1: no part comes here."""

    route: int
    gather: int


def add_exchange_before(context: StageContext, keys: list[tuple[int, Type]]) -> ExchangePair | None:
    """The exchange before a stage, if it has one; operators added so far run before it."""
    exchange = context.parts.exchanges.before.get(context.number)
    return None if exchange is None else add_exchange(context, keys, exchange)


def add_exchange(
    context: StageContext, keys: list[tuple[int, Type]], exchange: Exchange
) -> ExchangePair:
    seat = context.parts.seat
    assert seat is not None
    engine, operators = context.engine, context.graph.operators
    op = next((i for i in context.stage.operators if isinstance(operators[i], STATE_OPS)), None)
    number = context.first if op is None else op
    route = engine.route_stage(
        f"to {context.name}",
        exchange.channel,
        exchange.by,
        number,
        keys,
        context.settings.bin_bits,
        seat.home,
        exchange.repeats,
        exchange.tags,
    )
    if exchange.by == "home" and seat.rank != seat.home:
        return ExchangePair(route, -1)
    gather = engine.gather_stage(
        f"at {context.name}",
        exchange.channel,
        number,
        list(context.pipeline.sources_of(context.number)),
        exchange.unique,
        exchange.tags,
        exchange.index,
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
