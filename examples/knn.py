"""Points are classified as they come: by a vote of the 10 nearest among 10,000 known ones.

A point costs tens of microseconds of arithmetic, so one core is soon not enough. `nearest_label` is
compiled: it runs on all cores, and reads the known points from the arrays around it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import plait
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

K = 10
LABELS = 20
AXES = ("a", "b", "c", "d", "e", "f", "g", "h")
POINTS = 5_000 if "PLAIT_QUICK" in os.environ else 100_000


def draw(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points around the centres of their labels, one in each column, and the labels."""
    centres = np.random.default_rng(7).uniform(0, 32, (len(AXES), LABELS))
    random = np.random.default_rng(seed)
    labels = random.integers(0, LABELS, rows)
    return centres[:, labels] + random.normal(0, 6, (len(AXES), rows)), labels


def classifier(known: np.ndarray, known_labels: np.ndarray) -> Callable[..., Any]:
    """A function that gives a point the label that most of its K nearest known points have."""

    @plait.compiled
    def nearest_label(
        a: float, b: float, c: float, d: float, e: float, f: float, g: float, h: float
    ) -> int:
        near = np.full(K, np.inf)
        labels = np.zeros(K, np.int64)
        for i in range(known.shape[1]):
            distance = (
                (known[0, i] - a) ** 2
                + (known[1, i] - b) ** 2
                + (known[2, i] - c) ** 2
                + (known[3, i] - d) ** 2
                + (known[4, i] - e) ** 2
                + (known[5, i] - f) ** 2
                + (known[6, i] - g) ** 2
                + (known[7, i] - h) ** 2
            )
            if distance < near[K - 1]:
                at = K - 1
                while at > 0 and distance < near[at - 1]:
                    near[at] = near[at - 1]
                    labels[at] = labels[at - 1]
                    at -= 1
                near[at] = distance
                labels[at] = known_labels[i]
        votes = np.zeros(LABELS, np.int64)
        for label in labels:
            votes[label] += 1
        return int(votes.argmax())  # the smallest of several

    return nearest_label


def classify(points: plait.Stream, nearest_label: Callable[..., Any]) -> plait.Stream:
    """Each point with its label."""
    return points.select("point", label=nearest_label(*(col(axis) for axis in AXES)))


def main() -> None:
    known, known_labels = draw(10_000, seed=1)
    places, labels = draw(POINTS, seed=2)
    table = pa.table({"point": np.arange(POINTS), **dict(zip(AXES, places, strict=True))})
    job = plait.Job("knn")
    points = job.source(plait.Table(table), name="points")
    classify(points, classifier(known, known_labels)).sink(plait.Collect(), name="labels")
    result = plait.run(job)

    found = result.outputs["labels"]["label"].to_numpy()
    print(f"{POINTS:,} points in {result.seconds:.1f} s, {result.records_per_s:,.0f} a second")
    print(f"{np.mean(found == labels):.1%} of the labels are right")

    # A few of them by NumPy, which sorts all distances.
    for point in range(0, POINTS, POINTS // 20):
        distance = ((known - places[:, [point]]) ** 2).sum(axis=0)
        votes = np.bincount(known_labels[np.argsort(distance, kind="stable")[:K]])
        assert found[point] == votes.argmax(), f"point {point}"
    print("as NumPy has them")


if __name__ == "__main__":
    main()
