"""Points in memory, without Spark: the rows that the Spark job gives.

>>> tables(Shape(events=100))["points"].num_rows
100
"""

from __future__ import annotations

from typing import Any

from benchmarks.knn.records import STREAMS
from benchmarks.knn.schema import SCHEMAS, Shape
from benchmarks.support.native_tables import streams


def tables(shape: Shape) -> dict[str, Any]:
    """Points to classify, in the order they come, and those whose label is known."""
    return streams(STREAMS, SCHEMAS, shape)
