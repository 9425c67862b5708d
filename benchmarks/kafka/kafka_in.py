"""Reading a topic of JSON records: records a second and processor time, beside the floors.

A job reads a topic live and drops what it reads. Beside it the client alone, and decoding alone.
All records must arrive, those of a partition in order.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import plait
from benchmarks.support.common import (
    CheckFailed,
    Options,
    Sample,
    budget_of,
    interleave,
    progress,
)
from plait.connectors.kafka.client import Record
from plait.connectors.kafka.formats import decoder_of
from plait.testing.broker import LocalBroker, broker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PARTITIONS = (1, 4, 16)
BATCH = 4096
COLUMNS = {"user": str, "page": str, "n": int, "price": float, "seen": bool}


def value(n: int) -> bytes:
    """About a hundred bytes."""
    row = {
        "user": f"user-{n * 7919 % 100_000}",
        "page": f"/products/{n % 977}/details",
        "n": n,
        "price": n % 1000 / 4,
        "seen": n % 3 == 0,
    }
    return json.dumps(row).encode()


class Stopwatch(plait.Sink):
    """Drops rows; notes the time from the first batch to the last, and the numbers if asked to."""

    def __init__(self, keep: bool = False) -> None:
        self.keep = keep
        self.rows = self.first_rows = 0
        self.marks: list[tuple[float, float]] = []
        self.batches: list[Any] = []

    def open(self, schema: plait.Schema) -> plait.Writer:
        return StopwatchWriter(self)

    def note(self, rows: int) -> None:
        if not self.marks:
            self.first_rows = rows
        self.rows += rows
        self.marks[1:] = [(time.perf_counter(), time.process_time())]
        if len(self.marks) == 1:
            self.marks *= 2

    def figures(self) -> tuple[float, float]:
        """Records a second, and microseconds of processor time for a record."""
        (began, cpu_began), (ended, cpu_ended) = self.marks
        rows = self.rows - self.first_rows
        return rows / (ended - began), (cpu_ended - cpu_began) / rows * 1e6


class StopwatchWriter(plait.Writer):
    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def write(self, batch: Any) -> None:
        self.watch.note(batch.num_rows)
        if self.watch.keep:
            self.watch.batches.append(batch)

    def close(self) -> None:
        """Nothing is held."""


def read(
    servers: str, topic: str, count: int, workers: int, format: str = "json", keep: bool = False
) -> Stopwatch:
    """A job that reads so many records of a topic."""
    watch = Stopwatch(keep)
    schema = None if format == "bytes" else COLUMNS
    source = plait.Kafka(topic, schema=schema, servers=servers, format=format)  # type: ignore[arg-type]
    made = plait.stream(source, epoch_records=BATCH).sink(watch)
    made.run(workers=workers, limit=count, progress=False)
    return watch


def consume(servers: str, topic: str, partitions: int, count: int) -> Stopwatch:
    """The client alone."""
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "floor",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    watch = Stopwatch()
    try:
        client.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while watch.rows < count:
            if messages := client.consume(BATCH, 0.01):
                watch.note(len(messages))
    finally:
        client.close()
    return watch


def decode(values: Sequence[bytes]) -> tuple[float, float]:
    """Decoding alone."""
    decoder = decoder_of("json", plait.Schema.of(COLUMNS), None)
    began, cpu_began = time.perf_counter(), time.process_time()
    for at in range(0, len(values), BATCH):
        decoder(values[at : at + BATCH])
    spent, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    return len(values) / spent, cpu / len(values) * 1e6


def check(servers: str, topic: str, partitions: int, count: int) -> None:
    import numpy as np

    batches = read(servers, topic, count, 2, keep=True).batches
    numbers = np.concatenate([batch.column("n").to_numpy() for batch in batches])
    if not np.array_equal(np.sort(numbers), np.arange(count)):
        raise CheckFailed(f"{partitions} partitions: records are missing, or there twice")
    for partition in range(partitions):
        mine = numbers[numbers % partitions == partition]
        if not (np.diff(mine) > 0).all():
            raise CheckFailed(f"partition {partition} of {partitions} is out of order")


def fill(kafka: LocalBroker, partitions: int, count: int) -> str:
    topic = kafka.make_topic("bench", partitions)
    kafka.produce(topic, (Record(n % partitions, 0, 0, None, value(n), ()) for n in range(count)))
    return topic


def run(options: Options) -> dict[str, Any]:
    count = options.pick(100_000, 1_000_000)
    with broker() as kafka:
        topics = {}
        for partitions in PARTITIONS:
            progress(f"filling {partitions} partitions")
            topics[partitions] = fill(kafka, partitions, count)
            check(kafka.servers, topics[partitions], partitions, count)
        cpu: dict[str, list[float]] = {}

        def both(name: str, measure: Callable[[], tuple[float, float]]) -> float:
            rate, cpu_us = measure()
            cpu.setdefault(name, []).append(cpu_us)
            return rate

        def of_job(topic: str, workers: int, format: str) -> tuple[float, float]:
            return read(kafka.servers, topic, count, workers, format).figures()

        def of_client(topic: str, partitions: int) -> tuple[float, float]:
            return consume(kafka.servers, topic, partitions, count).figures()

        measures: dict[str, Callable[[], tuple[float, float]]] = {
            "decode": partial(decode, [value(n) for n in range(count)])
        }
        for partitions, topic in topics.items():
            measures[f"consume_p{partitions}"] = partial(of_client, topic, partitions)
            for workers in (1, 2):
                name = f"json_p{partitions}_w{workers}"
                measures[name] = partial(of_job, topic, workers, "json")
        measures["bytes_p4_w2"] = partial(of_job, topics[4], 2, "bytes")
        variants = {name: partial(both, name, measure) for name, measure in measures.items()}
        samples = interleave(variants, options.repeat(3, 9), budget_of(options), "kafka_in")
    return {
        "records": count,
        "bytes": len(value(count // 2)),
        "rounds": len(samples["decode"].values),
    } | {
        name: {
            "krecords_per_s": round(sample.median / 1e3, 1),
            "spread": round(sample.spread, 3),
            "cpu_us": round(Sample(tuple(cpu[name])).median, 3),
        }
        for name, sample in samples.items()
    }


def plot(figures: dict[str, Any], file: str) -> None:
    """Processor time for a record, by what reads it."""
    import matplotlib.pyplot as plt

    names = [name for name, figure in figures.items() if isinstance(figure, dict)]
    shown, axes = plt.subplots(figsize=(7, 4))
    axes.barh(names, [figures[name]["cpu_us"] for name in names])
    axes.set_xlabel("microseconds of processor time for a record")
    axes.invert_yaxis()
    shown.tight_layout()
    shown.savefig(file)
    plt.close(shown)
