"""Data sets fed into a real broker by a Spark job: the right records, in order, at their pace; and
NEXMark from Kafka to Kafka against Spark's answers."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import plait
from benchmarks.feed.data_sets import DATA_SETS
from benchmarks.feed.feeder import Feeder
from benchmarks.feed.schedule import Schedule
from benchmarks.knn import native as knn
from benchmarks.knn.schema import Shape as KnnShape
from benchmarks.nexmark import answers, generate, queries
from benchmarks.nexmark import native as nexmark
from benchmarks.nexmark.schema import SCHEMAS
from benchmarks.nexmark.schema import Shape as NexmarkShape
from benchmarks.taxi import generate as taxi_generate
from benchmarks.taxi import native as taxi
from benchmarks.taxi.schema import Shape as TaxiShape
from benchmarks.tpcxbb import native as shop
from benchmarks.tpcxbb.schema import Shape as ShopShape

if TYPE_CHECKING:
    from pathlib import Path

    from plait.testing.broker import LocalBroker

pytestmark = pytest.mark.integration
QUICK = (
    "test_a_data_set_comes_in_order_at_its_pace[taxi]",
    "test_taxi_rides_are_the_same_in_spark",
    "test_nexmark_from_kafka_to_kafka[q5]",
)
SHAPES = {
    "nexmark": NexmarkShape(events=900, events_per_s=100),
    "tpcxbb": ShopShape(clicks=500, tickets=100, clicks_per_s=5, tickets_per_s=1),
    "taxi": TaxiShape(events=900, rides_per_day=14_400),
    "knn": KnnShape(events=900),
}
TABLES = {"nexmark": nexmark, "tpcxbb": shop, "taxi": taxi, "knn": knn}


class Clock:
    """Time goes on when somebody sleeps."""

    now = 0.0
    slept: tuple[float, ...] = ()

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += (round(seconds, 6),)


def feed(
    spark: Any,
    kafka: LocalBroker,
    name: str,
    shape: Any,
    events: int,
    schedule: str,
    partitions: int = 2,
) -> tuple[Feeder, Clock]:
    prefix = kafka.make_topic(f"feed-{name}") + "-"
    data_set, clock = DATA_SETS[name], Clock()
    feeder = Feeder(
        spark, data_set, shape, kafka.servers, events=events, prefix=prefix, partitions=partitions
    )
    late_s = feeder.run(
        Schedule.parse(schedule, 10.0), tick_s=1.0, clock=lambda: clock.now, sleep=clock.sleep
    )
    assert late_s == 0
    return feeder, clock


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_data_set_comes_in_order_at_its_pace(spark: Any, kafka: LocalBroker, name: str) -> None:
    shape = SHAPES[name]
    feeder, clock = feed(spark, kafka, name, shape, 600, "0:0,2:100,4:400")
    assert clock.slept == (1.0,) * 5
    tables = TABLES[name].tables(shape)
    for stream, topic in feeder.topics.items():
        found = kafka.read(topic)
        values = [json.loads(record.value or b"") for record in found]
        wanted = tables[stream].slice(0, feeder.written[stream])
        assert len(found) == wanted.num_rows > 0
        for partition in (0, 1):
            mine = [v for v, r in zip(values, found, strict=True) if r.partition == partition]
            rows = wanted.to_pylist()[partition::2]
            key = DATA_SETS[name].keys[stream]
            assert [value[key] for value in mine] == [row[key] for row in rows]
            assert mine[0].keys() == rows[0].keys()


def test_taxi_rides_are_the_same_in_spark(spark: Any) -> None:
    shape = TaxiShape(events=5_000, rides_per_day=9_000)
    for stream, frame in taxi_generate.frames(spark, shape, rows_of_a_part=700).items():
        wanted = taxi.tables(shape)[stream]
        assert frame.toArrow().cast(wanted.schema) == wanted


def bag(table: Any) -> Counter[tuple[Any, ...]]:
    columns = [c.cast("int64") if str(c.type).startswith("time") else c for c in table.columns]
    return Counter(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("query", ["q5", "q8"])
def test_nexmark_from_kafka_to_kafka(
    spark: Any, kafka: LocalBroker, query: str, tmp_path: Path
) -> None:
    shape = NexmarkShape(events=6_000, events_per_s=100, out_of_order_us=300_000)
    feeder, _ = feed(spark, kafka, "nexmark", shape, shape.events, "0:3000", 1)
    asked, job = queries.QUERIES[query], plait.Job(query)
    streams = {
        name: job.source(
            plait.Kafka(feeder.topics[name], SCHEMAS[name], servers=kafka.servers, end="latest"),
            name,
            event_time="ts",
            out_of_order="300ms",
        )
        for name in asked.streams
    }
    out = asked.over(streams)
    topic = kafka.make_topic("out")
    out.sink(plait.Kafka(topic, servers=kafka.servers), "out")
    plait.run(job, checkpoint=plait.Checkpoint(str(tmp_path), every="200ms"))
    given = plait.Kafka(topic, out.schema, servers=kafka.servers, end="latest")
    got = plait.stream(given).to_arrow()
    wanted = answers.answer(spark, query, generate.frames(spark, shape)).toArrow()
    assert wanted.num_rows > 0
    assert bag(got) == bag(wanted.select(got.schema.names))
