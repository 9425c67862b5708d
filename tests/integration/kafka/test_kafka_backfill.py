"""A backfill from the beginning of a topic, or from anything else, goes live at an offset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import plait

if TYPE_CHECKING:
    from pathlib import Path

    from plait.testing.broker import LocalBroker

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("from_topic", [True, False])
def test_a_topic_goes_on_at_its_offsets(
    kafka: LocalBroker, tmp_path: Path, from_topic: bool
) -> None:
    topic = kafka.make_topic("clicks", partitions=2)
    rows = [{"user": n % 5, "n": n} for n in range(400)]
    plait.stream(rows[:300]).sink(plait.Kafka(topic, key="user", servers=kafka.servers)).run()
    ends = dict.fromkeys((0, 1), 0)
    for record in kafka.read(topic):
        ends[record.partition] = max(ends[record.partition], record.offset + 1)
    schema = {"user": int, "n": int}
    job = plait.Job("clicks")
    live = job.source(plait.Kafka(topic, schema, servers=kafka.servers), "clicks")
    live.key_by("user").aggregate(total=plait.sum("n")).sink(plait.Files(tmp_path / "out", "jsonl"))
    history = plait.Kafka(topic, schema, servers=kafka.servers, end=ends)
    done = plait.backfill(
        job,
        history={"clicks": history if from_topic else rows[:300]},
        until={"clicks": ends},
        checkpoint=tmp_path / "saved",
    )
    assert done.rows == 300
    plait.stream(rows[300:]).sink(plait.Kafka(topic, key="user", servers=kafka.servers)).run()
    running = plait.start(job, checkpoint=tmp_path / "saved", start=done.savepoint)
    while running.engine.records_read() < 100:
        pass
    running.stop()
    running.wait()
    found = {}
    for path in sorted((tmp_path / "out").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["user"]] = row["total"]
    assert found == {user: sum(r["n"] for r in rows if r["user"] == user) for user in range(5)}
