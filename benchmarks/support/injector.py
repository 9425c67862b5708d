"""Produces records by a schedule, in a process of its own, and counts them.

    python -m benchmarks.support.injector SERVERS TOPIC PARTITIONS IDLE TRANSACTIONS FILE PHASES

PHASES is JSON: a list of [name, seconds, kind, rate, to]. Records go to the partitions in turn, the
last IDLE of them get none. With TRANSACTIONS = 1 what was sent is committed ten times a second. The
file gets a row of two doubles every 10 ms: the time (monotonic, the same clock for all processes)
and how many records were handed to the producer so far. Whatever it was due to send, that count is
what really went.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import time
from pathlib import Path

TICK_S = 0.01
COMMIT_S = 0.1
VALUE = b"x" * 60


def rate_at(kind: str, rate: float, to: float, share: float, at: float) -> float:
    """Records a second in a phase, after a share of it and `at` seconds."""
    match kind:
        case "ramp":
            return rate + (to - rate) * share
        case "sine":  # a period of 10 s, from half to one and a half of the rate
            return rate * (1.0 + 0.5 * math.sin(2.0 * math.pi * at / 10.0))
        case "bursts":  # 0.2 s of every second
            return to if at % 1.0 < 0.2 else rate
        case _:
            return rate


def main() -> None:
    import confluent_kafka

    servers, topic, partitions, idle, transactions, file, text = sys.argv[1:]
    used = int(partitions) - int(idle)
    settings = {"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True}
    if transactions == "1":
        settings["transactional.id"] = f"injector-{topic}"
    producer = confluent_kafka.Producer(settings)
    if transactions == "1":
        producer.init_transactions(30.0)
        producer.begin_transaction()
    print("ready", flush=True)
    if not sys.stdin.readline():  # whoever asked for it is gone
        return
    sent, due, committed = 0, 0.0, time.monotonic()
    with Path(file).open("wb", buffering=0) as counts:
        for _, seconds, kind, rate, to in json.loads(text):
            began = last = time.monotonic()
            while (now := time.monotonic()) - began < seconds:
                due += rate_at(kind, rate, to, (now - began) / seconds, now - began) * (now - last)
                last = now
                while sent < int(due):
                    producer.produce(topic, VALUE, partition=sent % used)
                    sent += 1
                producer.poll(0)
                counts.write(struct.pack("<dd", time.monotonic(), sent))
                if transactions == "1" and now - committed > COMMIT_S:
                    producer.commit_transaction(30.0)
                    producer.begin_transaction()
                    committed = now
                time.sleep(max(0.0, TICK_S - (time.monotonic() - now)))
    if transactions == "1":
        producer.commit_transaction(30.0)
    producer.flush(30.0)


if __name__ == "__main__":
    main()
