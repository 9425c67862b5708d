"""The points to classify and the known ones, written once for numpy and for Spark
(`benchmarks.support.draws`).

A cluster has a centre; a point lies around the centre of its cluster, a coordinate of it being the
sum of two draws: near the centre is more likely than far from it. Both streams have the same
clusters and draw from them apart.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from benchmarks.knn.schema import COORDINATES, DIMENSIONS, GRAIN

if TYPE_CHECKING:
    from benchmarks.knn.schema import Shape
    from benchmarks.support.draws import Draws

RANGE = 32
"""Of the centres, in each coordinate."""


class What(enum.IntEnum):
    """What is drawn."""

    CENTRE = 1
    LABEL = 2
    AROUND = 3
    REFERENCE_LABEL = 4
    REFERENCE_AROUND = 5


def points(draws: Draws, shape: Shape, number: Any) -> dict[str, Any]:
    cluster = draws.draw(What.LABEL, number, shape.clusters)
    past_us = draws.div(number * 1_000_000, shape.events_per_s)
    return {
        "point": number,
        **place(draws, shape, number, cluster, What.AROUND),
        "ts": draws.moment(past_us + shape.start_us),
    }


def references(draws: Draws, shape: Shape, number: Any) -> dict[str, Any]:
    cluster = draws.draw(What.REFERENCE_LABEL, number, shape.clusters)
    return {
        "reference": number,
        **place(draws, shape, number, cluster, What.REFERENCE_AROUND),
        "label": cluster,
    }


STREAMS = {"points": points, "references": references}


def place(draws: Draws, shape: Shape, number: Any, cluster: Any, what: What) -> dict[str, Any]:
    """The coordinates of a point of a cluster."""
    found = {}
    for axis, name in enumerate(COORDINATES):
        centre = draws.draw(What.CENTRE, cluster * DIMENSIONS + axis, RANGE * GRAIN + 1)
        at = (number * DIMENSIONS + axis) * 2
        width = shape.spread * GRAIN + 1
        around = draws.draw(what, at, width) + draws.draw(what, at + 1, width)
        found[name] = (centre + around - shape.spread * GRAIN) / float(GRAIN)
    return found
