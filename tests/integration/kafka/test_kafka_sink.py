"""Topics as sinks: records in the order of the rows, whatever happens to the broker."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.connectors.base import Resume
from plait.connectors.kafka.client import Record
from plait.connectors.kafka.letters import Letter, parse_letter
from plait.connectors.kafka.transactions import TransactionWriter
from plait.model.schema import Schema
from plait.testing.nodes import run_on_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from plait.testing.broker import LocalBroker

pytestmark = pytest.mark.integration

SCHEMA = Schema.of({"user": str, "n": int})


def rows(count: int) -> list[dict[str, Any]]:
    return [{"user": f"u{n % 7}", "n": n} for n in range(count)]


def by_key(records: list[Record]) -> dict[bytes | None, list[int]]:
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for record in records:
        found[record.key].append(json.loads(record.value or b"")["n"])
    return found


def plain_loop(count: int) -> dict[bytes | None, list[int]]:
    return {f"u{k}".encode(): list(range(k, count, 7)) for k in range(7)}


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python"])
@pytest.mark.parametrize("workers", [1, 3])
def test_keys_keep_their_order(kafka: LocalBroker, client: Any, workers: int) -> None:
    topic = kafka.make_topic("out", 3)
    sink = plait.Kafka(topic, key="user", servers=kafka.servers, client=client)
    result = plait.stream(rows(2_000)).sink(sink, "out").run(workers=workers)
    assert result.outputs["out"] == 2_000
    assert by_key(kafka.read(topic)) == plain_loop(2_000)


def test_on_two_nodes(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("out", 2)
    job = plait.stream(rows(2_000)).sink(plait.Kafka(topic, key="user", servers=kafka.servers))
    run_on_nodes(job, 2, workers=2)
    assert by_key(kafka.read(topic)) == plain_loop(2_000)


def test_what_is_written_reads_back(kafka: LocalBroker) -> None:
    import datetime

    record = {
        "text": 'ä "\\ \x00',
        "n": -(2**63),
        "x": float("inf"),
        "raw": b"\xff",
        "at": datetime.datetime(2024, 3, 1, 12, 0, 0, 5, datetime.UTC),
        "flag": True,
    }
    for format in ("json", "msgpack"):
        topic = kafka.make_topic(format)
        given = plait.stream([record])
        given.sink(plait.Kafka(topic, format=format, servers=kafka.servers)).run()
        source = plait.Kafka(
            topic,
            schema=given.schema,
            format=format,
            servers=kafka.servers,
            end="latest",
        )
        (row,) = plait.stream(source).collect()
        assert {name: getattr(row, name) for name in record} == record


def test_what_cannot_be_written_is_refused(kafka: LocalBroker) -> None:
    given = plait.stream(rows(1))
    with pytest.raises(plait.SinkError, match="is not a column"):
        given.sink(plait.Kafka("out", key="absent"))
    with pytest.raises(plait.SinkError, match="one column of bytes"):
        given.sink(plait.Kafka("out", format="bytes"))
    with pytest.raises(plait.SinkError, match='there is no topic "absent"'):
        given.sink(plait.Kafka("absent", servers=kafka.servers)).run()
    with pytest.raises(plait.SinkError, match="no Kafka broker answers"):
        plait.stream(rows(1)).sink(plait.Kafka("out", servers="127.0.0.1:1")).run()


def test_the_broker_restarts_while_rows_are_written(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("outage", 2)
    writer = plait.Kafka(topic, key="user", servers=kafka.servers).open(SCHEMA)
    for part in range(6):
        numbers = range(part * 500, part * 500 + 500)
        if part == 3:
            kafka.kill()
        writer.write(user_batch(numbers))
        if part == 3:
            kafka.start()
    assert writer.close() == 3_000
    assert by_key(kafka.read(topic)) == plain_loop(3_000)


def user_batch(numbers: Iterable[int]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(
        [{"user": f"u{n % 7}", "n": n} for n in numbers], schema=SCHEMA.to_arrow()
    )


def test_dead_letters_to_a_topic(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("letters")
    job = plait.Job("letters", dead_letters=plait.Kafka(topic, servers=kafka.servers))
    job.source(rows(10)).map(divide, schema={"n": int}, on_error="dead_letter").sink(
        plait.Discard()
    )
    job.run()
    letters = [parse_letter(record) for record in kafka.read(topic)]
    assert [json.loads(letter.value or b"")["n"] for letter in letters] == [0, 5]
    assert letters[0].told["error"].startswith("ZeroDivisionError")
    assert letters[1].told["operator"] == "map"
    assert (letters[1].told["job"], letters[1].told["row"]) == ("letters", "6")


@pytest.mark.parametrize("exactly", [False, True])
def test_dead_letters_are_the_records_as_they_came(
    kafka: LocalBroker, tmp_path: Path, exactly: bool
) -> None:
    topic, letters = kafka.make_topic("in"), kafka.make_topic("letters")
    traced = [("trace", b"7"), ("empty", None)]
    kafka.produce(
        topic,
        [
            b'{"n": 1}',
            Record(0, 0, 0, b"k\xff", b"\xffnot JSON", traced),
            Record(0, 0, 0, None, None, [("plait-replayed", b"2")]),
            b'{"n": 0}',
        ],
    )
    job = plait.Job("letters", dead_letters=plait.Kafka(letters, servers=kafka.servers))
    source = plait.Kafka(
        topic,
        schema={"n": int},
        servers=kafka.servers,
        end="latest",
        metadata=("partition", "offset"),
    )
    numbers = job.source(source, "in", on_error="dead_letter")
    numbers.map(divide_ten, schema={"n": int}, on_error="dead_letter").sink(plait.Discard())
    job.run(checkpoint=tmp_path if exactly else None)
    found = sorted((parse_letter(r) for r in kafka.read(letters, count=3)), key=offset_of)
    first, second, third = found
    assert (first.key, first.value) == (b"k\xff", b"\xffnot JSON")
    assert first.headers == traced
    place = [first.told[name] for name in ("topic", "partition", "offset", "replayed", "content")]
    assert place == [topic, "0", "1", "0", "raw"]
    assert (second.key, second.value, second.replayed) == (None, None, 2)
    assert third.told["content"] == "json"
    assert json.loads(third.value or b"")["n"] == 0
    assert (third.told["operator"], third.told["offset"]) == ("map", "3")


def divide_ten(row: Any) -> Any:
    return {"n": 10 // row.n}


def offset_of(letter: Letter) -> int:
    """Of the record that it is of."""
    return int(letter.told["offset"])


def divide(row: Any) -> Any:
    return {"n": 10 // (row.n % 5)}


def transactional(kafka: LocalBroker, topic: str, **given: Any) -> plait.Kafka:
    return plait.Kafka(topic, servers=kafka.servers, id=topic, progress="progress", **given)


def batch_of(*numbers: int) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(
        [{"user": "ann", "n": n} for n in numbers], schema=SCHEMA.to_arrow()
    )


def numbers_in(kafka: LocalBroker, topic: str, count: int = 0) -> list[int]:
    return [json.loads(record.value or b"")["n"] for record in kafka.read(topic, count=count)]


def writer_at(sink: plait.Kafka, boundary: int = 0, position: Any = None) -> TransactionWriter:
    found = sink.open(SCHEMA, Resume(position=position, boundary=boundary, run="r"))
    assert isinstance(found, TransactionWriter)
    return found


def test_rows_are_visible_when_they_are_committed(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("exact")
    sink = transactional(kafka, topic)
    assert sink.survey(None) is None
    writer = writer_at(sink)
    writer.write(batch_of(1, 2))
    writer.mark(5)
    writer.write(batch_of(3))
    writer.prepare(5)
    assert numbers_in(kafka, topic) == []
    writer.commit(5)
    writer.commit(5)
    assert numbers_in(kafka, topic, 2) == [1, 2]
    writer.mark(7)  # its checkpoint is given up, so its rows belong to the next one
    writer.write(batch_of(4))
    writer.mark(9)
    writer.prepare(9)
    writer.commit(9)
    assert numbers_in(kafka, topic, 4) == [1, 2, 3, 4]
    writer.write(batch_of(5))
    assert writer.abort() == 5
    assert numbers_in(kafka, topic, 4) == [1, 2, 3, 4]
    assert sink.survey(None) == plait.Delivered(9)


def test_an_older_run_is_locked_out(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("exact")
    sink = transactional(kafka, topic)
    old = writer_at(sink)
    old.write(batch_of(1))
    old.mark(3)
    old.prepare(3)
    assert sink.survey(None) is None  # the next run begins
    with pytest.raises(plait.SinkError, match="another run"):
        old.commit(3)
    old.abort()
    assert numbers_in(kafka, topic) == []
    new = writer_at(sink)
    new.write(batch_of(1))
    new.mark(3)
    new.prepare(3)
    new.commit(3)
    with pytest.raises(plait.SinkError, match="it is at boundary 3"):
        writer_at(sink)
    assert numbers_in(kafka, topic, 1) == [1]
    new.close()


def test_an_unsure_commit_is_settled_by_what_is_noted(kafka: LocalBroker) -> None:
    """The answer to a commit is lost: by then it took place, or it did not."""
    from plait.connectors.kafka.client import Unsure

    topic = kafka.make_topic("unsure")
    sink = transactional(kafka, topic)
    writer = writer_at(sink)
    writer.write(batch_of(1))
    writer.mark(2)
    writer.prepare(2)
    commit = writer.producer.commit

    def commit_and_lose_the_answer() -> None:
        commit()
        raise Unsure("no answer")

    writer.producer.commit = commit_and_lose_the_answer  # type: ignore[method-assign]
    writer.commit(2)
    writer.write(batch_of(2))
    writer.mark(4)
    writer.prepare(4)

    def lose_the_request() -> None:
        raise Unsure("no answer")

    writer.producer.commit = lose_the_request  # type: ignore[method-assign]
    with pytest.raises(plait.SinkError, match="run the job again"):
        writer.commit(4)
    writer.abort()
    assert numbers_in(kafka, topic, 1) == [1]
    assert sink.survey(None) == plait.Delivered(2)


def test_progress_that_is_gone_is_an_error(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("gone")
    with pytest.raises(plait.SinkError, match="the topic is not that of this job"):
        transactional(kafka, topic).survey({"boundary": 7, "offset": 0})


def test_exactly_once_needs_transactions(kafka: LocalBroker, tmp_path: Path) -> None:
    topic = kafka.make_topic("plain")
    job = plait.Job("plain")
    sink = plait.Kafka(topic, servers=kafka.servers, client="kafka-python")
    job.source(rows(3)).sink(sink, "out")
    with pytest.raises(plait.JobError, match="exactly once needs confluent-kafka"):
        job.run(checkpoint=tmp_path)
    again = plait.Job("plain")
    loose = plait.Kafka(
        topic, servers=kafka.servers, client="kafka-python", delivery="at_least_once"
    )
    again.source(rows(3)).sink(loose, "out")
    again.run(checkpoint=tmp_path / "loose")
    assert numbers_in(kafka, topic) == [0, 1, 2]


def test_commits_between_checkpoints_keep_their_notes(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("often")
    sink = transactional(kafka, topic, commit="100ms")
    assert sink.survey(None) is None
    writer = writer_at(sink)
    writer.write(batch_of(1, 2))
    writer.mark(5)
    writer.write(batch_of(3))
    long = bytes(range(256)) * 6_000  # more than a broker takes in one record
    writer.commit(5, long)
    assert numbers_in(kafka, topic, 2) == [1, 2]
    writer.prepare(77)  # a checkpoint is taken somewhere
    writer.mark(6)
    writer.commit(6, b"short")
    seen = writer.prepare(78)
    assert numbers_in(kafka, topic, 3) == [1, 2, 3]
    writer.write(batch_of(4))
    writer.abort()
    assert sink.survey(None) == plait.Delivered(6, b"short")
    assert sink.survey(seen) == plait.Delivered(6, b"short")
    assert seen["offset"] > 0  # a later run does not read the long notes again
    again = writer_at(sink, 6, seen)
    again.write(batch_of(4))
    again.mark(9)
    again.commit(9, long)
    again.close()
    assert sink.survey(seen) == plait.Delivered(9, long)
    assert numbers_in(kafka, topic, 4) == [1, 2, 3, 4]


def test_notes_that_are_gone_are_an_error(kafka: LocalBroker) -> None:
    """Somebody has removed a part of the notes."""
    from plait.connectors.kafka.client import connect

    topic = kafka.make_topic("gone")
    sink = transactional(kafka, topic, commit="100ms")
    sink.survey(None)
    producer = connect(sink.connection).producer()
    producer.send(sink.progress, topic.encode(), b'{"boundary": 5, "notes": 2}')
    producer.send(sink.progress, f"{topic}/notes-0".encode(), b"...")
    producer.flush()
    producer.close()
    with pytest.raises(plait.SinkError, match="has 1 of the 2 parts of the notes"):
        sink.survey(None)


def test_rows_wait_for_a_commit_that_is_under_way(
    kafka: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the broker is away no more than so many are kept."""
    from plait.connectors.kafka import transactions

    monkeypatch.setattr(transactions, "MOST_HELD", 3)
    topic = kafka.make_topic("away")
    sink = transactional(kafka, topic, commit="100ms")
    sink.survey(None)
    writer = writer_at(sink)
    writer.write(batch_of(0))
    writer.mark(2)
    writes = threading.Thread(target=write_pairs, args=(writer, 9))
    kafka.kill()
    commits = threading.Thread(target=writer.commit, args=(2, b"n"))
    commits.start()
    writes.start()
    while len(writer.held) < 3:
        writes.join(0.01)
    assert writes.is_alive()
    held = len(writer.held)
    kafka.start()
    writes.join()
    commits.join()
    assert held == 4
    writer.mark(3)
    writer.commit(3, b"n")
    writer.close()
    assert numbers_in(kafka, topic, 9) == list(range(9))


