"""Reads the dead letters of a topic, and gives their records back to where they came from.

Which letters were read again is kept as the offset of a consumer group of the topic's own, and is
committed in the transaction in which the records are written: so each is written once, whatever
crashes. A letter that is not chosen stays for the next time, and so does one whose record has come
back three times: somebody has to look.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.connectors.kafka.client import OffsetsLost, Record, Unsure
from plait.connectors.kafka.done_offsets import Done, parse_done
from plait.connectors.kafka.kafka_confluent import ConfluentClient
from plait.connectors.kafka.letters import PREFIX, REPLAYED, Letter, parse_letter
from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.connectors.kafka.kafka_confluent import ConfluentConsumer, ConfluentProducer
    from plait.connectors.kafka.settings import Connection

MOST_REPLAYS = 3
AT_ONCE = 5_000
"""Letters in a transaction."""
LOOK_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which letters are meant."""

    operator: str = ""
    error: str = ""
    """Part of the reason, in any case."""
    since_ms: int = 0

    def takes(self, letter: Letter) -> bool:
        return (
            (not self.operator or letter.told.get("operator") == self.operator)
            and self.error.lower() in letter.told.get("error", "").lower()
            and letter.at_ms >= self.since_ms
        )


@dataclass(slots=True)
class Replayed:
    """What came of it."""

    records: int = 0
    topics: Counter[str] = field(default_factory=Counter)
    """How many went to each topic."""
    left: Counter[str] = field(default_factory=Counter)
    """Letters that were chosen and stay, by reason."""


class LetterTopic:
    """A topic of dead letters."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        self.client = ConfluentClient(connection)
        self.group = f"plait-dlq.{topic}"
        self.done: dict[int, Done] = {}

    def letters(self, choice: Choice) -> list[Letter]:
        """Those that were not read again, by partition and offset, as the topic is now."""
        consumer = self.client.consumer(self.topic, self.group)
        try:
            return list(self.read(consumer, choice))
        finally:
            consumer.close()

    def read(self, consumer: ConfluentConsumer, choice: Choice) -> Iterator[Letter]:
        partitions = consumer.partitions()
        bounds = consumer.bounds(partitions)
        self.done = {
            partition: parse_done(max(offset, 0), text).skipping(bounds[partition].low)
            for partition, (offset, text) in consumer.committed(partitions).items()
        }
        for partition in partitions:
            high = bounds[partition].high
            consumer.assign({partition: self.done[partition].offset})
            for record in read_until(consumer, partition, high, self.connection.patience_s):
                letter = parse_letter(record)
                if record.offset not in self.done[partition] and choice.takes(letter):
                    yield letter

    def replay(self, choice: Choice, to: str = "", *, dry_run: bool = False) -> Replayed:
        """Writes the records of letters back, to their topics or to another one."""
        made = Replayed()
        producer = None if dry_run else self.client.producer(self.group)  # locks out another one
        consumer = self.client.consumer(self.topic, self.group)
        originals = Originals(self.client, self.connection.patience_s)
        try:
            some: list[tuple[Letter, str, Record]] = []
            for letter in self.read(consumer, choice):
                found = originals.record_of(letter, to)
                if isinstance(found, str):
                    made.left[found] += 1
                    continue
                some.append((letter, *found))
                if len(some) == AT_ONCE:
                    self.give_back(producer, consumer, some, made)
                    some = []
            self.give_back(producer, consumer, some, made)
        finally:
            originals.close()
            consumer.close()
            if producer is not None:
                producer.close()
        return made

    def give_back(
        self,
        producer: ConfluentProducer | None,
        consumer: ConfluentConsumer,
        some: Sequence[tuple[Letter, str, Record]],
        made: Replayed,
    ) -> None:
        """A transaction: the records, and that their letters are done."""
        chosen = []
        for entry in some:
            letter = entry[0]
            done = self.done[letter.partition].with_offsets([letter.offset])
            if not done.fits():
                made.left["too many were left out before it; run it again without a choice"] += 1
                continue
            self.done[letter.partition] = done
            chosen.append(entry)
        if not chosen:
            return
        if producer is not None:
            producer.begin()
            for _, topic, record in chosen:
                producer.send(topic, record.key, record.value, record.headers, record.partition)
            touched = {letter.partition for letter, _, _ in chosen}
            places = {p: (self.done[p].offset, self.done[p].text()) for p in touched}
            producer.send_offsets(consumer, places)
            try:
                producer.commit()
            except Unsure as unsure:
                raise EnvironmentFailure(
                    f"{unsure}; run it again: what was written is known to the topic"
                ) from None
        made.records += len(chosen)
        made.topics.update(topic for _, topic, _ in chosen)


class Originals:
    """Finds the records of letters; those that letters do not have, in the topics they are in."""

    def __init__(self, client: ConfluentClient, patience_s: float) -> None:
        self.client = client
        self.patience_s = patience_s
        self.consumers: dict[str, ConfluentConsumer] = {}

    def record_of(self, letter: Letter, to: str) -> tuple[str, Record] | str:
        """Where a record goes, and the record; or why it stays."""
        came_from = letter.told.get("topic", "")
        target = to or came_from
        if not target:
            return "it is not known from which topic it came; name one with --to"
        record: Record | None = Record(-1, -1, -1, letter.key, letter.value, list(letter.headers))
        replays = letter.replayed
        place = letter.told.get("partition", ""), letter.told.get("offset", "")
        known = bool(came_from) and all(text.isdecimal() for text in place)
        if not letter.raw:
            if known:
                record = self.find(came_from, int(place[0]), int(place[1]))
                if record is None:
                    return "the record is no longer in its topic"
                replays = max(replays, replays_of(record))
            elif not to or letter.value is None:
                return "only its columns are known, and not where it came from; see metadata="
        if replays >= MOST_REPLAYS:
            return f"it came back {MOST_REPLAYS} times already"
        assert record is not None
        headers = [header for header in record.headers if not header[0].startswith(PREFIX)]
        headers.append((REPLAYED, str(replays + 1).encode()))
        partition = int(place[0]) if known and target == came_from else -1
        return target, record._replace(headers=headers, partition=partition)

    def find(self, topic: str, partition: int, offset: int) -> Record | None:
        """The record at an offset; None: it is not there."""
        if topic not in self.consumers:
            self.consumers[topic] = self.client.consumer(topic)
        consumer = self.consumers[topic]
        if partition not in consumer.partitions():
            return None
        bounds = consumer.bounds([partition])[partition]
        if not bounds.low <= offset < bounds.high:
            return None
        consumer.assign({partition: offset})
        for record in read_until(consumer, partition, bounds.high, self.patience_s):
            return record if record.offset == offset else None
        return None

    def close(self) -> None:
        for consumer in self.consumers.values():
            consumer.close()


def replays_of(record: Record) -> int:
    return max((parse_letter(record).replayed, 0))


def read_until(
    consumer: ConfluentConsumer, partition: int, high: int, patience_s: float
) -> Iterator[Record]:
    """The records of the one partition that is read, before an offset."""
    until = time.monotonic() + patience_s
    while consumer.reached(partition) < high:
        try:
            records = consumer.fetch(10_000)
        except OffsetsLost:
            return  # they were removed just now
        yield from (record for record in records if record.offset < high)
        if records:
            until = time.monotonic() + patience_s
        elif time.monotonic() > until:
            raise EnvironmentFailure(f'the topic "{consumer.topic}" could not be read to its end')
        else:
            time.sleep(LOOK_S)
