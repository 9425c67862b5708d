"""Points to classify and points whose label is known: the two streams, and the shape of a data set.

Each of the eight coordinates is a multiple of 1/256, so a squared distance of two points is exact
as a float, in whatever order it is summed up.
"""

from dataclasses import dataclass

import plait

DIMENSIONS = 8
COORDINATES = ("a", "b", "c", "d", "e", "f", "g", "h")
GRAIN = 256
"""Steps in one unit of a coordinate."""


@dataclass
class Point:
    point: int
    a: float
    b: float
    c: float
    d: float
    e: float
    f: float
    g: float
    h: float
    ts: plait.Timestamp


@dataclass
class Reference:
    reference: int
    a: float
    b: float
    c: float
    d: float
    e: float
    f: float
    g: float
    h: float
    label: int


SCHEMAS = {"points": Point, "references": Reference}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything that a data set follows from."""

    events: int = 1_000_000
    """Points to classify."""
    seed: int = 7
    references: int = 10_000
    clusters: int = 20
    """A label each; a point belongs to any of them with the same probability."""
    spread: int = 6
    """How far a cluster reaches in each direction; their centres lie within 0 to 32."""
    events_per_s: int = 1000
    start_us: int = 1_767_225_600_000_000
    """2026-01-01."""

    def rows(self, stream: str) -> int:
        return self.events if stream == "points" else self.references
