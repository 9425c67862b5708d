"""The oracle: a slow, obviously right executor of a graph. What it gives is the right answer.

The order is a plain loop: for every epoch (in order of time: for every slice of event time, see
`slices`), for every source in the order of the operators, for every row: first the mark of that
row, by which time goes on, through all operators, and then the row. One source's rows of one epoch
are a unit; within a unit each operator is run over all the marks and rows of its inputs, which
gives what pushing them one by one would, because every operator is a function of the sequence of
its inputs and a union orders by (row, half, input). It shares no code with the runtime.

What is due by time comes at the mark that made it due: half 0 of the row, the record and what is
made of it are half 1. Behind the rows of a unit follows a mark with its facts, as if the unit had
one more row. When all sources are at their end one more epoch without rows follows, and then all is
due.

A record that fails ends the streams that depend on it: each sink after the failing operator has
what came before that record. `outputs` is what the loop had delivered when it stopped at the first
failure; `beyond` is what each sink gets if only streams that depend on a failure end.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from plait.functions.open_close import hooks_of, owner_of
from plait.graph.operators import CallOp, Graph, SourceOp
from plait.graph.source_order import is_in_time
from plait.graph.user_functions import functions_of
from plait.testing.oracle.epochs import Row, epochs
from plait.testing.oracle.loop import Loop, OracleResult
from plait.testing.oracle.slices import epochs_in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from plait.functions.open_close import Hooks
    from plait.model.settings import Order
    from plait.protocol.messages import Finish
    from plait.results.result import KeepStep

__all__ = ["Loop", "OracleResult", "sequential"]


def sequential(
    graph: Graph,
    *,
    epoch_records: int = 4096,
    cuts: Mapping[str, Sequence[int]] | None = None,
    stamps: Mapping[str, Sequence[int]] | None = None,
    limit: int | None = None,
    stop_at: int | None = None,
    finish: Finish = "flush",
    stopped: Collection[str] | None = None,
    order: Order | None = None,
    keeps: Sequence[KeepStep] = (),
) -> OracleResult:
    """Runs the graph as the plain loop would.

    Args:
        order: as in the settings: "total" reads several sources epoch by epoch where it could be
            done by slices of event time.
        epoch_records: the most rows of an epoch of a source.
        cuts: the rows of each epoch of a source by its label, as in `Result.cuts`.
        stamps: when each was cut, as in `Result.stamps`; otherwise all at 0.
        limit: the most records read from each source.
        stop_at: the epoch from which on no source is read.
        finish: what becomes of open windows there: "flush" closes them, "leave" leaves them out
            and counts them.
        stopped: the labels of sources that were stopped there, as in `Result.stopped`; the others
            are at their end. By default all that had not ended before.
        keeps: how much of each query was kept from which epoch on, as in `Result.keeps`.
    """
    loop = Loop(graph, keeps)
    closes = open_functions(graph)
    waits: list[str] = []
    sources = [(i, op) for i, op in enumerate(graph.operators) if isinstance(op, SourceOp)]
    most = {i: op.epoch_records or epoch_records for i, op in sources}
    in_time = is_in_time(graph, order)
    streams = {
        i: epochs(op, most[i], None if in_time or not cuts else cuts.get(op.label), limit, waits)
        for i, op in sources
    }
    ends_at: dict[int, float] = {}
    if in_time:
        rows_of = {i: (op, list(chain.from_iterable(streams[i]))) for i, op in sources}
        planned = epochs_in_time(rows_of, most, cuts, stopped or ())
        streams = {i: (rows for rows in planned[i].rows) for i, _ in sources}
        ends_at = {i: planned[i].ends_at for i, _ in sources}
    over: set[int] = set()
    cut: set[int] = set()
    flushed: set[int] = set()
    epoch = 0
    try:
        while len(over) < len(sources):
            taken: dict[int, list[Row]] = {}
            loop.shedding.begin(epoch)
            for i, op in sources:
                rows = None if i in over or epoch == stop_at else next(streams[i], None)
                if epoch == stop_at and i not in over and (stopped is None or op.label in stopped):
                    (cut if finish == "leave" else flushed).add(i)
                if rows is None or epoch >= ends_at.get(i, math.inf):
                    over.add(i)
                taken[i] = rows or []
            # The last time round no source has rows: the closing epoch. In order of time a source
            # ends with its last row.
            for i, op in sources:
                at = (stamps or {}).get(op.label, ())
                stamp = at[epoch] if epoch < len(at) else 0
                loop.unit(
                    i,
                    taken[i],
                    over=i in over - cut - flushed,
                    cut=i in cut,
                    flushed=i in flushed,
                    stamp=stamp,
                )
            epoch += 1
        if cut:
            loop.leave()
    finally:
        loop.close()
        for close in reversed(closes):
            close()
        for stream in streams.values():
            stream.close()  # type: ignore[attr-defined]
    return replace(loop.result(), waited=bool(waits))


def open_functions(graph: Graph) -> list[Callable[[], Any]]:
    """Opens what functions that are called open; gives what closes it. Those that are awaited are
    opened for each record."""
    opened: dict[int, Hooks] = {}
    for op in graph.operators:
        for function in functions_of(op):
            hooks = hooks_of(function)
            awaited = isinstance(op, CallOp) and op.mode == "async"
            if hooks is not None and not awaited:
                opened.setdefault(owner_of(function), hooks)
    for hooks in opened.values():
        if hooks.open is not None:
            hooks.open()
    return [hooks.close for hooks in opened.values() if hooks.close is not None]
