"""Taxi rides in memory, without Spark: the rows that the Spark job gives.

>>> tables(Shape(events=100, rides_per_day=1440))["fares"].num_rows
40
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.support.draws import NumpyDraws
from benchmarks.support.native_tables import made
from benchmarks.taxi.records import STREAMS
from benchmarks.taxi.schema import SCHEMAS, Shape


def tables(shape: Shape) -> dict[str, Any]:
    """Both streams, in the order they come."""
    draws = NumpyDraws(shape.seed)
    return {
        stream: made(partial(columns, draws, shape), SCHEMAS[stream], shape.rows(stream))
        for stream, columns in STREAMS.items()
    }
