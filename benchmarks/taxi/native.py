"""Taxi rides in memory, without Spark: the rows that the Spark job gives.

>>> tables(Shape(events=100, rides_per_day=1440))["fares"].num_rows
40
"""

from __future__ import annotations

from typing import Any

from benchmarks.support.native_tables import streams
from benchmarks.taxi.records import STREAMS
from benchmarks.taxi.schema import SCHEMAS, Shape


def tables(shape: Shape) -> dict[str, Any]:
    """Both streams, in the order they come."""
    return streams(STREAMS, SCHEMAS, shape)
