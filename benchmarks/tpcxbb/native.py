"""TPCx-BB in memory, without Spark: the rows that the Spark job gives, for runs at full speed."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.support.draws import NumpyDraws
from benchmarks.support.native_tables import BLOCK, made
from benchmarks.tpcxbb.records import clicks, items, lines_of, sales
from benchmarks.tpcxbb.schema import MOST_LINES, SCHEMAS, Click, Item, Sale, Shape


def table(stream: str, shape: Shape) -> Any:
    """The records of "clicks", "sales" or "items" as a pyarrow Table, in the order they come."""
    draws = NumpyDraws(shape.seed)
    match stream:
        case "clicks":
            return made(partial(clicks, draws, shape), Click, shape.clicks)
        case "items":
            return made(partial(items, draws, shape), Item, shape.items)
        case _:

            def lines(tickets: Any) -> dict[str, Any]:
                counts = lines_of(draws, tickets)
                ticket = np.repeat(tickets, counts)
                line = np.arange(len(ticket)) - np.repeat(np.cumsum(counts) - counts, counts)
                return sales(draws, shape, ticket, line)

            return made(lines, Sale, shape.tickets, BLOCK // MOST_LINES)


def tables(shape: Shape) -> dict[str, Any]:
    """All of them."""
    return {stream: table(stream, shape) for stream in SCHEMAS}
