"""`Kafka`: a topic as a source, and as a sink."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from plait.connectors.base import Delivered, Kind, Reader, Resume, Sink, Source, Writer
from plait.connectors.kafka.formats import VALUE, Format
from plait.connectors.kafka.positions import Start, check_start
from plait.connectors.kafka.settings import (
    ClientName,
    Connection,
    check_client,
    check_settings,
)
from plait.errors import EnvironmentFailure, JobError
from plait.model.durations import Duration, microseconds
from plait.model.schema import Field, Schema, Type

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Mapping, Sequence

    from plait.connectors.kafka.client import Record
    from plait.graph.operators import Graph

SERVERS = "127.0.0.1:9092"
Part = Literal["key", "timestamp", "partition", "offset", "headers"]
Delivery = Literal["exactly_once", "at_least_once"]
FIELDS: dict[str, Field] = {
    "key": Field("key", Type.BYTES, nullable=True),
    "timestamp": Field("timestamp", Type.TIMESTAMP, nullable=True),
    "partition": Field("partition", Type.INT64),
    "offset": Field("offset", Type.INT64),
    "headers": Field("headers", Type.OBJECT, declared=list[tuple[str, bytes | None]]),
}


CLOCK = "plait.clock"
"""The column that says how far the time of the topic is."""


class TimeOfParts(NamedTuple):
    """How the time of a topic follows from the event times of its partitions."""

    column: str
    max_jump_us: int
    idle_us: int
    max_drift_us: int | None


PARTS_IDLE_US = 10_000_000
"""After this long at its end a partition does not hold the others back, if idle= is not given."""


class Kafka(Source, Sink):
    """A Kafka topic, as a source or as a sink.

    As a source, a topic is read by one node, all its partitions; a checkpoint keeps the offsets.
    Without `end` it never ends, and records come as they arrive. With `end` they come by their
    timestamps, then partition and offset: in the same order in every run.

    As a sink, records with the same key keep their order; records are delivered at least once, and
    exactly once in a job with `checkpoint=`, to readers of committed records.

    Args:
        topic: which one.
        schema: of a source: the columns, as a dataclass or a dict. Fields of a record that are not
            in it are left out.
        servers: the brokers, as "host:port,host:port".
        format: "json", "msgpack" (a map of names to values), "bytes" (one column, value), or, of a
            source, "arrow" (each value an Arrow IPC stream or file with any number of rows).
        decode: of a source: a function that gives the record of a value, in place of `format`.
        decode_batch: of a source: one that gives the records of a list of values: a list, a
            RecordBatch or a Table, with a row for each. If it raises, it is asked again with each
            half, so that only bad values are left out.
        start: of a source: "earliest", "latest", a datetime, or a dict of partitions to offsets.
        end: of a source: "latest" (as it is when the job starts), a datetime, or a dict; records
            before it are read.
        metadata: of a source: which of "key", "timestamp", "partition", "offset" and "headers" to
            add as columns; or a dict of column names to these words.
        on_lost: of a source: "fail", or "earliest" to go on when records were removed before they
            were read.
        max_drift: of a source without `end`: a partition waits while its event time is ahead of
            that of the slowest by more than this ("1m"). It needs `event_time=`.
        key: of a sink: the column whose value decides about the partition. Texts and bytes are as
            they are, other values as JSON.
        delivery: of a sink: "at_least_once" to have repeated records after a crash, also with
            `checkpoint=`. Records are then visible at once.
        id: of a sink, with `checkpoint=`: names this output in the cluster; another one for each
            job that writes to the topic (default: the topic).
        progress: of a sink, with `checkpoint=`: the topic in which it is noted how far output is;
            made if it is not there.
        commit: of a sink, with `checkpoint=`: how often rows become visible, as "100ms", in place
            of at checkpoints. Functions before it must give the same again.
        client: "confluent-kafka" or "kafka-python" (default: the first that is installed).
        settings: for the client, under its own names. A value "env:NAME" or "file:PATH" is looked
            up where the client runs: for passwords.
        patience: how long all brokers may be away before that is an error.
        label: its name in results and errors.

    >>> Kafka("clicks", schema={"user": str, "at": int}, servers="10.0.0.1:9092")
    Kafka("clicks", servers="10.0.0.1:9092")
    """

    def __init__(
        self,
        topic: str,
        schema: Any = None,
        *,
        servers: str = SERVERS,
        format: Format = "json",
        decode: Callable[[bytes | None], Any] | None = None,
        decode_batch: Callable[[list[bytes | None]], Any] | None = None,
        start: Literal["earliest", "latest"] | datetime.datetime | dict[int, int] = "earliest",
        end: Literal["latest"] | datetime.datetime | dict[int, int] | None = None,
        metadata: Sequence[Part] | Mapping[str, Part] = (),
        on_lost: Literal["fail", "earliest"] = "fail",
        max_drift: Duration | None = None,
        key: str | None = None,
        delivery: Delivery = "exactly_once",
        id: str = "",
        progress: str = "plait-progress",
        commit: Duration | None = None,
        client: ClientName | None = None,
        settings: Mapping[str, Any] | None = None,
        patience: Duration = "1m",
        label: str = "",
    ) -> None:
        if not isinstance(topic, str) or not topic:
            raise JobError(f"Kafka: the topic is {topic!r}; it must be a name")
        if not isinstance(servers, str) or not servers:
            raise JobError(f'Kafka: servers is {servers!r}; write "host:port,host:port"')
        if format not in get_args(Format):
            raise JobError(
                f'Kafka: format is {format!r}; write "json", "msgpack", "bytes" or "arrow"'
            )
        if on_lost not in ("fail", "earliest"):
            raise JobError(f'Kafka: on_lost is {on_lost!r}; write "fail" or "earliest"')
        if delivery not in get_args(Delivery):
            raise JobError(
                f'Kafka: delivery is {delivery!r}; write "exactly_once" or "at_least_once"'
            )
        if decode is not None and (not callable(decode) or schema is None):
            raise JobError("Kafka: decode= takes a function of bytes, and needs schema=")
        if decode_batch is not None and (not callable(decode_batch) or schema is None):
            raise JobError(
                "Kafka: decode_batch= takes a function of a list of bytes, and needs schema="
            )
        if decode is not None and decode_batch is not None:
            raise JobError("Kafka: decode= and decode_batch= are both given; write one of them")
        by_function = decode is not None or decode_batch is not None
        if schema is not None and format == "bytes" and not by_function:
            raise JobError('Kafka: format="bytes" has the column value, and schema= has no use')
        if max_drift is not None and end is not None:
            raise JobError(
                "Kafka: max_drift= is for a topic without end=; with it, partitions are merged by"
                " their timestamps"
            )
        self.max_drift_us = None if max_drift is None else microseconds(max_drift)
        self.topic = topic
        self.format: Format = format
        self.decode = decode
        self.decode_batch = decode_batch
        self.start: Start = check_start("start", start, ("earliest", "latest"))
        self.end: Start | None = None if end is None else check_start("end", end, ("latest",))
        self.bounded = end is not None
        self.on_lost = on_lost
        self.key = key
        self.delivery: Delivery = delivery
        self.id = id or topic
        self.progress = progress
        self.commit = check_commit(commit, delivery, client)
        self.connection = Connection(
            servers=servers,
            client=check_client(client),
            settings=check_settings(settings),
            patience_s=microseconds(patience) / 1e6,
        )
        self.label = label
        self.time: TimeOfParts | None = None
        """Of a copy for a job that uses the event time of a live topic."""
        self.metadata = check_metadata(metadata)
        self.has_schema = schema is not None or format == "bytes"
        if self.has_schema:
            self.value_schema = VALUE if schema is None else Schema.of(schema)
            added = tuple(
                Field(name, FIELDS[part].type, FIELDS[part].nullable, FIELDS[part].declared)
                for name, part in self.metadata.items()
            )
            kept = self.value_schema.record_class if not added else None
            self.schema = Schema((*self.value_schema.fields, *added), kept)

    def __repr__(self) -> str:
        return f'Kafka("{self.topic}", servers="{self.connection.servers}")'

    def __getattr__(self, name: str) -> Any:
        # Reached only by what was not set: a sink needs no schema.
        if name == "schema" and "topic" in self.__dict__:
            raise JobError(
                f'Kafka("{self.topic}") needs the columns of its records:'
                ' schema=Click, schema={"user": str}, or format="bytes"'
            )
        raise AttributeError(name)

    def named(self) -> str:
        """As errors name it."""
        return f'Kafka("{self.topic}")'

    def column_makers(self) -> list[Callable[[Sequence[Record]], Any]]:
        """What gives each column that `metadata=` adds."""
        return [COLUMNS[part] for part in self.metadata.values()]

    def check(self, given: Any = None) -> None:
        """Raises if it cannot be read, or rows of a schema not be written, as described."""
        if given is None:
            return
        if self.format == "arrow":
            raise JobError(
                f'{self.named()}: format="arrow" is for reading; write "json", "msgpack" or "bytes"'
            )
        from plait.connectors.kafka.writers import check_columns

        check_columns(self, given)
        if self.commit is not None:
            from plait.connectors.kafka.transactions import refuse_kafka_python

            with suppress(EnvironmentFailure):  # none is installed here; where it runs there may be
                refuse_kafka_python(self)

    def check_untimed(self) -> None:
        """Raises if it cannot be read without its event time."""
        if self.max_drift_us is not None:
            raise JobError(
                f"{self.named()}: max_drift= compares event times; name their column:"
                ' event_time="ts"'
            )

    def by_partition(self, column: str, max_jump_us: int, idle_us: int) -> Kafka | None:
        """The topic with the least time of its partitions as one more column."""
        parted = copy.copy(self)
        parted.schema = Schema((*self.schema.fields, Field(CLOCK, Type.INT64)))
        idle_us = idle_us or PARTS_IDLE_US
        parted.time = TimeOfParts(column, max_jump_us, idle_us, self.max_drift_us)
        return parted

    def open(self, given: Any = None, resume: Resume | None = None) -> Any:
        """A Reader at a position or the start; a Writer when given the Schema of the rows."""
        if isinstance(given, Schema):
            return self.open_writer(given, resume)
        return self.open_reader(given)

    def position_after(self, until: Any) -> Any:
        """Of the next offset of each partition, {0: 918_221, 1: 90_114}."""
        from plait.connectors.kafka.positions import Places

        if not isinstance(until, dict) or "next" in until:
            return until
        if self.end is not None:
            raise JobError(f"{self.named()}: end= cannot be combined with a backfill before it")
        next = check_start("until", until, ())
        assert isinstance(next, dict)
        return Places(next=next).to_plain()

    def open_reader(self, position: Any) -> Reader:
        """A reader at the start, or at a position: the next offset of each partition."""
        from plait.connectors.kafka.reader import KafkaReader

        return KafkaReader(self, position)

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """Whether it delivers exactly once in a job with `checkpoint=`."""
        return "decider" if self.delivery == "exactly_once" else "plain"

    def open_writer(self, schema: Schema, resume: Resume | None = None) -> Writer:
        """A writer; in a job with checkpoints (`resume`) of transactions."""
        from plait.connectors.kafka.writers import open_writer

        return open_writer(self, schema, resume)

    def open_letters(self, graph: Graph, resume: Resume | None = None) -> Writer:
        """A writer for the dead letters of a job, which its `write` takes as they are."""
        from plait.connectors.kafka.writers import open_letters

        return open_letters(self, graph, resume)

    def lock_out(self) -> None:
        """Ends what an earlier run left open. All sinks of a job do, before any is surveyed: they
        may share the topic of their progress, and it is read up to the first open transaction."""
        from plait.connectors.kafka.transactions import lock_out

        lock_out(self)

    def survey(self, seen: Any) -> Delivered | None:
        """Locks out writers of earlier runs, then says up to which boundary rows are there."""
        from plait.connectors.kafka.transactions import survey

        return survey(self, seen)


def check_commit(given: Any, delivery: Delivery, client: Any) -> Duration | None:
    """How often a sink commits between checkpoints."""
    if given is None:
        return None
    microseconds(given)
    if delivery != "exactly_once":
        raise JobError(
            f'Kafka: commit={given!r} is for delivery="exactly_once"; with "at_least_once" rows are'
            " visible at once"
        )
    if client == "kafka-python":
        raise JobError(
            f'Kafka: commit={given!r} needs client="confluent-kafka": kafka-python hangs when a'
            " broker goes away during a commit"
        )
    checked: Duration = given
    return checked


def check_metadata(given: Any) -> dict[str, Part]:
    """The columns that are added, and what each holds."""
    named = dict(given) if hasattr(given, "items") else {part: part for part in given}
    for name, part in named.items():
        if part not in get_args(Part):
            known = ", ".join(f'"{word}"' for word in get_args(Part))
            raise JobError(f"Kafka: metadata names {part!r}; a record has {known}")
        if not isinstance(name, str) or not name:
            raise JobError(f"Kafka: metadata= has {name!r} as the name of a column")
    return named


def key_column(records: Sequence[Record]) -> Any:
    import pyarrow as pa

    return pa.array([record.key for record in records], pa.binary())


def timestamp_column(records: Sequence[Record]) -> Any:
    import pyarrow as pa

    times = [None if r.timestamp_ms < 0 else r.timestamp_ms * 1000 for r in records]
    return pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))


def partition_column(records: Sequence[Record]) -> Any:
    import pyarrow as pa

    return pa.array([record.partition for record in records], pa.int64())


def offset_column(records: Sequence[Record]) -> Any:
    import pyarrow as pa

    return pa.array([record.offset for record in records], pa.int64())


def headers_column(records: Sequence[Record]) -> Any:
    import pyarrow as pa

    from plait.model.records import pack_object

    headers = [pack_object([(name, value) for name, value in r.headers]) for r in records]
    return pa.array(headers, pa.binary())


COLUMNS: dict[Part, Callable[[Sequence[Record]], Any]] = {
    "key": key_column,
    "timestamp": timestamp_column,
    "partition": partition_column,
    "offset": offset_column,
    "headers": headers_column,
}
