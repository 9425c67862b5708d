"""NEXMark in memory, without Spark: the rows that the Spark job gives, for runs at full speed.

>>> tables(Shape(events=100))["bids"].num_rows
92
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.nexmark.events import STREAMS
from benchmarks.nexmark.schema import SCHEMAS, Shape
from benchmarks.support.draws import NumpyDraws
from benchmarks.support.native_tables import made


def table(stream: str, shape: Shape) -> Any:
    """The records of "persons", "auctions" or "bids" as a pyarrow Table, in the order they come."""
    columns = partial(STREAMS[stream], NumpyDraws(shape.seed), shape)
    return made(columns, SCHEMAS[stream], shape.rows(stream))


def tables(shape: Shape) -> dict[str, Any]:
    """All three streams."""
    return {stream: table(stream, shape) for stream in STREAMS}
