"""The client port by confluent-kafka (librdkafka)."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from plait.connectors.kafka.client import START_S, Bounds, OffsetsLost, Record, Unsure, ends_of
from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from plait.connectors.kafka.settings import Connection

ASK_S = 1.0
FULL_S = 0.05
LOG = logging.getLogger("plait.kafka")
LOG.addHandler(logging.NullHandler())


class Health:
    """What librdkafka told about its connections, in whichever thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.refused = ""
        self.away_since = 0.0

    def note(self, error: Any) -> None:
        """librdkafka's callback for errors; it goes on trying by itself."""
        from confluent_kafka import KafkaError

        refusals = (
            KafkaError._AUTHENTICATION,
            KafkaError.SASL_AUTHENTICATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError._SSL,
        )
        if error.code() in refusals or error.fatal():
            self.refused = self.connection.redact(error.str())
        elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            self.away_since = self.away_since or time.monotonic()

    def note_answer(self) -> None:
        self.away_since = 0.0

    def away_s(self) -> float:
        self.check()
        return time.monotonic() - self.away_since if self.away_since else 0.0

    def check(self) -> None:
        if self.refused:
            raise EnvironmentFailure(f"{self.connection.servers} refused us: {self.refused}")


class ConfluentClient:
    """Makes consumers and producers."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def common(self, health: Health) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.connection.servers,
            "client.id": "plait",
            "error_cb": health.note,
            "logger": LOG,
            # A broker that was away is found again within half a second.
            "reconnect.backoff.max.ms": 500,
        }

    def make(self, kind: Callable[[dict[str, Any]], Any], settings: dict[str, Any]) -> Any:
        try:
            return kind({**settings, **self.connection.for_client()})
        except Exception as error:
            if type(error).__name__ not in ("KafkaException", "ValueError", "TypeError"):
                raise
            raise EnvironmentFailure(
                f"confluent-kafka refused the settings: {self.connection.redact(error)}"
            ) from None

    def consumer(self, topic: str, group: str = "plait") -> ConfluentConsumer:
        """A group is required. Jobs do not use it: they keep their own positions."""
        import confluent_kafka

        health = Health(self.connection)
        settings = {
            **self.common(health),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # Four times the records per second of the default of 1,000 (measured).
            "fetch.queue.backoff.ms": 10,
        }
        return ConfluentConsumer(self.make(confluent_kafka.Consumer, settings), topic, health)

    def ends_finder(self, topic: str) -> ConfluentEnds:
        from confluent_kafka.admin import AdminClient

        # Settings are for the consumer, which also says what is wrong with a broker: no word here.
        settings = {**self.common(Health(self.connection)), "log_level": 0}
        return ConfluentEnds(self.make(AdminClient, settings), topic)

    def producer(self, transactional_id: str = "") -> ConfluentProducer:
        import confluent_kafka

        health = Health(self.connection)
        patience_ms = int(self.connection.patience_s * 1000)
        settings = {
            **self.common(health),
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "message.timeout.ms": patience_ms,
            "delivery.report.only.error": True,
        }
        if transactional_id:
            settings["transactional.id"] = transactional_id
            settings["transaction.timeout.ms"] = max(300_000, patience_ms)
        made = ConfluentProducer(
            self.make(confluent_kafka.Producer, settings), health, bool(transactional_id)
        )
        if transactional_id:
            made.claim()
        return made

    def partitions_of(self, topic: str) -> int:
        consumer = self.consumer(topic)
        try:
            return len(consumer.known().partitions)
        finally:
            consumer.close()

    def make_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        health = Health(self.connection)
        admin = self.make(AdminClient, self.common(health))
        wanted = NewTopic(topic, partitions, config=dict(settings))
        answer = admin.create_topics([wanted], request_timeout=START_S)[topic]
        try:
            answer.result(START_S * 2)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise EnvironmentFailure(
                    f'the topic "{topic}" could not be made: {self.connection.redact(error)}'
                ) from None


class ConfluentConsumer:
    """Reads by `consume`, which takes what librdkafka's thread has fetched."""

    def __init__(self, consumer: Any, topic: str, health: Health) -> None:
        self.consumer = consumer
        self.topic = topic
        self.health = health
        self.read: dict[int, int] = {}

    def known(self) -> Any:
        """What the brokers know of the topic; waits for a broker that answers."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + START_S
        while True:
            try:
                found = self.consumer.list_topics(self.topic, ASK_S).topics[self.topic]
                if found.error is not None:
                    self.health.note(found.error)  # we may not see it; else it is not there
                    self.health.check()
                return found
            except KafkaException as error:
                self.consumer.poll(0)  # errors come in by callbacks
                self.health.check()
                if time.monotonic() > until:
                    servers = self.health.connection.servers
                    raise EnvironmentFailure(
                        f"no Kafka broker answers at {servers}: {error.args[0].str()}"
                    ) from None

    def partitions(self) -> list[int]:
        known = self.known()
        if not known.partitions:
            raise EnvironmentFailure(f'there is no topic "{self.topic}"')
        return sorted(known.partitions)

    def partitions_now(self, patience_s: float) -> list[int]:
        return sorted(self.ask("list_topics", self.topic, patience_s).topics[self.topic].partitions)

    def bounds(self, partitions: Sequence[int], patience_s: float = START_S) -> dict[int, Bounds]:
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

        until = time.monotonic() + patience_s
        while True:
            # In place of a time these ask for the first and the last offset, of all partitions.
            low, high = (
                self.ask("offsets_for_times", [self.place(p, at) for p in partitions], patience_s)
                for at in (OFFSET_BEGINNING, OFFSET_END)
            )
            failed = next((place for place in (*low, *high) if place.error is not None), None)
            if failed is None:
                break
            # A topic that was made just now may have no leader yet.
            if failed.error.code() not in between_leaders() or time.monotonic() > until:
                raise EnvironmentFailure(
                    f"the offsets of partition {failed.partition} are not known:"
                    f" {self.health.connection.redact(failed.error.str())}"
                )
            time.sleep(FULL_S)
        ends = {place.partition: place.offset for place in high}
        return {place.partition: Bounds(place.offset, ends[place.partition]) for place in low}

    def offsets_at(self, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int | None]:
        wanted = [self.place(partition, timestamp_ms) for partition in partitions]
        found = self.ask("offsets_for_times", wanted, START_S)
        return {place.partition: place.offset if place.offset >= 0 else None for place in found}

    def assign(self, offsets: Mapping[int, int]) -> None:
        self.read = {}
        self.ask("assign", [self.place(partition, at) for partition, at in offsets.items()])

    def add(self, offsets: Mapping[int, int]) -> None:
        places = [self.place(partition, at) for partition, at in offsets.items()]
        self.ask("incremental_assign", places)

    def fetch(self, most: int) -> list[Record]:
        messages = self.ask("consume", most, 0.0)
        # 1.7 us a record; 2.1 with a call of Record (measured).
        make = tuple.__new__
        records: list[Record] = [
            make(
                Record,
                (
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    message.headers() or (),
                ),
            )
            for message in messages
            if message.error() is None
        ]
        if records:
            self.read |= ends_of(records)
            self.health.note_answer()
        if len(records) < len(messages):
            for message in messages:
                if (error := message.error()) is not None:
                    self.take_error(error, message.partition(), message)
        return records

    def take_error(self, error: Any, partition: int, message: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF:
            self.read[partition] = max(message.offset(), self.read.get(partition, -1))
            self.health.note_answer()
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise OffsetsLost(partition)
        elif error.code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise EnvironmentFailure(f'there is no topic "{self.topic}" any more')
        elif not error.retriable():
            self.health.note(error)
            self.health.check()

    def reached(self, partition: int) -> int:
        return self.read.get(partition, -1)

    def highwater(self, partition: int) -> int:
        from confluent_kafka import KafkaException

        try:
            known = self.consumer.get_watermark_offsets(self.place(partition), cached=True)
        except (KafkaException, RuntimeError):  # not assigned now; closed
            return -1
        return -1 if known is None else int(known[1])

    def committed(self, partitions: Sequence[int]) -> dict[int, tuple[int, str]]:
        """The offset that its group has committed, and the text with it; -1: there is none."""
        places = [self.place(partition) for partition in partitions]
        found = self.ask("committed", places, START_S)
        return {place.partition: (max(place.offset, -1), place.metadata or "") for place in found}

    def hold(self, partition: int, held: bool) -> None:
        self.ask("pause" if held else "resume", [self.place(partition)])

    def away_s(self) -> float:
        return self.health.away_s()

    def close(self) -> None:
        self.consumer.close()

    def place(self, partition: int, offset: int = 0) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self.topic, partition, offset)

    def ask(self, method: str, *arguments: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return getattr(self.consumer, method)(*arguments)
        except KafkaException as error:
            self.health.check()
            said = self.health.connection.redact(error.args[0].str())
            raise EnvironmentFailure(f"Kafka at {self.health.connection.servers}: {said}") from None


class ConfluentEnds:
    """Asks by a client of its own: a request on the consumer's connection would wait behind a fetch
    that waits for records."""

    def __init__(self, admin: Any, topic: str) -> None:
        self.admin = admin
        self.topic = topic

    def find(self, partitions: Sequence[int]) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(self.topic, p): latest for p in partitions}
        try:
            answers = self.admin.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ASK_S
            )
        except KafkaException:
            return {}
        found = {}
        for place, answer in answers.items():
            with contextlib.suppress(KafkaException, TimeoutError):
                found[place.partition] = answer.result(2 * ASK_S).offset
        return found

    def close(self) -> None:
        self.admin = None


class ConfluentProducer:
    """Writes through librdkafka's queue."""

    def __init__(self, producer: Any, health: Health, transactional: bool) -> None:
        self.producer = producer
        self.health = health
        self.transactional = transactional
        self.open = False
        self.failed = ""

    def claim(self) -> None:
        """Locks out older producers of the same id."""
        until = time.monotonic() + self.health.connection.patience_s
        while True:
            self.producer.poll(0)
            self.health.check()
            try:
                self.producer.init_transactions(ASK_S * 5)
                return
            except Exception as error:
                self.refuse_others(error)
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise self.failure("the transactions could not be started", error) from None

    def begin(self) -> None:
        self.call("a transaction could not be started", self.producer.begin_transaction)
        self.open = True

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        produce = self.producer.produce
        headers = list(headers)
        until = 0.0
        while True:
            try:
                produce(
                    topic,
                    value,
                    key,
                    partition,
                    self.note_failure,
                    timestamp=timestamp_ms,
                    headers=headers,
                )
                return
            except BufferError:  # librdkafka's queue is full
                until = until or time.monotonic() + self.health.connection.patience_s
                self.producer.poll(FULL_S)
                self.check()
                if time.monotonic() > until:
                    raise EnvironmentFailure(self.away()) from None
            except Exception as error:
                self.refuse_others(error)
                raise self.failure(f'a record for "{topic}" was refused', error) from None

    def send_rows(self, topic: str, rows: Iterable[tuple[Any, ...]]) -> None:
        produce, note = self.producer.produce, self.note_failure
        for row in rows:
            if len(row) == 2:
                try:
                    produce(topic, row[1], row[0], -1, note)
                    continue
                except Exception as error:  # `send` waits for room, or says what is wrong
                    self.refuse_unknown(error)
            self.send(topic, *row)

    def refuse_unknown(self, error: Exception) -> None:
        if not isinstance(error, BufferError):
            self.refuse_others(error)

    def note_failure(self, error: Any, message: Any) -> None:
        if error is not None and not self.failed:
            self.failed = f'"{message.topic()}": {self.health.connection.redact(error.str())}'

    def check(self) -> None:
        self.health.check()
        if self.failed:
            raise EnvironmentFailure(f"records were not delivered to {self.failed}{self.why()}")

    def why(self) -> str:
        """In a transaction that the brokers refuse, records are only told to be purged. To begin
        another one within it is always an error, of which the words are the reason."""
        from confluent_kafka import KafkaError, KafkaException

        if not self.open:
            return ""
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            said = error.args[0]
            known = said.code() != KafkaError._STATE
            return f": {self.health.connection.redact(said.str())}" if known else ""
        return ""

    def flush(self) -> None:
        until = time.monotonic() + self.health.connection.patience_s + START_S
        while self.producer.flush(ASK_S):
            self.check()
            if time.monotonic() > until:
                raise EnvironmentFailure(self.away())
        self.check()

    def away(self) -> str:
        connection = self.health.connection
        return f"Kafka at {connection.servers} took no records for {connection.patience_s:g} s"

    def send_offsets(
        self, consumer: ConfluentConsumer, places: Mapping[int, tuple[int, str]]
    ) -> None:
        """Offsets of a consumer's group, with texts, become part of the transaction."""
        from confluent_kafka import TopicPartition

        offsets = [
            TopicPartition(consumer.topic, partition, offset, text)
            for partition, (offset, text) in places.items()
        ]
        group = consumer.consumer.consumer_group_metadata()
        self.call(
            "the offsets could not be committed",
            self.producer.send_offsets_to_transaction,
            offsets,
            group,
            START_S,
        )

    def commit(self) -> None:
        try:
            self.producer.commit_transaction(self.health.connection.patience_s)
        except Exception as error:
            self.refuse_others(error)
            raise Unsure(str(self.failure("a transaction may not be committed", error))) from None
        self.open = False

    def abort(self) -> None:
        if self.open:
            self.open = False
            self.call(
                "a transaction could not be aborted", self.producer.abort_transaction, START_S
            )

    def close(self) -> None:
        self.producer.purge()
        self.producer.flush(ASK_S)

    def call(self, what: str, method: Callable[..., Any], *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception as error:
            self.refuse_others(error)
            raise self.failure(what, error) from None

    def refuse_others(self, error: Exception) -> None:
        from confluent_kafka import KafkaException

        if not isinstance(error, KafkaException):
            raise error

    def failure(self, what: str, error: Exception) -> EnvironmentFailure:
        said = error.args[0]
        if said.code() in fencing_codes():
            return EnvironmentFailure(
                f"{what}: another run of this job, or one with the same id=, writes there now"
            )
        return EnvironmentFailure(f"{what}: {self.health.connection.redact(said.str())}")


def between_leaders() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


def fencing_codes() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    )
