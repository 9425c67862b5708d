"""What the progress topic says of a sink: the boundary before which its rows are delivered.

It is in the same transaction as the rows, so it is never ahead of them and never behind. The record
of a sink has its id as key, and as value the boundary and the number of parts of its notes; these
parts follow under keys of their own, `<id>/notes-0` and so on, in place of those before. They are
parts because notes may be longer than a broker takes in one record. A reader commits a probe first
and reads until the probe comes, so an answer that is too old cannot be taken for the newest.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from plait.connectors.kafka.client import Client, Consumer, Producer, Record
    from plait.connectors.kafka.kafka import Kafka

COMPACT = {"cleanup.policy": "compact"}
LOOK_S = 0.005
PART_BYTES = 1 << 19
"""Of notes in one record; brokers refuse records of more than 1 MB."""


class Noted(NamedTuple):
    """What is noted of a sink: its boundary, an offset from which on that is found, and the notes
    that its last commit was given."""

    boundary: int
    offset: int
    notes: bytes = b""

    def for_checkpoint(self) -> dict[str, int]:
        """What a checkpoint keeps of it, to be given to `read_progress`."""
        return {"boundary": self.boundary, "offset": self.offset}


NOTHING = Noted(0, 0)


def send_progress(producer: Producer, sink: Kafka, boundary: int, notes: bytes) -> None:
    """Puts boundary and notes into the open transaction."""
    parts = [notes[first : first + PART_BYTES] for first in range(0, len(notes), PART_BYTES)]
    head = {"boundary": boundary, "notes": len(parts)}
    producer.send(sink.progress, sink.id.encode(), json.dumps(head).encode())
    for i, part in enumerate(parts):
        producer.send(sink.progress, part_key(sink, i), part)


def part_key(sink: Kafka, number: int) -> bytes:
    return f"{sink.id}/notes-{number}".encode()


def read_progress(sink: Kafka, client: Client, producer: Producer, seen: Any) -> Noted:
    """What is noted of the sink's id, after everything that was open with it is settled. `seen`:
    what an earlier checkpoint knows, which must not be newer."""
    probe = uuid.uuid4().hex.encode()
    producer.begin()
    producer.send(sink.progress, f"{sink.id}/probe".encode(), probe)
    producer.commit()
    known = NOTHING if seen is None else Noted(int(seen["boundary"]), int(seen["offset"]))
    consumer = client.consumer(sink.progress)
    try:
        first = max(consumer.bounds([0])[0].low, known.offset)
        found = read_until(sink, consumer, first, probe)
    finally:
        consumer.close()
    if found.boundary < known.boundary:
        raise EnvironmentFailure(
            f'the topic "{sink.progress}" notes boundary {found.boundary} for "{sink.id}", and the'
            f" checkpoint knows of {known.boundary}: the topic is not that of this job"
        )
    if len(found.parts) < found.count:
        raise EnvironmentFailure(
            f'the topic "{sink.progress}" has {len(found.parts)} of the {found.count} parts of the'
            f' notes for boundary {found.boundary} of "{sink.id}": records of it were removed'
        )
    notes = b"".join(found.parts[part_key(sink, i)] for i in range(found.count))
    return Noted(found.boundary, found.offset, notes)


@dataclass(slots=True)
class Found:
    """The newest record of a sink while the topic is read, and the parts after it."""

    boundary: int = 0
    offset: int = 0
    count: int = 0
    """How many parts there are to be."""
    parts: dict[bytes, bytes] = field(default_factory=dict)


def read_until(sink: Kafka, consumer: Consumer, first: int, probe: bytes) -> Found:
    """Reads from an offset on until the probe has come."""
    consumer.assign({0: first})
    found = Found()
    until = time.monotonic() + sink.connection.patience_s
    while True:
        records = consumer.fetch(10_000)
        for record in records:
            if record.value == probe:
                return found
            found = with_record(sink, found, record)
        if records:
            continue
        if time.monotonic() > until:
            raise EnvironmentFailure(
                f'the topic "{sink.progress}" could not be read to its end: another job was killed'
                " while it committed there, and holds it back until it runs again, or for 5 minutes"
                " (progress= names another topic)"
            )
        time.sleep(LOOK_S)


def with_record(sink: Kafka, found: Found, record: Record) -> Found:
    """What is found, with one more record."""
    if record.key is None or record.value is None:
        return found
    if record.key == sink.id.encode():
        head = json.loads(record.value)
        return Found(int(head["boundary"]), record.offset, int(head.get("notes", 0)))
    if record.key.startswith(f"{sink.id}/notes-".encode()):
        found.parts[record.key] = record.value
    return found
