"""The client port by kafka-python, which is pure Python: slower, and without transactions here."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from plait.connectors.kafka.client import START_S, Bounds, OffsetsLost, Record, absent
from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.connectors.kafka.settings import Connection

ASK_MS = 1000
MOST_UNSENT = 100_000
"""kafka-python itself has no bound."""
WITH_REQUESTS = ("kafka.net.connection", "kafka.protocol.parser")
"""Loggers that at DEBUG write whole requests: that of a login has the password in it."""


class PythonClient:
    """Makes consumers and producers."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        if connection.settings:
            for name in WITH_REQUESTS:
                logger = logging.getLogger(name)
                logger.setLevel(max(logger.level, logging.INFO))

    def common(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.connection.servers.split(","),
            "client_id": "plait",
            # With the default a broker that was away is found again after up to 30 s (measured).
            "reconnect_backoff_max_ms": 500,
            "bootstrap_timeout_ms": int(START_S * 1000),
        }

    def make(self, kind: Any, settings: dict[str, Any]) -> Any:
        from kafka.errors import KafkaError

        own = {
            name: value
            for name, value in self.connection.for_client().items()
            if name in kind.DEFAULT_CONFIG or not is_known(name)
        }
        try:
            return kind(**{**settings, **own})
        except (KafkaError, AssertionError, ValueError, TypeError, OSError) as error:
            raise self.failure(error) from None

    def failure(self, error: BaseException) -> EnvironmentFailure:
        name = type(error).__name__
        said = self.connection.redact(error)
        if "Authentication" in name or "Authorization" in name:
            return EnvironmentFailure(f"{self.connection.servers} refused us: {said}")
        if name in ("NoBrokersAvailable", "KafkaTimeoutError", "KafkaConnectionError"):
            # kafka-python does not say when a broker hangs up because of a password.
            secure = ", or it refused us: look at settings=" * bool(self.connection.settings)
            return EnvironmentFailure(
                f"no Kafka broker answers at {self.connection.servers}{secure}: {said}"
            )
        if name == "LogTruncationError":
            return EnvironmentFailure(
                "the brokers have records no more that were read; was the topic made anew?"
            )
        return EnvironmentFailure(f"kafka-python: {name}: {said}")

    def consumer(self, topic: str) -> PythonConsumer:
        import kafka

        settings = {
            **self.common(),
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "isolation_level": "read_committed",
            "fetch_max_wait_ms": 100,
            "metadata_max_age_ms": 2_000,  # new partitions are found in what it knows by itself
        }
        return PythonConsumer(self.make(kafka.KafkaConsumer, settings), topic, self)

    def ends_finder(self, topic: str) -> PythonEnds:
        import kafka

        settings = {**self.common(), "enable_auto_commit": False}
        return PythonEnds(self.make(kafka.KafkaConsumer, settings), topic)

    def producer(self, transactional_id: str = "") -> PythonProducer:
        import kafka

        if transactional_id:
            raise EnvironmentFailure("transactions need confluent-kafka")
        settings = {
            **self.common(),
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": 20,
            "batch_size": 256 << 10,
            "max_block_ms": int(self.connection.patience_s * 1000),
        }
        return PythonProducer(self.make(kafka.KafkaProducer, settings), self)

    def partitions_of(self, topic: str) -> int:
        consumer = self.consumer(topic)
        try:
            return len(consumer.known())
        finally:
            consumer.close()

    def make_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        from kafka.admin import KafkaAdminClient, NewTopic
        from kafka.errors import KafkaError, TopicAlreadyExistsError

        admin = self.make(KafkaAdminClient, self.common())
        try:
            admin.create_topics(
                [
                    NewTopic(
                        name=topic,
                        num_partitions=partitions,
                        replication_factor=-1,
                        topic_configs=dict(settings),
                    )
                ]
            )
        except TopicAlreadyExistsError:
            pass
        except KafkaError as error:
            raise self.failure(error) from None
        finally:
            admin.close()


def is_known(name: str) -> bool:
    """Whether another kind of client has this setting: it is not for this one, then."""
    import kafka
    from kafka.admin import KafkaAdminClient

    kinds = (kafka.KafkaConsumer, kafka.KafkaProducer, KafkaAdminClient)
    return any(name in kind.DEFAULT_CONFIG for kind in kinds)