def write_pairs(writer: plait.Writer, end: int) -> None:
    for n in range(1, end, 2):
        writer.write(batch_of(n, n + 1))


class AsTheyAreSeen(plait.Source):
    """The numbers 0, 1, 2, ...; each comes when those before it can be read from the topic."""

    schema = Schema.of({"n": int})
    bounded = True

    def __init__(self, kafka: LocalBroker, topic: str, count: int) -> None:
        self.kafka = kafka
        self.topic = topic
        self.count = count

    def open(self, position: Any = None) -> plait.Reader:
        return SeenReader(self)


class SeenReader(plait.Reader):
    def __init__(self, source: AsTheyAreSeen) -> None:
        self.source = source
        self.given = 0

    def poll(self, max_rows: int) -> Any:
        if self.given == self.source.count:
            return None
        seen = numbers_in(self.source.kafka, self.source.topic)
        if len(seen) < self.given:
            return plait.Wait(0.01)
        self.given += 1
        return [{"n": self.given - 1}]

    def position(self) -> int:
        return self.given


def test_a_job_that_commits_between_checkpoints(kafka: LocalBroker, tmp_path: Path) -> None:
    """Rows are there long before a checkpoint: each is read only when the one before is visible,
    so every one has a commit of its own."""
    topic = kafka.make_topic("job")
    job = plait.Job("often")
    sink = plait.Kafka(topic, servers=kafka.servers, commit="20ms")
    job.source(AsTheyAreSeen(kafka, topic, 5)).sink(sink, "out")
    job.run(checkpoint=plait.Checkpoint(str(tmp_path), every="1h"), timeout="2m")
    assert numbers_in(kafka, topic, 5) == list(range(5))
    commits = [r for r in kafka.read("plait-progress") if r.key == topic.encode()]
    assert len(commits) >= 5


