"""Writes rows to a topic: at least once, or in transactions (`transactions.py`).

Rows are sent in order by one idempotent producer, so records of one key are in their order in the
partition of that key, also when brokers fail and come back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Resume, Writer
from plait.connectors.formats.json_lines import to_json
from plait.connectors.kafka.client import absent, connect
from plait.connectors.kafka.formats import encoder_of
from plait.errors import EnvironmentFailure, SinkError
from plait.model.declared_json import why_not_json
from plait.model.records import column_values
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from plait.connectors.kafka.kafka import Kafka
    from plait.graph.operators import Graph

    Made = Callable[[Any], Iterable[tuple[Any, ...]]]
    """Gives, for a batch, what `Producer.send` takes after the topic for each of its records."""


def check_columns(sink: Kafka, schema: Schema) -> None:
    """Raises SinkError if rows of the schema cannot be written as the sink says."""
    if sink.decode is not None:
        raise SinkError(f"{sink.named()}: decode= is for reading; map the rows before the sink")
    if sink.key is not None and sink.key not in schema:
        raise SinkError(f'{sink.named()}: key="{sink.key}" is not a column; there are: {schema}')
    if sink.format == "bytes" and [field.type for field in schema] != [Type.BYTES]:
        raise SinkError(
            f'{sink.named()}: format="bytes" writes one column of bytes; the columns are: {schema}'
        )
    for field in schema:
        if sink.format == "json" and field.declared is not None:
            reason = why_not_json(field.declared)
            if reason is not None:
                raise SinkError(
                    f'{sink.named()}: column "{field.name}" cannot be written as JSON: {reason};'
                    " map it to a plain type, or drop it"
                )


class Rows:
    """Rows as keys and values of records."""

    def __init__(self, sink: Kafka, schema: Schema) -> None:
        check_columns(sink, schema)
        self.encode = encoder_of(sink.format, schema)
        self.key = None if sink.key is None else schema[sink.key]

    def of(self, batch: Any) -> Iterator[tuple[bytes | None, bytes | None]]:
        values = self.encode(batch)
        if self.key is None:
            return iter([(None, value) for value in values])
        column = batch.column(self.key.name)
        if self.key.type in (Type.STRING, Type.BYTES):
            keys = [to_bytes(key) for key in column_values(column, self.key.type)]
        else:
            keys = [
                None if key is None else json.dumps(key).encode()
                for key in to_json(column, self.key)
            ]
        return zip(keys, values, strict=True)


def to_bytes(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key


def check_topic(sink: Kafka) -> None:
    """Raises if the topic is not there: a producer would wait for it."""
    if connect(sink.connection).partitions_of(sink.topic) == 0:
        raise EnvironmentFailure(absent(sink.connection, sink.topic))


def told(sink: Kafka, do: Callable[[], Any]) -> Any:
    """What `do` gives; its failures are SinkErrors that name the sink."""
    try:
        return do()
    except SinkError:
        raise
    except EnvironmentFailure as error:
        raise SinkError(f"{sink.named()}: {error}") from None


def open_writer(sink: Kafka, schema: Schema, resume: Resume | None) -> Writer:
    """The writer for a job with checkpoints (`resume`) or without."""
    rows = Rows(sink, schema)
    return open_writer_of(sink, rows.of, resume)


def open_letters(sink: Kafka, graph: Graph, resume: Resume | None) -> Writer:
    """The same for dead letters: its `write` takes these."""
    from plait.connectors.kafka.letters import LetterRows

    rows = LetterRows(sink, graph)
    return open_writer_of(sink, rows.of, resume)


def open_writer_of(sink: Kafka, made: Made, resume: Resume | None) -> Writer:
    if resume is not None:
        from plait.connectors.kafka.transactions import TransactionWriter

        writer: Writer = told(sink, lambda: TransactionWriter(sink, made, resume))
        return writer
    plain: Writer = told(sink, lambda: PlainWriter(sink, made))
    return plain


class PlainWriter(Writer):
    """At least once. Where the user asked for that, a checkpoint may follow any batch: so each is
    acknowledged before the next."""

    def __init__(self, sink: Kafka, made: Made) -> None:
        self.sink = sink
        self.made = made
        self.written = 0
        check_topic(sink)
        self.producer = connect(sink.connection).producer()
        self.flushes = sink.delivery == "at_least_once"

    def write(self, batch: Any) -> None:
        told(self.sink, lambda: self.send(batch))

    def send(self, batch: Any) -> None:
        rows = list(self.made(batch))
        self.producer.send_rows(self.sink.topic, rows)
        self.written += len(rows)
        if self.flushes:
            self.producer.flush()

    def close(self) -> int:
        try:
            told(self.sink, self.producer.flush)
        finally:
            self.producer.close()
        return self.written

    def abort(self) -> int:
        """What was delivered stays; what is on its way is sent if brokers answer."""
        try:
            self.producer.flush()
        except EnvironmentFailure:
            pass  # the run has failed already, and says why
        finally:
            self.producer.close()
        return self.written
