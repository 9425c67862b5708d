"""Kafka in and out with checkpoints, for `test_kafka_kills.py`, which kills the process that runs
it, again and again.

    python killed_kafka_job.py SERVERS TOPIC_IN TOPIC_OUT LETTERS CHECKPOINTS EVERY [COMMIT [live]]

A live one reads the topic for ever, its partitions as they come.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import plait

ROWS_PER_S = 8_000


class Slowly(plait.Source):
    """A topic, read at a rate."""

    def __init__(self, topic: plait.Kafka) -> None:
        self.topic = topic
        self.schema = topic.schema
        self.bounded = topic.bounded

    def open(self, position: Any = None) -> plait.Reader:
        return SlowReader(self.topic.open(position))


class SlowReader(plait.Reader):
    def __init__(self, reader: plait.Reader) -> None:
        self.reader = reader
        self.read = 0
        self.began = time.monotonic()

    def poll_with_bad(self, max_rows: int) -> Any:
        left = int((time.monotonic() - self.began) * ROWS_PER_S) + 1 - self.read
        if left <= 0:
            return plait.Wait(0.001)
        rows = self.reader.poll_with_bad(min(left, max_rows))
        if not isinstance(rows, plait.Wait) and rows is not None:
            self.read += len(rows)
        return rows

    def position(self) -> Any:
        return self.reader.position()

    def close(self) -> None:
        self.reader.close()


def build(
    servers: str, topic_in: str, topic_out: str, letters: str, commit: str | None, live: bool
) -> plait.Job:
    job = plait.Job("killed", dead_letters=plait.Kafka(letters, servers=servers))
    columns = {"k": int, "n": int}
    numbers: plait.Source
    if live:
        numbers = plait.Kafka(topic_in, schema=columns, servers=servers)
    else:
        numbers = Slowly(plait.Kafka(topic_in, schema=columns, servers=servers, end="latest"))
    rows = job.source(numbers, on_error="dead_letter")
    totals = rows.key_by("k").aggregate(n=plait.last("n"), count=plait.count())
    totals.sink(plait.Kafka(topic_out, key="k", servers=servers, commit=commit), "out")
    return job


if __name__ == "__main__":
    servers, topic_in, topic_out, letters, checkpoints, every, *more = sys.argv[1:]
    print("starts", flush=True)
    saved = plait.Checkpoint(checkpoints, every=every)
    commit = more[0] if more else None
    job = build(servers, topic_in, topic_out, letters, commit, live="live" in more)
    result = plait.run(job, workers=2, checkpoint=saved)
    print(f"read {result.account.read}", flush=True)
