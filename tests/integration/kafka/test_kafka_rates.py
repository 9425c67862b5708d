"""Rates and backlogs of topics on a real broker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

import plait
from plait.connectors.kafka.client import Record, connect
from plait.node_runtime.host.source_rates import Gauge

if TYPE_CHECKING:
    from plait.connectors.base import Reader
    from plait.protocol.rates import SourceRate
    from plait.testing.broker import LocalBroker

pytestmark = [
    pytest.mark.integration,
    # kafka-python leaves sockets open where it could not connect.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

CLIENTS = {"confluent-kafka": "fetch.min.bytes", "kafka-python": "fetch_min_bytes"}
"""Each with a setting that is for consumers only."""
SIZES = (700, 250, 0)
WAIT_S = 30.0


def filled(kafka: LocalBroker) -> str:
    """A topic with a partition that is idle."""
    topic = kafka.make_topic("rates", len(SIZES))
    records = [
        Record(partition, 0, 0, None, b"%d" % n, ())
        for partition, size in enumerate(SIZES)
        for n in range(size)
    ]
    kafka.produce(topic, records)
    return topic


def known(gauge: Gauge, reader: Reader, wanted: float) -> SourceRate:
    """The rate once the lag is as it must be in the end; at the latest after `WAIT_S`."""
    until = time.monotonic() + WAIT_S
    while True:
        assert gauge.looking is not None
        gauge.take(gauge.looking.look(), time.monotonic())
        rate = gauge.rate(time.monotonic())
        if rate.lag == wanted or time.monotonic() > until:
            return rate
        if wanted == 0.0:  # nothing more comes, but the reader gets over marks
            assert isinstance(reader.poll(1), plait.Wait)


def read(reader: Reader, most: int) -> int:
    """Reads so many records, or all that come within `WAIT_S`."""
    count, until = 0, time.monotonic() + WAIT_S
    while count < most and time.monotonic() < until:
        answer = reader.poll(most - count)
        count += 0 if answer is None or isinstance(answer, plait.Wait) else answer.num_rows
    return count


@pytest.mark.parametrize("client", CLIENTS)
def test_a_known_backlog_is_shown_exactly(kafka: LocalBroker, client: str) -> None:
    topic = filled(kafka)
    source = plait.Kafka(
        topic,
        format="bytes",
        servers=kafka.servers,
        client=client,  # type: ignore[arg-type]
        settings={CLIENTS[client]: 1},
    )
    reader = source.open()
    try:
        gauge = Gauge(reader)
        rate = known(gauge, reader, 950.0)
        assert rate.lag == 950.0
        assert [(name, each.lag) for name, each in rate.partitions] == [
            ("0", 700.0),
            ("1", 250.0),
            ("2", 0.0),
        ]
        assert read(reader, 300) == 300
        assert known(gauge, reader, 650.0).lag == 650.0
        assert read(reader, 650) == 650
        done = known(gauge, reader, 0.0)
        assert (done.lag, done.lag_s) == (0.0, 0.0)
    finally:
        reader.close()


def test_marks_of_transactions_are_no_records(kafka: LocalBroker) -> None:
    """5 transactions of 20 records take 105 offsets; all is read, so nothing is behind."""
    topic = kafka.make_topic("marks")
    producer = connect(kafka.connection).producer("rates")
    try:
        for transaction in range(5):
            producer.begin()
            for n in range(20):
                producer.send(topic, None, b"%d" % (20 * transaction + n))
            producer.commit()
    finally:
        producer.close()
    reader = plait.Kafka(topic, format="bytes", servers=kafka.servers).open()
    try:
        gauge = Gauge(reader)
        assert known(gauge, reader, 105.0).lag == 105.0  # not known better before it is read
        assert read(reader, 100) == 100
        assert known(gauge, reader, 0.0).lag == 0.0
        assert gauge.per_offset.ratio == pytest.approx(100 / 105)
    finally:
        reader.close()


def test_the_end_of_a_bounded_read_does_not_move(kafka: LocalBroker) -> None:
    topic = filled(kafka)
    reader = plait.Kafka(topic, format="bytes", servers=kafka.servers, end="latest").open()
    try:
        kafka.produce(topic, [b"later"] * 100)
        gauge = Gauge(reader)
        assert known(gauge, reader, 950.0).lag == 950.0
        assert read(reader, 950) == 950
        assert reader.poll(1) is None
        gauge.take(reader.look(), time.monotonic())
        rate = gauge.rate(time.monotonic())
        assert (rate.lag, rate.per_s) == (0.0, 0.0)
    finally:
        reader.close()


def test_a_job_that_is_held_up_shows_what_waits(kafka: LocalBroker) -> None:
    """The sink takes nothing for a while: what is not read is the lag, also of what comes
    meanwhile."""
    topic = filled(kafka)
    gate = threading.Event()
    job = plait.Job("held")
    source = plait.Kafka(topic, format="bytes", servers=kafka.servers, label="clicks")
    values = job.source(source)
    values.sink(plait.Call(lambda record: gate.wait()), "out")
    running = plait.start(job, workers=1, epoch_records=10, queue_batches=2)
    try:
        kafka.produce(topic, [Record(0, 0, 0, None, b"more", ())] * 4000)
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            rate = running.rates()["clicks"]
            if rate.lag is not None and rate.lag + running.engine.records_read() == 4950:
                break
            running.engine.wait(0.05)
        assert rate.lag == 4950 - running.engine.records_read()
        assert rate.lag > 4000
    finally:
        gate.set()
        running.stop()
    result = running.wait(progress=False)
    assert result.rates["clicks"].lag == 4950 - result.account.read
    assert "clicks" in running.rates()
