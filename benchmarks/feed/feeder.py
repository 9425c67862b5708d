"""Writes a data set to Kafka by Spark, at the pace of a schedule.

Every tick the driver works out which events are due, and one Spark job makes their records and
writes them: all of a stream in one task, with a producer of its own, so that it keeps its order.
Record n of a stream goes to partition n modulo the partitions of its topic. Values are JSON objects
as `plait.Kafka` reads them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.feed.data_sets import DataSet
    from benchmarks.feed.schedule import Schedule

JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}


class Feeder:
    """Feeds a data set into the topics of its streams, which are made if they are not there."""

    def __init__(
        self,
        spark: SparkSession,
        data_set: DataSet,
        shape: Any,
        servers: str,
        *,
        events: int,
        prefix: str = "",
        partitions: int = 1,
    ) -> None:
        from plait.connectors.kafka.client import connect
        from plait.connectors.kafka.settings import Connection

        self.spark = spark
        self.data_set = data_set
        self.shape = shape
        self.servers = servers
        self.events = events
        """No more than so many are written."""
        self.topics = {stream: f"{prefix}{stream}" for stream in data_set.keys}
        client = connect(Connection(servers=servers))
        for topic in self.topics.values():
            client.make_topic(topic, partitions, {})
        self.partitions = {s: client.partitions_of(topic) for s, topic in self.topics.items()}
        self.written = dict.fromkeys(data_set.keys, 0)
        """Records so far."""

    def run(
        self,
        schedule: Schedule,
        *,
        tick_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> float:
        """Writes what is due until the schedule ends or no event is left; gives the greatest
        number of seconds that a tick came too late."""
        began, at_s, done, late_s = clock(), 0.0, 0, 0.0
        while at_s < schedule.seconds and done < self.events:
            at_s = min(at_s + tick_s, schedule.seconds)
            early_s = began + at_s - clock()
            if early_s > 0:
                sleep(early_s)
            late_s = max(late_s, -early_s)
            end = min(schedule.due(at_s), self.events)
            self.write(done, end)
            done = end
        return late_s

    def write(self, first: int, end: int) -> None:
        """Writes the records of the events from `first` to before `end`."""
        frames = []
        for stream in self.data_set.keys:
            rows = [self.data_set.rows(self.shape, stream, events) for events in (first, end)]
            if rows[0] < rows[1]:
                made = self.data_set.frame(self.spark, self.shape, stream, *rows)
                frames.append(self.records(stream, made))
        if not frames:
            return
        both = frames[0]
        for frame in frames[1:]:
            both = both.union(frame)
        send = sender(self.servers, self.topics, self.written, self.partitions)
        sent = both.mapInArrow(send, "stream string, rows long")
        for row in sent.groupBy("stream").agg(F.sum("rows").alias("rows")).collect():
            self.written[row["stream"]] += row["rows"]

    def records(self, stream: str, frame: DataFrame) -> DataFrame:
        """Key and value of each record, as text."""
        return frame.select(
            F.lit(stream).alias("stream"),
            F.col(self.data_set.keys[stream]).cast("string").alias("key"),
            F.to_json(F.struct("*"), JSON).alias("value"),
        )


def sender(
    servers: str,
    topics: Mapping[str, str],
    written: Mapping[str, int],
    partitions: Mapping[str, int],
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a task does with the records of its streams. It is sent to Spark's Python as it is: it
    needs nothing but plait there."""
    before = dict(written)

    def send(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from plait.connectors.kafka.client import connect
        from plait.connectors.kafka.settings import Connection

        producer = connect(Connection(servers=servers)).producer()
        sent: dict[str, int] = {}
        try:
            for batch in batches:
                for stream, key, value in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                    number = sent.get(stream, 0)
                    at = (before[stream] + number) % partitions[stream]
                    encoded = None if key is None else key.encode()
                    producer.send(topics[stream], encoded, value.encode(), (), at)
                    sent[stream] = number + 1
            producer.flush()
        finally:
            producer.close()
        yield pa.RecordBatch.from_pydict({"stream": list(sent), "rows": list(sent.values())})

    return send