class PythonConsumer:
    """Reads by `poll`."""

    def __init__(self, consumer: Any, topic: str, client: PythonClient) -> None:
        self.consumer = consumer
        self.topic = topic
        self.client = client
        self.heard = time.monotonic()

    def known(self) -> set[int]:
        found = self.ask("partitions_for_topic", self.topic)
        return set(found or ())

    def partitions(self) -> list[int]:
        if not (found := self.known()):
            raise EnvironmentFailure(absent(self.client.connection, self.topic))
        return sorted(found)

    def partitions_now(self, patience_s: float) -> list[int]:
        return sorted(self.known())

    def bounds(self, partitions: Sequence[int], patience_s: float = START_S) -> dict[int, Bounds]:
        places = [self.place(partition) for partition in partitions]
        patience_ms = int(patience_s * 1000)
        low = self.ask("beginning_offsets", places, patience_ms)
        high = self.ask("end_offsets", places, patience_ms)
        return {place.partition: Bounds(low[place], high[place]) for place in places}

    def offsets_at(self, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int | None]:
        wanted = {self.place(partition): timestamp_ms for partition in partitions}
        found = self.ask("offsets_for_times", wanted)
        return {p.partition: None if at is None else at.offset for p, at in found.items()}

    def assign(self, offsets: Mapping[int, int]) -> None:
        self.ask("assign", [self.place(partition) for partition in offsets])
        for partition, at in offsets.items():
            self.ask("seek", self.place(partition), at)

    def add(self, offsets: Mapping[int, int]) -> None:
        now = self.consumer.assignment()
        self.ask("assign", [*now, *map(self.place, offsets)])
        for partition, at in offsets.items():
            self.ask("seek", self.place(partition), at)

    def fetch(self, most: int) -> list[Record]:
        if not self.consumer.assignment():
            return []
        found = self.ask("poll", 0, most)
        if found:
            self.heard = time.monotonic()
        return [
            Record(r.partition, r.offset, r.timestamp, r.key, r.value, r.headers or ())
            for records in found.values()
            for r in records
        ]

    def reached(self, partition: int) -> int:
        """As far as `poll` has given records, and over what it left out after them."""
        return int(self.ask("position", self.place(partition)))

    def highwater(self, partition: int) -> int:
        from kafka.errors import IllegalStateError

        try:
            known = self.consumer.highwater(self.place(partition))
        except IllegalStateError:  # not assigned now
            return -1
        return -1 if known is None else int(known)

    def hold(self, partition: int, held: bool) -> None:
        self.ask("pause" if held else "resume", self.place(partition))

    def away_s(self) -> float:
        if self.consumer.bootstrap_connected():
            self.heard = time.monotonic()
        return time.monotonic() - self.heard

    def close(self) -> None:
        self.consumer.close()

    def place(self, partition: int) -> Any:
        from kafka import TopicPartition

        return TopicPartition(self.topic, partition)

    def ask(self, method: str, *arguments: Any) -> Any:
        from kafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

        try:
            return getattr(self.consumer, method)(*arguments)
        except (OffsetOutOfRangeError, NoOffsetForPartitionError) as error:
            raise OffsetsLost(partition_in(error)) from None
        except KafkaError as error:
            raise self.client.failure(error) from None


class PythonEnds:
    """Asks by a consumer of its own, because only one thread may use one."""

    def __init__(self, consumer: Any, topic: str) -> None:
        self.consumer = consumer
        self.topic = topic

    def find(self, partitions: Sequence[int]) -> dict[int, int]:
        from kafka import TopicPartition
        from kafka.errors import KafkaError

        places = [TopicPartition(self.topic, partition) for partition in partitions]
        try:
            found = self.consumer.end_offsets(places, timeout_ms=ASK_MS)
        except KafkaError:
            return {}
        return {place.partition: int(at) for place, at in found.items()}

    def close(self) -> None:
        self.consumer.close()


def partition_in(error: BaseException) -> int:
    """The partition that an error names; 0 if it names none."""
    for part in error.args:
        for place in part if isinstance(part, dict | list | tuple | set) else (part,):
            if hasattr(place, "partition"):
                return int(place.partition)
    return 0


class PythonProducer:
    """Writes records, with a bound on those that are on their way."""

    def __init__(self, producer: Any, client: PythonClient) -> None:
        self.producer = producer
        self.client = client
        self.unsent = 0
        self.failed = ""

    def begin(self) -> None:
        raise EnvironmentFailure("transactions need confluent-kafka")

    def send_rows(self, topic: str, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            self.send(topic, *row)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        from kafka.errors import KafkaError

        try:
            sent = self.producer.send(
                topic,
                value=value,
                key=key,
                headers=list(headers),
                partition=None if partition < 0 else partition,
                timestamp_ms=timestamp_ms or None,
            )
        except KafkaError as error:
            raise self.client.failure(error) from None
        sent.add_errback(self.note_failure)
        self.unsent += 1
        if self.unsent >= MOST_UNSENT:
            self.flush()

    def note_failure(self, error: BaseException) -> None:
        self.failed = self.failed or self.client.connection.redact(error)

    def flush(self) -> None:
        from kafka.errors import KafkaError

        try:
            self.producer.flush(self.client.connection.patience_s)
        except KafkaError as error:
            raise self.client.failure(error) from None
        self.unsent = 0
        if self.failed:
            raise EnvironmentFailure(f"records were not delivered: {self.failed}")

    def commit(self) -> None:
        self.begin()

    def abort(self) -> None:
        """There is no transaction."""

    def close(self) -> None:
        self.producer.close(timeout=START_S)
