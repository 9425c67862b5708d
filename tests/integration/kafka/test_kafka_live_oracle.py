"""Live topics against the sequential run over the recorded cuts, while nearly everything happens to
the topic, its broker and the nodes of the job."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col
from plait.connectors.kafka.client import Record, connect
from plait.connectors.kafka.watch import watching
from plait.testing import assert_same
from plait.testing.changes import Join, Leave
from plait.testing.check_nodes import assert_same_on_nodes
from tests.integration.kafka.taped_topic import Tape, committed, value_of
from tests.integration.kafka.test_kafka_changes import grow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from plait.testing.broker import LocalBroker

pytestmark = [
    pytest.mark.integration,
    # kafka-python leaves sockets open where it could not connect.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PATIENCE_S = 120.0
KEYS = 10
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "50",
}


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


class Records:
    """Numbered records for a topic, the keys of most of which are there once."""

    def __init__(self, kafka: LocalBroker, topic: str) -> None:
        self.kafka = kafka
        self.topic = topic
        self.number = 0

    def take(self, count: int, partition: int) -> Iterable[Record]:
        for n in range(self.number, self.number + count):
            yield Record(partition, 0, 0, b"%d" % n, value_of(n), ())
        self.number += count

    def produce(self, count: int, *partitions: int) -> None:
        for partition in partitions:
            self.kafka.produce(self.topic, self.take(count, partition))

    def abort(self, count: int, *partitions: int) -> None:
        """The same, in a transaction that comes to nothing."""
        producer = connect(self.kafka.connection).producer(f"{self.topic}-aborts")
        producer.begin()
        for partition in partitions:
            for record in self.take(count, partition):
                producer.send(self.topic, record.key, record.value, (), partition)
        producer.flush()
        producer.abort()
        producer.close()


def with_holes(kafka: LocalBroker) -> Records:
    """A topic of two partitions in which records are gone: later ones had the same key, or their
    transaction was aborted."""
    records = Records(kafka, kafka.make_topic("holes", 2, COMPACTED))
    for first in (0, 25):  # in segments of their own
        keyed = [
            Record(partition, 0, 0, b"key-%d" % (n % KEYS), value_of(n), ())
            for n in range(first, first + 25)
            for partition in (0, 1)
        ]
        kafka.produce(records.topic, keyed)
    records.abort(20, 0, 1)

    def compacted() -> bool:
        records.produce(1, 0, 1)  # or the last segment stays as it is
        keys = [(r.partition, r.key) for r in kafka.read(records.topic)]
        return len(keys) == len(set(keys))

    until(compacted)
    return records


def job_of(tape: Tape) -> plait.Job:
    job = plait.Job("live")
    rows = job.source(tape, "topic", on_error="dead_letter")
    rows.key_by("k").aggregate(
        n=plait.last("n"), sum=plait.sum("n"), offset=plait.last("offset")
    ).sink(plait.Discard(), "totals")
    timed = rows.with_event_time(col("at").to_timestamp(unit="ms"), out_of_order="5s")
    timed.key_by("k").tumbling("2s").count().sink(plait.Discard(), "windows")
    return job


@pytest.mark.parametrize(
    ("client", "nodes"),
    [("confluent-kafka", 1), ("confluent-kafka", 2), ("kafka-python", 2)],
)
def test_the_output_is_that_of_the_sequential_run(
    kafka: LocalBroker, client: Any, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are holes in the topic; while it is read it gets another partition, transactions are
    aborted, the broker is killed and comes back, and a node comes and goes."""
    monkeypatch.setattr(watching, "LOOK_S", 0.2)
    records = with_holes(kafka)
    before = len(kafka.read(records.topic))
    source = plait.Kafka(
        records.topic,
        schema={"k": int, "n": int, "at": int},
        servers=kafka.servers,
        client=client,
        metadata=("partition", "offset"),
    )
    tape = Tape(source, before + 5 * 60)

    def change_the_topic() -> None:
        until(lambda: tape.read >= before)
        grow(kafka, records.topic, 3)
        records.abort(30, 0, 1)
        records.produce(60, 0, 1, 2)
        until(lambda: tape.read >= before + 3 * 60)
        kafka.kill()
        kafka.start()
        records.abort(30, 1)
        records.produce(60, 1, 2)

    settings = {"epoch_records": 10, "workers": 2, "timeout": PATIENCE_S}
    with ThreadPoolExecutor(1) as others:
        changed = others.submit(change_the_topic)
        if nodes == 1:
            wanted = assert_same(job_of(tape).graph(), settings)
        else:
            wanted = assert_same_on_nodes(
                job_of(tape).graph(),
                {**settings, "bin_bits": 4},
                nodes=nodes,
                changes=(
                    Join(bins=tuple(range(0, 16, 2)), how="optimised", at=2),
                    Leave(rank=nodes, how="fluid", at=8),
                ),
            )
        changed.result()
    assert tape.places() == committed(kafka, records.topic)
    assert len(tape.places()) == 3
    assert len(wanted.outputs["totals"]) + len(wanted.dead_letters) == tape.count
