"""The queries of NEXMark and TPCx-BB: data from Spark, and plait's answers against Spark's.

Spark's tables have no order: against them the rows are compared as a bag. In the right order they
are compared with the plain loop, on one and two nodes, with a node more from the middle on, which
takes half of the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import plait
from benchmarks.nexmark import answers, generate, native, queries
from benchmarks.nexmark.schema import SCHEMAS, Shape
from benchmarks.tpcxbb import answers as shop_answers
from benchmarks.tpcxbb import generate as shop_generate
from benchmarks.tpcxbb import native as shop_native
from benchmarks.tpcxbb import queries as shop_queries
from benchmarks.tpcxbb.schema import SCHEMAS as SHOP_SCHEMAS
from benchmarks.tpcxbb.schema import Shape as ShopShape
from plait.connectors.spark.frames import from_spark
from tests.integration.spark.spark_answers import epoch_of, graph_of, in_order_everywhere, same_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plait import Stream

pytestmark = pytest.mark.integration

SHAPE = Shape(events=30_000, events_per_s=500, out_of_order_us=700_000)
SMALL = Shape(events=4_000, events_per_s=100, out_of_order_us=700_000)
SHOP = ShopShape(clicks=20_000, tickets=15_000, clicks_per_s=1, tickets_per_s=1)
SMALL_SHOP = ShopShape(clicks=3_000, tickets=600, clicks_per_s=1, tickets_per_s=1, items=50)
OUT_OF_ORDER = "700ms"


@dataclass(frozen=True, slots=True)
class Data:
    """Data frames, and the sources made of them."""

    frames: Mapping[str, Any]
    sources: Mapping[str, Any]


@pytest.fixture(scope="module")
def site(spark: Any) -> Data:
    frames = {name: made.cache() for name, made in generate.frames(spark, SHAPE).items()}
    return Data(frames, {n: from_spark(f, schema=SCHEMAS[n]) for n, f in frames.items()})


@pytest.fixture(scope="module")
def shop(spark: Any) -> Data:
    frames = {name: made.cache() for name, made in shop_generate.frames(spark, SHOP).items()}
    return Data(frames, {n: from_spark(f, schema=SHOP_SCHEMAS[n]) for n, f in frames.items()})


def nexmark(query: str, given: Mapping[str, Any]) -> Stream:
    job, asked = plait.Job(query), queries.QUERIES[query]
    streams = {
        name: job.source(given[name], name, event_time="ts", out_of_order=OUT_OF_ORDER)
        for name in asked.streams
    }
    return asked.over(streams)


def tpcxbb(query: str, given: Mapping[str, Any], items: Any) -> Stream:
    asked = shop_queries.QUERIES[query]
    stream = plait.Job(query).source(given[asked.stream], asked.stream, event_time="ts")
    return asked.over(stream, items)


def some(names: Iterable[str], *quick: str) -> list[Any]:
    """Parameters: make test takes the quick ones, make test-long all."""
    slow = pytest.mark.slow
    return [pytest.param(name, marks=() if name in quick else slow) for name in names]


@pytest.mark.parametrize("query", some(queries.QUERIES, "q3", "q7", "q8"))
def test_nexmark_is_what_spark_says(spark: Any, site: Data, query: str) -> None:
    got = nexmark(query, site.sources).to_arrow(workers=2, epoch_records=epoch_of(query))
    same_rows(got, answers.answer(spark, query, site.frames).toArrow())


@pytest.mark.parametrize("query", some(shop_queries.QUERIES, "q2"))
def test_tpcxbb_is_what_spark_says(spark: Any, shop: Data, query: str) -> None:
    stream = tpcxbb(query, shop.sources, shop.sources["items"].arrow())
    got = stream.to_arrow(workers=2, epoch_records=epoch_of(query))
    same_rows(got, shop_answers.answer(spark, query, shop.frames).toArrow())


@pytest.mark.parametrize("query", queries.QUERIES)
def test_nexmark_is_in_order_while_state_moves(query: str) -> None:
    in_order_everywhere(graph_of(nexmark(query, native.tables(SMALL))))


@pytest.mark.parametrize("query", shop_queries.QUERIES)
def test_tpcxbb_is_in_order_while_state_moves(query: str) -> None:
    given = shop_native.tables(SMALL_SHOP)
    in_order_everywhere(graph_of(tpcxbb(query, given, given["items"])))
