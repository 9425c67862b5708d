"""Kafka in and out of a job on two nodes of a Ray cluster: the output is that of a plain loop."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.testing.broker import broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.integration

ROWS = 2_000


@pytest.mark.parametrize("exactly", ["", "checkpoints", "50ms"])
def test_on_two_nodes(entry_point: Callable[..., Any], tmp_path: Path, exactly: str) -> None:
    """With 50ms the output is committed between checkpoints."""
    with broker() as kafka:
        topic_in, topic_out = kafka.make_topic("in", 3), kafka.make_topic("out")
        rows = [{"k": n * n % 11, "n": n} for n in range(ROWS)]
        kafka.produce(topic_in, [json.dumps(row).encode() for row in rows])
        job = plait.Job("kafka-on-nodes")
        source = plait.Kafka(
            topic_in, schema={"k": int, "n": int}, servers=kafka.servers, end="latest"
        )
        counted = job.source(source).key_by("k").aggregate(n=plait.last("n"), c=plait.count())
        commit = exactly if exactly.endswith("ms") else None
        sink = plait.Kafka(topic_out, key="k", servers=kafka.servers, commit=commit)
        counted.sink(sink, "out")
        counts: dict[int, int] = {}
        wanted = []
        for row in plait.stream(source).collect():
            counts[row.k] = counts.get(row.k, 0) + 1
            wanted.append({"k": row.k, "n": row.n, "c": counts[row.k]})
        saved = {"checkpoint": plait.Checkpoint(str(tmp_path), every="200ms")} if exactly else {}
        entry_point(job, **saved)
        found = [json.loads(record.value or b"") for record in kafka.read(topic_out, count=ROWS)]
        assert found == wanted
