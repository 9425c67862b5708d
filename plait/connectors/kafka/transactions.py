"""Exactly once: rows and a note of their boundary in one Kafka transaction (`progress.py`).

A sink has a transactional id that stays the same over all runs, so whoever starts with it locks out
every earlier writer. There is a transaction for each checkpoint, or for each `commit=`, and then
the notes of how to get to the boundary again are in it too. Rows after a mark wait in memory until
the transaction before them is committed; if its checkpoint is given up they simply belong to the
next. Rows come from workers while another thread commits.

After a commit whose outcome is not known the producer is never used again: a new one, which settles
what was open, and the progress topic say what happened.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Delivered, Resume, Writer
from plait.connectors.kafka.client import Unsure, connect
from plait.connectors.kafka.progress import COMPACT, Noted, read_progress, send_progress
from plait.connectors.kafka.settings import choose_client
from plait.connectors.kafka.writers import check_topic, told
from plait.errors import EnvironmentFailure, JobError

if TYPE_CHECKING:
    from plait.connectors.kafka.client import Consumer
    from plait.connectors.kafka.kafka import Kafka
    from plait.connectors.kafka.writers import Made

MOST_HELD = 200_000
"""With `commit=`: more rows do not wait in memory for a transaction; the job waits with them."""
WAIT_S = 0.1


def transactional_id(sink: Kafka) -> str:
    return f"plait.{sink.id}"


def refuse_kafka_python(sink: Kafka) -> None:
    """Its commits hang for good when a broker goes away (3.0.12)."""
    if choose_client(sink.connection.client) == "kafka-python":
        raise JobError(
            f"{sink.named()}: exactly once needs confluent-kafka; install it, or write"
            ' delivery="at_least_once"'
        )


def lock_out(sink: Kafka) -> None:
    """Ends transactions of earlier runs."""
    refuse_kafka_python(sink)
    told(sink, lambda: connect(sink.connection).producer(transactional_id(sink)).close())


def survey(sink: Kafka, seen: Any) -> Delivered | None:
    """Locks out writers of earlier runs, then says what is delivered."""
    refuse_kafka_python(sink)

    def look() -> Noted:
        client = connect(sink.connection)
        check_topic(sink)
        client.make_topic(sink.progress, 1, COMPACT)
        producer = client.producer(transactional_id(sink))
        try:
            return read_progress(sink, client, producer, seen)
        finally:
            producer.close()

    noted: Noted = told(sink, look)
    return Delivered(noted.boundary, noted.notes) if noted.boundary else None


class TransactionWriter(Writer):
    """Sends rows in transactions, one for each commit."""

    def __init__(self, sink: Kafka, made: Made, resume: Resume) -> None:
        refuse_kafka_python(sink)
        self.sink = sink
        self.made = made
        self.written = 0
        self.client = connect(sink.connection)
        self.free = threading.Condition()
        """Held while rows are sent or put aside; told when they no longer wait."""
        self.held: list[tuple[Any, ...]] = []
        """Rows after the mark."""
        self.marked = False
        self.prepared = False
        """A checkpoint has been told where the sink is: the offset may move on."""
        self.failed = False
        check_topic(sink)
        self.client.make_topic(sink.progress, 1, COMPACT)
        self.producer = self.client.producer(transactional_id(sink))
        self.offsets: Consumer | None = None
        self.open = False
        try:
            self.noted = read_progress(sink, self.client, self.producer, resume.position)
            # Another run may have come between `survey` and here.
            if self.noted.boundary != resume.boundary:
                raise EnvironmentFailure(
                    f"it is at boundary {self.noted.boundary}, and the checkpoint to go on from at"
                    f" {resume.boundary}; another run of the job writes there"
                )
        except BaseException:
            self.producer.close()
            raise

    def write(self, batch: Any) -> None:
        rows = list(self.made(batch))
        with self.free:
            while self.must_wait():
                self.free.wait(WAIT_S)
            self.written += len(rows)
            if self.marked:
                self.held += rows
            else:
                told(self.sink, lambda: self.send(rows))

    def must_wait(self) -> bool:
        """Only for a commit that is under way, which waits for brokers alone. At a checkpoint other
        sinks may have to get on first."""
        too_many = self.marked and len(self.held) >= MOST_HELD
        return too_many and self.sink.commit is not None and not self.failed

    def send(self, rows: Any) -> None:
        if not self.open:
            self.producer.begin()
            self.open = True
        self.producer.send_rows(self.sink.topic, rows)

    def mark(self, boundary: int) -> None:
        with self.free:
            if self.marked:
                self.release()  # the checkpoint before was given up
            self.marked = True

    def release(self) -> None:
        """Rows that waited for the transaction before them go out."""
        self.marked = False
        held, self.held = self.held, []
        self.free.notify_all()
        if held:
            told(self.sink, lambda: self.send(held))

    def prepare(self, boundary: int) -> dict[str, Any]:
        """With `commit=` the checkpoint is anywhere, and this says where the sink is."""
        if self.sink.commit is None:
            told(self.sink, self.producer.flush)
        self.prepared = True
        return self.noted.for_checkpoint()

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        try:
            if boundary > self.noted.boundary:
                told(self.sink, lambda: self.deliver(boundary, notes))
        except BaseException:
            self.failed = True  # nobody waits any longer
            raise
        with self.free:
            self.release()

    def deliver(self, boundary: int, notes: bytes) -> None:
        """Commits the transaction with the boundary in it. No row is sent meanwhile: they wait."""
        offset = self.next_offset()
        self.send(())
        send_progress(self.producer, self.sink, boundary, notes)
        try:
            self.producer.commit()
        except Unsure as unsure:
            self.settle(boundary, unsure)
        self.open = self.prepared = False
        self.noted = Noted(boundary, offset)

    def next_offset(self) -> int:
        """Where the progress topic ends, so before what is noted next: a later run need not read
        what is before. Asked once a checkpoint, since nobody else is told."""
        if not self.prepared:
            return self.noted.offset
        try:
            if self.offsets is None:
                self.offsets = self.client.consumer(self.sink.progress)
            return self.offsets.bounds([0])[0].high
        except EnvironmentFailure:  # brokers are away: then a later run reads more
            return self.noted.offset

    def settle(self, boundary: int, unsure: Unsure) -> None:
        """Finds out whether a commit took place, with a new producer of the same id."""
        self.producer.close()
        self.producer = self.client.producer(transactional_id(self.sink))
        seen = self.noted.for_checkpoint()
        found = read_progress(self.sink, self.client, self.producer, seen)
        if found.boundary != boundary:
            raise EnvironmentFailure(f"{unsure}; run the job again to go on from its checkpoint")

    def close(self) -> int:
        self.end()
        return self.written

    def abort(self) -> int:
        """Rows that are not committed come again in the next run."""
        try:
            self.producer.abort()
        except EnvironmentFailure:
            pass  # the next run, or the transaction's timeout, sees to it
        finally:
            self.end()
        return self.written

    def end(self) -> None:
        self.producer.close()
        if self.offsets is not None:
            self.offsets.close()
