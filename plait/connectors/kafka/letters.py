"""Dead letters as records of a topic: key and value as they came, and headers that say the rest.

A record that a Kafka source could not take goes on with its own bytes. Of a record that failed
further on there are only the columns that its operator got: the value is then these as JSON, and
`plait-content` says so. Where it came from is known if the source adds partition and offset as
columns (`metadata=`) and they are still there. `parse_letter` reads what `LetterRows` writes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from plait.connectors.kafka.kafka import Kafka
from plait.errors import JobError
from plait.graph.operators import SourceOp
from plait.results.failures import json_text
from plait.results.result import BadLine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.connectors.kafka.client import Record
    from plait.graph.operators import Graph
    from plait.results.result import DeadLetter

PREFIX = "plait-"
REPLAYED = "plait-replayed"
"""The header that a record keeps when it is read again: how often that was."""
MOST_BYTES = 900_000
"""Values that are longer are not repeated: with headers a broker might refuse them."""
Content = Literal["raw", "json", "left out"]
Headers = list[tuple[str, bytes | None]]
Row = tuple[bytes | None, bytes | None, Headers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A record that failed, as far as it is known."""

    key: bytes | None = None
    value: bytes | None = None
    content: Content = "raw"
    headers: Sequence[tuple[str, bytes | None]] = ()
    topic: str = ""
    partition: int = -1
    offset: int = -1


class LetterRows:
    """Makes records of the letters of a job."""

    def __init__(self, sink: Kafka, graph: Graph) -> None:
        if sink.key is not None or sink.decode is not None or sink.format != "json":
            raise JobError(
                f"{sink.named()}: dead letters have key and value as they came; leave out key=,"
                " format= and decode="
            )
        self.job = graph.name
        self.sources: Mapping[str, Any] = {
            op.label: op.source for op in graph.operators if isinstance(op, SourceOp)
        }

    def of(self, letters: Sequence[DeadLetter]) -> list[Row]:
        return [self.row_of(letter) for letter in letters]

    def row_of(self, letter: DeadLetter) -> Row:
        origin = origin_of(letter.record, self.sources.get(letter.source))
        value, content = origin.value, origin.content
        if value is not None and len(value) > MOST_BYTES:
            value, content = None, "left out"
        before = [header for header in origin.headers if header[0] == REPLAYED]
        headers: Headers = [h for h in origin.headers if not h[0].startswith(PREFIX)]
        told = {
            "job": self.job,
            "operator": letter.operator,
            "at": letter.at,
            "source": letter.source,
            "row": letter.row,
            "error": letter.error,
            "content": content,
        }
        if origin.topic:
            told["topic"] = origin.topic
        if origin.offset >= 0:
            told["partition"], told["offset"] = origin.partition, origin.offset
        headers += [(PREFIX + name, str(given).encode()) for name, given in told.items()]
        headers.append(before[-1] if before else (REPLAYED, b"0"))
        return origin.key, value, headers


def origin_of(record: Any, source: Any) -> Origin:
    """What is known of the record of a letter."""
    if is_raw(record):
        return Origin(
            key=record["key"],
            value=record["value"],
            headers=[(name, value) for name, value in record["headers"]],
            topic=record["topic"],
            partition=record["partition"],
            offset=record["offset"],
        )
    if isinstance(record, BadLine):
        return Origin(value=record.text.encode())
    text = json_text(record)
    value = None if text is None else text.encode()
    found = Origin(value=value, content="left out" if value is None else "json")
    if not isinstance(source, Kafka) or record is None:
        return found
    columns = {part: column_of(record, name) for name, part in source.metadata.items()}
    place = {}
    if columns.get("partition") is not None and columns.get("offset") is not None:
        place = {"partition": columns["partition"], "offset": columns["offset"]}
    return Origin(
        key=columns.get("key"),
        value=value,
        content=found.content,
        headers=columns.get("headers") or (),
        topic=source.topic,
        **place,
    )


def is_raw(record: Any) -> bool:
    """Whether it is what a Kafka source gives of a record that it could not take."""
    return isinstance(record, dict) and {"topic", "partition", "offset", "key", "value"} <= set(
        record
    )


def column_of(record: Any, name: str) -> Any:
    return record.get(name) if isinstance(record, dict) else getattr(record, name, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter as it is in a topic."""

    partition: int
    offset: int
    at_ms: int
    """When it was written."""
    key: bytes | None
    value: bytes | None
    told: Mapping[str, str] = field(default_factory=dict)
    """What plait's headers say, without `plait-`."""
    headers: Sequence[tuple[str, bytes | None]] = ()
    """Those that the record had itself."""

    @property
    def replayed(self) -> int:
        """How often it was read again by now."""
        text = self.told.get("replayed", "0")
        return int(text) if text.isdecimal() else 0

    @property
    def raw(self) -> bool:
        """Whether key and value are the record's own."""
        return self.told.get("content", "raw") == "raw"


def parse_letter(record: Record) -> Letter:
    """The letter that a record of a topic is; any record is one, perhaps of nothing known."""
    told = {
        name.removeprefix(PREFIX): (value or b"").decode(errors="replace")
        for name, value in record.headers
        if name.startswith(PREFIX)
    }
    return Letter(
        partition=record.partition,
        offset=record.offset,
        at_ms=record.timestamp_ms if record.timestamp_ms >= 0 else int(time.time() * 1000),
        key=record.key,
        value=record.value,
        told=told,
        headers=[header for header in record.headers if not header[0].startswith(PREFIX)],
    )
