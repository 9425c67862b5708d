"""Event time by partition: one that lags behind has no late records."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.connectors.kafka.client import Record
from plait.connectors.kafka.kafka import CLOCK
from plait.connectors.kafka.partition_clock import NO_TIME
from tests.integration.kafka.test_kafka_changes import reader_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plait.testing.broker import LocalBroker

pytestmark = [
    pytest.mark.integration,
    # kafka-python leaves sockets open where it could not connect.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

CLIENTS = ("confluent-kafka", "kafka-python")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
START_US = int(START.timestamp()) * 1_000_000
COLUMNS = {"n": int, "at": plait.Timestamp}


def at_seconds(partition: int, seconds: Iterable[int]) -> list[Record]:
    return [
        Record(
            partition,
            0,
            0,
            None,
            json.dumps({"n": at, "at": (START + plait.seconds(at)).isoformat()}).encode(),
            (),
        )
        for at in seconds
    ]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_partition_that_lags_has_no_late_records(kafka: LocalBroker, client: Any) -> None:
    topic = kafka.make_topic("lag", 3)
    kafka.produce(topic, at_seconds(0, range(300)))
    kafka.produce(topic, at_seconds(1, range(0, 300, 3)))
    kafka.produce(topic, at_seconds(2, [0, 299]))
    source = plait.Kafka(topic, schema=COLUMNS, servers=kafka.servers, client=client)
    stream = plait.stream(source, event_time="at", epoch_records=50)
    counts = stream.key_by("n").tumbling("10s").count()
    result = counts.sink(plait.Collect(), "out").run(limit=402, workers=2)
    assert result.account.late == 0
    assert sum(row["count"] for row in result.outputs["out"].to_pylist()) == 402


def clocks_of(reader: Any, count: int) -> list[tuple[int, int | None]]:
    """The next records, and how far the topic's time is at each, in seconds."""
    found: list[tuple[int, int | None]] = []
    while len(found) < count:
        answer = reader.poll(100)
        if not isinstance(answer, plait.Wait):
            clocks = answer.column(CLOCK).to_pylist()
            found += [
                (n, None if at == NO_TIME else (at - START_US) // 1_000_000)
                for n, at in zip(answer.column("n").to_pylist(), clocks, strict=True)
            ]
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_an_empty_partition_is_idle_after_a_while_and_positions_have_times(
    kafka: LocalBroker, client: Any
) -> None:
    topic = kafka.make_topic("idle", 2)
    kafka.produce(topic, at_seconds(0, [1, 5]))
    source = plait.Kafka(topic, schema=COLUMNS, servers=kafka.servers, client=client)
    (op,) = [op for op in plait.stream(source, event_time="at").job._operators if op.inputs == ()]
    reader = reader_of(op.source)  # type: ignore[union-attr]
    now_s = 0.0
    reader.clock = lambda: now_s
    try:
        assert clocks_of(reader, 2) == [(1, None), (5, None)]
        kafka.produce(topic, at_seconds(0, [7]))
        assert clocks_of(reader, 1) == [(7, None)]  # nothing is known of the other
        for _ in range(4):
            now_s += 5
            assert isinstance(reader.poll(100), plait.Wait)
        kafka.produce(topic, at_seconds(0, [9]))
        assert clocks_of(reader, 1) == [(9, 9)]
        kafka.produce(topic, at_seconds(1, [8]))
        assert clocks_of(reader, 1) == [(8, 9)]  # it never falls
        kafka.produce(topic, at_seconds(0, [20]) + at_seconds(1, [15]))
        assert sorted(clocks_of(reader, 2))[-1] in [(20, 9), (20, 15)]
        position = reader.position()
        assert position["times"] == [[0, START_US + 20_000_000], [1, START_US + 15_000_000]]
        assert position["now"] == START_US + 15_000_000
    finally:
        reader.close()
    kafka.produce(topic, at_seconds(1, [30]))
    again = op.source.open(position)  # type: ignore[union-attr]
    try:
        assert clocks_of(again, 1) == [(30, 20)]
    finally:
        again.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_partition_that_is_ahead_waits(kafka: LocalBroker, client: Any) -> None:
    topic = kafka.make_topic("drift", 2)
    kafka.produce(topic, at_seconds(0, range(400)) + at_seconds(1, range(400)))
    source = plait.Kafka(
        topic, schema=COLUMNS, servers=kafka.servers, client=client, max_drift="60s"
    )
    (op,) = [op for op in plait.stream(source, event_time="at").job._operators if op.inputs == ()]
    reader = op.source.open()  # type: ignore[union-attr]
    seconds = dict.fromkeys((0, 1), 0)
    found = waited = first = 0
    try:
        while found < 800:
            answer = reader.poll(20)
            if isinstance(answer, plait.Wait):
                continue
            found += answer.num_rows
            for partition, at in reader.times.clock.times.items():
                if at != NO_TIME:
                    seconds[partition] = (at - START_US) // 1_000_000
            waited += bool(reader.held)
            if min(seconds.values()):
                assert abs(seconds[0] - seconds[1]) <= first + 60 + 20
            else:  # nothing is known of one of them yet
                first = max(seconds.values())
    finally:
        reader.close()
    assert seconds == {0: 399, 1: 399}
    assert waited


def test_the_plan_says_so(kafka: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = kafka.make_topic("plan")
    source = plait.Kafka(topic, schema=COLUMNS, servers=kafka.servers)
    job = plait.Job("plan")
    stream = job.source(source, event_time="at")
    assert list(stream.schema.names) == ["n", "at"]
    stream.sink(plait.Discard())
    job.explain()
    assert "event time at by partition" in capsys.readouterr().out
