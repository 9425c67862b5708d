"""Kafka in and out of a job on two nodes of a Ray cluster: the output is that of a plain loop."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.testing.broker import broker
from tests.integration.conftest import PATIENCE_S, until
from tests.integration.kafka.taped_topic import committed
from tests.integration.kafka.test_kafka_changes import grow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plait.testing.broker import LocalBroker

pytestmark = pytest.mark.integration

ROWS = 2_000


@pytest.mark.parametrize("exactly", ["", "checkpoints", "50ms"])
def test_on_two_nodes(entry_point: Callable[..., Any], tmp_path: Path, exactly: str) -> None:
    """With 50ms the output is committed between checkpoints."""
    with broker() as kafka:
        topic_in, topic_out = kafka.make_topic("in", 3), kafka.make_topic("out")
        rows = [{"k": n * n % 11, "n": n} for n in range(ROWS)]
        kafka.produce(topic_in, [json.dumps(row).encode() for row in rows])
        job = plait.Job("kafka-on-nodes")
        source = plait.Kafka(
            topic_in, schema={"k": int, "n": int}, servers=kafka.servers, end="latest"
        )
        counted = job.source(source).key_by("k").aggregate(n=plait.last("n"), c=plait.count())
        commit = exactly if exactly.endswith("ms") else None
        sink = plait.Kafka(topic_out, key="k", servers=kafka.servers, commit=commit)
        counted.sink(sink, "out")
        counts: dict[int, int] = {}
        wanted = []
        for row in plait.stream(source).collect():
            counts[row.k] = counts.get(row.k, 0) + 1
            wanted.append({"k": row.k, "n": row.n, "c": counts[row.k]})
        saved = {"checkpoint": plait.Checkpoint(str(tmp_path), every="200ms")} if exactly else {}
        entry_point(job, **saved)
        found = [json.loads(record.value or b"") for record in kafka.read(topic_out, count=ROWS)]
        assert found == wanted


def test_a_live_topic_while_nodes_come_and_die(cluster: str, tmp_path: Path) -> None:
    """A node joins, the topic gets a partition, the node that reads it is killed, then the broker:
    the output is that of a plain loop over the records in the order in which they came."""
    with broker() as kafka:
        topic_in, topic_out = kafka.make_topic("in", 2), kafka.make_topic("out")
        source = plait.Kafka(
            topic_in,
            schema={"k": int, "n": int},
            servers=kafka.servers,
            metadata=("partition", "offset"),
        )
        job = plait.Job("kafka-live")
        last: dict[str, Any] = {name: plait.last(name) for name in ("n", "partition", "offset")}
        counted = job.source(source).key_by("k").aggregate(**last, c=plait.count())
        counted.sink(plait.Kafka(topic_out, servers=kafka.servers), "out")
        handle = plait.submit(
            job,
            address=cluster,
            nodes=1,
            workers=1,
            bin_bits=6,
            epoch_records=50,
            checkpoint=plait.Checkpoint(str(tmp_path), every="300ms", max_age="3m"),
        )
        sent = 0

        def send_and_wait() -> None:
            nonlocal sent
            send(kafka, topic_in, sent, 200)
            sent += 200
            until(lambda: len(kafka.read(topic_out)) >= sent, handle)

        try:
            send_and_wait()
            handle.rescale(2).wait(PATIENCE_S)
            grow(kafka, topic_in, 3)
            send_and_wait()
            view = handle.status()
            home = next(node for node in view.nodes if node.rank == view.home)
            os.kill(home.pid, signal.SIGKILL)
            send_and_wait()
            kafka.kill()
            kafka.start()
            send_and_wait()
            handle.stop()
            handle.result(PATIENCE_S)
        finally:
            if not handle.status().over:
                handle.cancel()
                handle.wait(PATIENCE_S)
            handle.forget()
        check_whole(kafka, topic_in, topic_out)


def send(kafka: LocalBroker, topic: str, first: int, count: int) -> None:
    rows = [{"k": n * n % 11, "n": n} for n in range(first, first + count)]
    kafka.produce(topic, [(b"%d" % row["n"], json.dumps(row).encode()) for row in rows])


def check_whole(kafka: LocalBroker, topic_in: str, topic_out: str) -> None:
    counts: dict[int, int] = {}
    places: dict[int, list[int]] = {}
    for record in kafka.read(topic_out):
        row = json.loads(record.value or b"")
        counts[row["k"]] = counts.get(row["k"], 0) + 1
        assert (row["k"], row["c"]) == (row["n"] ** 2 % 11, counts[row["k"]])
        places.setdefault(row["partition"], []).append(row["offset"])
    assert places == committed(kafka, topic_in)
