"""Records a second into a topic, by delivery, beside confluent-kafka's producer alone.

All write the same values of 100 bytes to one partition, `acks=all`, idempotent. `producer` is a
Python loop over that client. `at_least_once` is a job without checkpoints, `exactly_once` one with
a transaction for each checkpoint (every second), `commit_100ms` one for every 0.1 s. Time runs from
the first record that is read to the end of the run, so the last commit is in it, and the start is
not. `exactly_once_share` is the rate of the slower exact one over that of `at_least_once`.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import plait
from benchmarks.support.common import Options, budget_of, check_equal, interleave
from plait.connectors.kafka.client import connect
from plait.testing.broker import LocalBroker, broker

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = 100
CHECKED = 20_000
JOBS: dict[str, dict[str, Any]] = {
    "at_least_once": {},
    "exactly_once": {"checkpoint": True},
    "commit_100ms": {"checkpoint": True, "commit": "100ms"},
}


def value_of(number: int) -> bytes:
    return b"%0*d" % (BYTES, number)


class Values(plait.Source):
    """The values, and when the first was read."""

    def __init__(self, values: list[bytes]) -> None:
        import pyarrow as pa

        column = pa.array(values, pa.binary())
        self.batch = pa.RecordBatch.from_arrays([column], names=["value"])
        self.schema = plait.Schema.of({"value": bytes})
        self.began = 0.0

    def open(self, position: Any = None) -> plait.Reader:
        return ValuesReader(self, position or 0)


class ValuesReader(plait.Reader):
    def __init__(self, values: Values, at: int) -> None:
        self.values = values
        self.at = at

    def poll(self, max_rows: int) -> Any:
        self.values.began = self.values.began or time.perf_counter()
        if self.at >= self.values.batch.num_rows:
            return None
        some = self.values.batch.slice(self.at, max_rows)
        self.at += some.num_rows
        return some

    def position(self) -> Any:
        return self.at


def run_job(kafka: LocalBroker, values: list[bytes], how: dict[str, Any], topic: str) -> float:
    """Records a second."""
    source = Values(values)
    job = plait.Job(topic)
    sink = plait.Kafka(topic, format="bytes", servers=kafka.servers, commit=how.get("commit"))
    job.source(source, "values").sink(sink, "out")
    with tempfile.TemporaryDirectory() as folder:
        saved = plait.Checkpoint(folder, every="1s") if "checkpoint" in how else None
        plait.run(job, workers=2, checkpoint=saved, progress=False)
    return len(values) / (time.perf_counter() - source.began)


def run_producer(kafka: LocalBroker, values: list[bytes], topic: str) -> float:
    """The client of the sink, as it sets it."""
    producer: Any = connect(kafka.connection).producer()
    produce = producer.producer.produce
    began = time.perf_counter()
    for value in values:
        while True:
            try:
                produce(topic, value)
                break
            except BufferError:
                producer.producer.poll(0.05)
    producer.flush()
    seconds = time.perf_counter() - began
    producer.close()
    return len(values) / seconds


def run(options: Options) -> dict[str, Any]:
    rows = 400_000 if options.quick else 4_000_000
    with broker() as kafka:

        def fresh(name: str, run_it: Callable[[str], float]) -> float:
            return run_it(kafka.make_topic(name))

        runs: dict[str, Callable[[list[bytes], str], float]] = {
            "producer": lambda values, topic: run_producer(kafka, values, topic),
            **{
                name: partial(lambda how, values, topic: run_job(kafka, values, how, topic), how)
                for name, how in JOBS.items()
            },
        }
        few = [value_of(number) for number in range(CHECKED)]
        for name, run_it in runs.items():
            topic = kafka.make_topic("checked")
            run_it(few, topic)
            found = [record.value for record in kafka.read(topic, count=CHECKED)]
            check_equal(name, found, few)
        values = [value_of(number) for number in range(rows)]
        variants: dict[str, Callable[[], float]] = {
            name: partial(fresh, name, partial(run_it, values)) for name, run_it in runs.items()
        }
        samples = interleave(variants, options.repeat(3, 7), budget_of(options), "kafka_out")
    rates = {name: sample.median for name, sample in samples.items()}
    exact = min(rates["exactly_once"], rates["commit_100ms"])
    return {
        "exactly_once_share": round(exact / rates["at_least_once"], 3),
        "records_per_s": {name: round(rate) for name, rate in rates.items()},
        "all": {name: [round(value) for value in each.values] for name, each in samples.items()},
        "bytes": BYTES,
        "records": rows,
        "unit": "records a second into one partition, broker on the same machine",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    rates = {name: rate / 1e3 for name, rate in figures["records_per_s"].items()}
    bars(file, [("Into a topic", "thousand records a second", {"": rates})])