def test_a_commit_that_was_killed_at_one_sink_does_not_hold_back_another(
    kafka: LocalBroker, tmp_path: Path
) -> None:
    """Both note their progress in one topic, which is read up to the first open transaction."""
    from plait.connectors.kafka.client import connect
    from plait.connectors.kafka.transactions import transactional_id

    first, second = kafka.make_topic("first"), kafka.make_topic("second")
    given: Any = {"servers": kafka.servers, "progress": "shared", "patience": "6s"}
    sinks = [plait.Kafka(topic, **given) for topic in (first, second)]
    client = connect(kafka.connection)
    client.make_topic("shared", 1, {})
    killed = client.producer(transactional_id(sinks[1]))
    killed.begin()
    killed.send("shared", second.encode(), b'{"boundary": 7}')
    killed.flush()
    job = plait.Job("two")
    numbers = job.source(rows(3))
    for number, sink in enumerate(sinks):
        numbers.sink(sink, f"sink-{number}")
    job.run(checkpoint=tmp_path)
    killed.close()
    assert numbers_in(kafka, first, 3) == numbers_in(kafka, second, 3) == [0, 1, 2]


def test_commit_is_refused_where_it_cannot_be(kafka: LocalBroker) -> None:
    with pytest.raises(plait.JobError, match='needs client="confluent-kafka"'):
        plait.Kafka("out", commit="100ms", client="kafka-python")
    with pytest.raises(plait.JobError, match="rows are visible at once"):
        plait.Kafka("out", commit="100ms", delivery="at_least_once")
    with pytest.raises(plait.JobError, match="must be above zero"):
        plait.Kafka("out", commit="0s")
