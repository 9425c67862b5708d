"""Topics that change while they are read, and consumers that stand still."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.connectors.kafka.client import Record, connect
from plait.connectors.kafka.watch import watching
from plait.connectors.kafka.watch.lookout import look_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.connectors.kafka.client import Bounds, Consumer
    from plait.connectors.kafka.reader import KafkaReader
    from plait.testing.broker import LocalBroker

pytestmark = [
    pytest.mark.integration,
    # kafka-python leaves sockets open where it could not connect.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

CLIENTS = ("confluent-kafka", "kafka-python")


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.2)


def value(n: int) -> bytes:
    return b'{"n": %d}' % n


def in_partition(partition: int, numbers: range) -> list[Record]:
    return [Record(partition, 0, 0, None, value(n), ()) for n in numbers]


def grow(kafka: LocalBroker, topic: str, partitions: int) -> None:
    """Gives a topic more partitions."""
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()


def remove(kafka: LocalBroker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.delete_topics([topic])[topic].result()


@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize("client", CLIENTS)
def test_new_partitions_are_read_while_the_job_runs(kafka: LocalBroker, client: Any) -> None:
    topic = kafka.make_topic("growing", 1)
    kafka.produce(topic, in_partition(0, range(50)))
    source = plait.Kafka(topic, schema={"n": int}, servers=kafka.servers, client=client)
    run = plait.start(plait.stream(source).sink(plait.Collect(), "out"), limit=100)
    grow(kafka, topic, 3)
    kafka.produce(topic, in_partition(1, range(50, 75)) + in_partition(2, range(75, 100)))
    found = [row["n"] for row in run.wait().outputs["out"].to_pylist()]
    assert sorted(found) == list(range(100))
    assert [n for n in found if n >= 75] == list(range(75, 100))


@pytest.mark.parametrize("client", CLIENTS)
def test_positions_have_new_partitions(kafka: LocalBroker, client: Any) -> None:
    topic = kafka.make_topic("growing", 1)
    kafka.produce(topic, in_partition(0, range(50)))
    source = plait.Kafka(
        topic, schema={"n": int}, servers=kafka.servers, client=client, start="latest"
    )
    reader = reader_of(source)
    try:
        assert isinstance(reader.poll(100), plait.Wait)
        grow(kafka, topic, 3)
        kafka.produce(topic, in_partition(1, range(50, 75)))
        # All of a new partition is read, wherever reading of the others began.
        assert read(reader, 25) == list(range(50, 75))
        position = reader.position()
        assert position["next"] == [[0, 50], [1, 25], [2, 0]]
    finally:
        reader.close()
    kafka.produce(topic, in_partition(2, range(75, 80)) + in_partition(1, range(80, 82)))
    again = source.open(position)
    try:
        assert sorted(read(again, 7)) == list(range(75, 82))
    finally:
        again.close()


class Looker:
    """A lookout that looks when it is asked, so that a test says when time passes."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def take(self) -> Mapping[int, Bounds] | None:
        return look_at(self.consumer)

    def close(self) -> None:
        self.consumer.close()


def reader_of(source: plait.Kafka) -> KafkaReader:
    """A reader for which five seconds pass with each poll."""
    reader: KafkaReader = source.open()
    reader.lookout.close()
    reader.lookout = Looker(connect(source.connection).consumer(source.topic))  # type: ignore[assignment]
    polls = iter(range(1_000_000))
    reader.clock = lambda: 5.0 * next(polls)
    return reader


def read(reader: Any, count: int, most: int = 100) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        answer = reader.poll(most)
        assert answer is not None
        if not isinstance(answer, plait.Wait):
            found += answer.column("n").to_pylist()
    return found


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("end", [None, "latest"])
def test_a_consumer_that_stands_still_is_replaced(
    kafka: LocalBroker, client: Any, end: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.make_topic("still", 2)
    kafka.produce(topic, in_partition(0, range(50)) + in_partition(1, range(50, 100)))
    source = plait.Kafka(topic, schema={"n": int}, servers=kafka.servers, client=client, end=end)
    reader = reader_of(source)
    try:
        stuck = reader.consumer
        stuck.hold(1, True)  # as if its connection were stuck
        with caplog.at_level(logging.WARNING, "plait.kafka"):
            assert sorted(read(reader, 100)) == list(range(100))
        assert reader.consumer is not stuck
        assert "partition 1 has had records for" in caplog.text
    finally:
        reader.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_records_that_go_while_a_topic_is_merged_are_not_read_twice(
    kafka: LocalBroker, client: Any
) -> None:
    topic = kafka.make_topic("going", 2)
    kafka.produce(topic, in_partition(0, range(50)) + in_partition(1, range(50, 100)))
    source = plait.Kafka(
        topic,
        schema={"n": int},
        servers=kafka.servers,
        client=client,
        end="latest",
        on_lost="earliest",
    )
    reader = source.open()
    try:
        found = read(reader, 9, most=9)
        reader.go_on_after(0)  # as when the client says so; other records wait in the merge
        while (answer := reader.poll(9)) is not None:
            found += [] if isinstance(answer, plait.Wait) else answer.column("n").to_pylist()
        assert sorted(found) == list(range(100))
    finally:
        reader.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_is_made_anew_while_it_is_read(kafka: LocalBroker, client: Any) -> None:
    topic = kafka.make_topic("anew", 2)
    kafka.produce(topic, in_partition(0, range(50)) + in_partition(1, range(50, 100)))
    source = plait.Kafka(
        topic, schema={"n": int}, servers=kafka.servers, client=client, on_lost="earliest"
    )
    reader = reader_of(source)
    try:
        read(reader, 100)
        remove(kafka, topic)
        connect(kafka.connection).make_topic(topic, 2, {})
        with pytest.raises(plait.SourceError, match=r"made anew|there is no topic"):
            read(reader, 101)
    finally:
        reader.close()
