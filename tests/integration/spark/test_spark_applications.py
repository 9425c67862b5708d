"""Taxi drives and the nearest neighbours: data from Spark, and plait's answers against Spark's.

The jobs are those of `examples/`. In the right order they are compared with the plain loop, on one
and two nodes, while a node joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plait
from benchmarks.knn import answers as knn_answers
from benchmarks.knn import generate as knn_generate
from benchmarks.knn import native as knn_native
from benchmarks.knn.schema import COORDINATES
from benchmarks.knn.schema import SCHEMAS as KNN_SCHEMAS
from benchmarks.knn.schema import Shape as KnnShape
from benchmarks.taxi import answers, generate, native
from benchmarks.taxi.schema import SCHEMAS, Shape
from examples import knn, taxi_drives
from plait.connectors.spark.frames import from_spark
from tests.integration.spark.spark_answers import epoch_of, graph_of, in_order_everywhere, same_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait import Stream

pytestmark = pytest.mark.integration

SHAPE = Shape(events=3_000, rides_per_day=3_000)
SMALL = Shape(events=1_500, rides_per_day=2_000)
POINTS = KnnShape(events=50)
FEW_POINTS = KnnShape(events=200, references=150)
PATHS = 10
"""So few that Spark, which interprets them, is soon done."""
QUERIES = {"trips": taxi_drives.trips, "drivers": taxi_drives.drivers}


def taxi(query: str, given: Mapping[str, Any]) -> Stream:
    job = plait.Job(query)
    rides, fares = (
        job.source(given[name], name, event_time="ts", out_of_order="1m")
        for name in ("rides", "fares")
    )
    return QUERIES[query](taxi_drives.one_stream(rides, fares), PATHS)


def nearest(points: Any, references: Any) -> Stream:
    known = np.stack([references[name].to_numpy() for name in COORDINATES])
    labelled = knn.classifier(known, references["label"].to_numpy())
    return knn.classify(plait.Job("knn").source(points, "points"), labelled)


@pytest.mark.parametrize("query", ["trips", pytest.param("drivers", marks=pytest.mark.slow)])
def test_taxi_drives_are_what_spark_says(spark: Any, query: str) -> None:
    frames = generate.frames(spark, SHAPE)
    given = {name: from_spark(frame, schema=SCHEMAS[name]) for name, frame in frames.items()}
    got = taxi(query, given).to_arrow(workers=2, epoch_records=epoch_of(query))
    same_rows(got, answers.answer(spark, query, frames, PATHS).toArrow())


def test_neighbours_are_what_spark_says(spark: Any) -> None:
    frames = knn_generate.frames(spark, POINTS)
    points = from_spark(frames["points"], schema=KNN_SCHEMAS["points"])
    got = nearest(points, frames["references"].toArrow()).to_arrow(
        workers=2, epoch_records=epoch_of("knn") % 60 + 5
    )
    same_rows(got, knn_answers.answer(spark, frames, knn.K).toArrow())


def test_points_are_the_same_in_spark(spark: Any) -> None:
    shape = KnnShape(events=2_000, references=900)
    for stream, frame in knn_generate.frames(spark, shape, rows_of_a_part=300).items():
        wanted = knn_native.tables(shape)[stream]
        assert frame.toArrow().cast(wanted.schema) == wanted


@pytest.mark.parametrize("query", QUERIES)
def test_taxi_drives_are_in_order_while_state_moves(query: str) -> None:
    in_order_everywhere(graph_of(taxi(query, native.tables(SMALL))))


def test_neighbours_are_in_order_while_nodes_join() -> None:
    given = knn_native.tables(FEW_POINTS)
    in_order_everywhere(graph_of(nearest(given["points"], given["references"])))
