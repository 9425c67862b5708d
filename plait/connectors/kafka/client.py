"""The port to Kafka clients: what a source and a sink of plait ask of one.

Two libraries implement it, `kafka_confluent.py` and `kafka_python.py`; nothing else imports them.
Nothing here waits longer than it is told to, and an error says what is wrong in plait's words.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from plait.connectors.kafka.settings import choose_client
from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.connectors.kafka.settings import Connection

START_S = 10.0
"""How long brokers may take to answer when a client starts."""


class Record(NamedTuple):
    """A record of a topic as it came."""

    partition: int
    offset: int
    timestamp_ms: int
    """-1: it has none."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


PARTITION = itemgetter(0)
PLACE = itemgetter(0, 1)
"""The partition of a record, and its offset too: half the time of a loop over attributes."""


def ends_of(records: Sequence[Record]) -> dict[int, int]:
    """The offset after the last record of each partition.

    >>> ends_of([Record(0, 7, 0, None, None, ()), Record(1, 3, 0, None, None, ())])
    {0: 8, 1: 4}
    """
    return {partition: offset + 1 for partition, offset in dict(map(PLACE, records)).items()}


class Bounds(NamedTuple):
    """The offset of the first record of a partition, and that after its last committed one."""

    low: int
    high: int


class OffsetsLost(EnvironmentFailure):
    """The records at an offset are no longer there."""

    def __init__(self, partition: int) -> None:
        super().__init__(f"partition {partition}")
        self.partition = partition


class Consumer(Protocol):
    """Reads the partitions of one topic that it is told to, committed records only."""

    def partitions(self) -> list[int]:
        """Those of the topic, ascending; EnvironmentFailure if there is no such topic."""
        ...

    def partitions_now(self, patience_s: float) -> list[int]:
        """The same, asked anew and not waited for any longer; none if there is no such topic."""
        ...

    def bounds(
        self, partitions: Sequence[int], patience_s: float = START_S
    ) -> dict[int, Bounds]: ...

    def offsets_at(self, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int | None]:
        """The first offset whose record has this time or a later one; None: there is none."""
        ...

    def assign(self, offsets: Mapping[int, int]) -> None:
        """From now on exactly these partitions, from these offsets."""
        ...

    def add(self, offsets: Mapping[int, int]) -> None:
        """These partitions too, from these offsets."""
        ...

    def fetch(self, most: int) -> list[Record]:
        """Records that have come, without waiting; offsets of a partition ascend."""
        ...

    def reached(self, partition: int) -> int:
        """The offset up to which a partition has been read, records that are not handed out
        (transaction marks, compacted ones) included; -1: not known yet."""
        ...

    def highwater(self, partition: int) -> int:
        """The offset after the last record of a partition, committed or not, as the last fetch
        said; -1: not known. Any thread may ask."""
        ...

    def hold(self, partition: int, held: bool) -> None:
        """Whether records of a partition are to wait."""
        ...

    def away_s(self) -> float:
        """For how long no broker has answered; raises if brokers refuse us."""
        ...

    def close(self) -> None: ...


class Producer(Protocol):
    """Writes records, in order, idempotently and to all replicas; perhaps in transactions."""

    def begin(self) -> None:
        """Starts a transaction."""
        ...

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        """Hands on a record. Partition -1: that of its key; time 0: now."""
        ...

    def send_rows(self, topic: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """`send` of each: a key, a value and perhaps headers."""
        ...

    def flush(self) -> None:
        """Returns when all records are acknowledged."""
        ...

    def commit(self) -> None:
        """Ends the transaction. `Unsure`: it may have been committed, or not."""
        ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Unsure(EnvironmentFailure):
    """A commit of which it is not known whether it took place."""


class EndsFinder(Protocol):
    """Looks up where partitions end, on a connection of its own."""

    def find(self, partitions: Sequence[int]) -> dict[int, int]:
        """The offsets after the last records, committed or not. Waits for a second at most;
        partitions of which nothing was heard by then are left out."""
        ...

    def close(self) -> None: ...


class Client(Protocol):
    """Makes consumers and producers for one cluster."""

    def consumer(self, topic: str) -> Consumer: ...

    def ends_finder(self, topic: str) -> EndsFinder: ...

    def producer(self, transactional_id: str = "") -> Producer:
        """With an id: ready for transactions, and every older producer of that id is locked out."""
        ...

    def partitions_of(self, topic: str) -> int:
        """How many the topic has; 0: there is no such topic."""
        ...

    def make_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Makes a topic if it is not there."""
        ...


def absent(connection: Connection, topic: str) -> str:
    """Words for a topic that the client does not find. kafka-python does not tell it from one that
    a user may not see."""
    python = choose_client(connection.client) == "kafka-python"
    unseen = ", or we may not see it" * bool(python and connection.settings)
    return f'there is no topic "{topic}"{unseen}'


def connect(connection: Connection) -> Client:
    """The client of a connection; brokers are asked when it is used."""
    if choose_client(connection.client) == "confluent-kafka":
        from plait.connectors.kafka.kafka_confluent import ConfluentClient

        return ConfluentClient(connection)
    from plait.connectors.kafka.kafka_python import PythonClient

    return PythonClient(connection)
