"""Writes stamped records into a topic at a rate, and reads what a job makes of them.

    python -m benchmarks.kafka.client SERVERS TOPIC_IN TOPIC_OUT RATE SECONDS

A process of its own, so that the job does not wait for it. A record has the time at which it was
due (the monotonic clock of the machine); its latency ends when a reader of committed records has
the record of the job. Prints one line of JSON: the percentiles, without the first second.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from plait.connectors.kafka.client import Producer, connect
from plait.connectors.kafka.settings import Connection

WARM_S = 1.0
TICK_S = 0.001
PATIENCE_S = 60.0


def write(producer: Producer, topic: str, began: float, rate: int, count: int) -> None:
    """Every record when it is due, or as soon after it as this process comes to it."""
    sent = 0
    while sent < count:
        due = min(count, int((time.monotonic() - began) * rate))
        for number in range(sent, due):
            at_us = int((began + number / rate) * 1e6)
            producer.send(topic, None, b'{"n": %d, "at": %d}' % (number, at_us))
        sent = max(sent, due)
        time.sleep(TICK_S)
    producer.flush()


def measure(servers: str, topic_in: str, topic_out: str, rate: int, seconds: float) -> Any:
    connection = Connection(servers=servers, client="confluent-kafka", settings={"linger.ms": 1})
    producer = connect(connection).producer()
    consumer = connect(Connection(servers=servers, client="confluent-kafka")).consumer(topic_out)
    consumer.assign({0: consumer.bounds([0])[0].high})
    count = int(rate * seconds)
    began = time.monotonic()
    writer = threading.Thread(target=write, args=(producer, topic_in, began, rate, count))
    writer.start()
    latencies: list[float] = []
    numbers: list[int] = []
    until = time.monotonic() + seconds + PATIENCE_S
    while len(numbers) < count and time.monotonic() < until:
        records = consumer.fetch(10_000)
        now_us = time.monotonic() * 1e6
        for record in records:
            row = json.loads(record.value or b"")
            numbers.append(row["n"])
            latencies.append(now_us - row["at"])
        if not records:
            time.sleep(TICK_S)
    writer.join()
    producer.close()
    consumer.close()
    if numbers != list(range(count)):
        return {"error": f"{len(numbers)} of {count} records came, or in another order"}
    kept = sorted(latencies[int(rate * WARM_S) :])
    at = {f"p{percent:g}_ms": percent for percent in (50, 99, 99.9)}
    return {name: round(kept[int(len(kept) * p / 100)] / 1000, 2) for name, p in at.items()}


if __name__ == "__main__":
    servers, topic_in, topic_out, rate, seconds = sys.argv[1:]
    print(json.dumps(measure(servers, topic_in, topic_out, int(rate), float(seconds))))
