"""Topics as sources: every way to run a job gives what a plain loop over the records gives."""

from __future__ import annotations

import datetime
import json
import logging
import random
import threading
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col
from plait.connectors.kafka.client import Record
from plait.testing import check

if TYPE_CHECKING:
    from pathlib import Path

    from plait.testing.broker import LocalBroker
    from tests.integration.kafka.authority import Authority

pytestmark = [
    pytest.mark.integration,
    # kafka-python leaves sockets open where it could not connect.
    pytest.mark.filterwarnings(r"ignore:unclosed <(socket|ssl):ResourceWarning"),
]

START = 1_700_000_000_000
CLIENTS = ("confluent-kafka", "kafka-python")


@dataclass
class Click:
    user: str
    n: int
    price: float | None


SCHEMA = {"user": str, "n": int}


def clicks(count: int, partitions: int, seed: int = 1) -> list[Record]:
    """Records on all partitions, with times that are nearly in order."""
    chance = random.Random(seed)
    records = []
    for n in range(count):
        row: dict[str, Any] = {
            "user": f"u{chance.randrange(9)}",
            "n": n,
            "price": n / 4,
            "other": [1, {"a": 2}],
        }
        time = START + n * 10 - chance.randrange(50)
        partition = chance.randrange(partitions)
        records.append(
            Record(partition, 0, time, row["user"].encode(), json.dumps(row).encode(), ())
        )
    return records


def filled(kafka: LocalBroker, count: int, partitions: int = 3) -> str:
    topic = kafka.make_topic("clicks", partitions)
    kafka.produce(topic, clicks(count, partitions))
    return topic


def in_order(records: list[Record]) -> list[dict[str, Any]]:
    """What a bounded read gives, by a sort: by the greatest time so far, partition, offset."""
    newest: dict[int, int] = {}
    keyed = []
    offsets: dict[int, int] = {}
    for record in records:
        partition = record.partition
        newest[partition] = max(newest.get(partition, -1), record.timestamp_ms)
        offsets[partition] = offsets.get(partition, -1) + 1
        keyed.append((newest[partition], partition, offsets[partition], record.value))
    return [json.loads(value or b"") for *_, value in sorted(keyed)]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_bounded_read_has_one_order(kafka: LocalBroker, client: Any) -> None:
    topic = filled(kafka, 3_000)
    source = plait.Kafka(topic, schema=Click, servers=kafka.servers, end="latest", client=client)
    found = plait.stream(source).collect()
    wanted = [(row["user"], row["n"], row["price"]) for row in in_order(clicks(3_000, 3))]
    assert [(row.user, row.n, row.price) for row in found] == wanted


def test_the_oracle_agrees_on_workers_nodes_and_after_a_crash(kafka: LocalBroker) -> None:
    source = plait.Kafka(filled(kafka, 600), schema=Click, servers=kafka.servers, end="latest")

    def build(rows: Any) -> Any:
        return (
            rows.filter(col("n") % 7 != 0)
            .key_by("user")
            .aggregate(n=plait.last("n"), total=plait.sum("price"))
        )

    check(build, source, workers=(1, 3), nodes=(2,), crash_at=300, epoch_records=64)


def test_the_oracle_agrees_on_windows(kafka: LocalBroker) -> None:
    source = plait.Kafka(
        filled(kafka, 500),
        schema=SCHEMA,
        servers=kafka.servers,
        end="latest",
        metadata={"at": "timestamp"},
    )

    def build(rows: Any) -> Any:
        timed = rows.with_event_time(col("at").fill_null(datetime.datetime.now(datetime.UTC)))
        return timed.key_by("user").tumbling("1s").count()

    check(build, source, workers=(1, 2), epoch_records=64)


def test_what_is_added_as_columns(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("parts", 2)
    kafka.produce(topic, [Record(1, 0, START, b"k", b"raw", (("a", b"1"), ("b", None)))])
    source = plait.Kafka(
        topic,
        format="bytes",
        servers=kafka.servers,
        end="latest",
        metadata=("key", "timestamp", "partition", "offset", "headers"),
    )
    (row,) = plait.stream(source).collect()
    at = datetime.datetime.fromtimestamp(START / 1000, datetime.UTC)
    assert (row.value, row.key, row.timestamp, row.partition, row.offset) == (
        b"raw", b"k", at, 1, 0,
    )  # fmt: skip
    assert row.headers == [("a", b"1"), ("b", None)]


def test_msgpack_and_a_function_of_the_user(kafka: LocalBroker) -> None:
    import msgpack

    topic = kafka.make_topic("packed")
    kafka.produce(topic, [msgpack.packb({"user": "ann", "n": 3, "x": 1}), b"\xc1"])
    common: Any = {"servers": kafka.servers, "end": "latest", "schema": SCHEMA}
    packed = plait.stream(plait.Kafka(topic, format="msgpack", **common), on_error="skip")
    assert [(row.user, row.n) for row in packed.collect()] == [("ann", 3)]

    def decode(value: bytes | None) -> Any:
        return {"user": (value or b"").hex(), "n": len(value or b"")}

    by_function = plait.stream(plait.Kafka(topic, decode=decode, **common)).collect()
    assert [row.n for row in by_function][-1] == 1


def test_arrow_streams_are_rows_also_after_a_crash(kafka: LocalBroker) -> None:
    import pyarrow as pa

    topic = kafka.make_topic("arrow", 3)
    records = []
    for n in range(30):
        sink = pa.BufferOutputStream()
        table = pa.table(
            {"user": [f"u{n % 4}"] * (n % 9), "n": list(range(100 * n, 100 * n + n % 9))}
        )
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        value = b"no Arrow" if n == 17 else sink.getvalue().to_pybytes()
        records.append(Record(n % 3, 0, START + n * 7 % 50, None, value, ()))
    kafka.produce(topic, records)
    source: Any = {"schema": SCHEMA, "servers": kafka.servers, "format": "arrow"}
    bounded = plait.Kafka(topic, end="latest", metadata=("offset",), **source)
    job = plait.Job("arrow")
    job.source(bounded, on_error="dead_letter").sink(plait.Collect(), "out")
    result = job.run(epoch_records=7)
    wanted = {100 * n + row for n in range(30) for row in range(n % 9) if n != 17}
    found = result.outputs["out"].to_pylist()
    assert {row["n"] for row in found} == wanted
    assert len(found) == len(wanted)
    assert all(row["offset"] == row["n"] // 300 for row in found)
    assert [letter.record["value"] for letter in result.dead_letters] == [b"no Arrow"]

    kept = plait.Kafka(topic, end={0: 10, 1: 10, 2: 5}, **source)
    check(
        lambda rows: rows.key_by("user").aggregate(n=plait.last("n"), total=plait.sum("n")),
        kept,
        workers=(2,),
        nodes=(2,),
        crash_at=40,
        epoch_records=7,
    )
    live = plait.stream(plait.Kafka(topic, **source), on_error="skip")
    run = live.sink(plait.Collect(), "out").run(limit=len(wanted) + 1)
    assert {row["n"] for row in run.outputs["out"].to_pylist()} == wanted


@pytest.mark.parametrize("client", CLIENTS)
def test_where_reading_starts_and_ends(kafka: LocalBroker, client: Any) -> None:
    topic = kafka.make_topic("ends")
    rows = [Record(0, 0, START + n * 1000, None, b'{"n": %d}' % n, ()) for n in range(10)]
    kafka.produce(topic, rows)

    def read(**given: Any) -> list[int]:
        source = plait.Kafka(
            topic, schema={"n": int}, servers=kafka.servers, client=client, **given
        )
        return [row.n for row in plait.stream(source).collect()]

    third = datetime.datetime.fromtimestamp(START / 1000 + 3, datetime.UTC)
    assert read(end="latest") == list(range(10))
    assert read(start={0: 7}, end="latest") == [7, 8, 9]
    assert read(start=third, end={0: 5}) == [3, 4]
    assert read(end=third) == [0, 1, 2]
    assert read(start="latest", end="latest") == []


def test_bad_records_are_letters_with_their_bytes(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("bad")
    good = b'{"user": "ann", "n": 1}'
    bad = [
        b'{"user": "ann", "n": }',
        b'{"user": "ann"}',
        b'{"user": "ann", "n": 1, "n": 2}',
        b'{"user": "ann", "n": 9223372036854775808}',
        b'{"user": "\xff", "n": 1}',
        b"[1]",
        b'{"user": "ann", "n": NaN}',
        b"",
        None,
    ]
    kafka.produce(topic, [good, *bad, good])
    source = plait.Kafka(topic, schema=SCHEMA, servers=kafka.servers, end="latest")
    job = plait.Job("letters")
    job.source(source, on_error="dead_letter").sink(plait.Collect(), "out")
    result = job.run()
    assert len(result.outputs["out"]) == 2
    assert [letter.record["value"] for letter in result.dead_letters] == bad
    assert [letter.record["offset"] for letter in result.dead_letters] == list(range(1, 10))
    assert f"{topic}, partition 0, offset 1: no JSON" in result.dead_letters[0].error
    with pytest.raises(plait.SourceError, match=f"{topic}, partition 0, offset 1: no JSON"):
        plait.stream(source).collect()


def test_live_records_as_they_come(kafka: LocalBroker) -> None:
    topic = kafka.make_topic("live", 2)
    source = plait.Kafka(topic, schema=SCHEMA, servers=kafka.servers)
    run = plait.start(plait.stream(source).sink(plait.Collect(), "out"), limit=500, workers=2)
    for part in range(5):
        kafka.produce(topic, [(b"k%d" % n, b'{"user": "u", "n": %d}' % n)
                              for n in range(part * 100, part * 100 + 100)])  # fmt: skip
    found = [row["n"] for row in run.wait().outputs["out"].to_pylist()]
    assert sorted(found) == list(range(500))
    by_partition = [[json.loads(r.value or b"")["n"] for r in kafka.read(topic, [p])]
                    for p in (0, 1)]  # fmt: skip
    for numbers in by_partition:
        assert [n for n in found if n in set(numbers)] == numbers


def test_transactions_that_were_aborted_are_not_read(kafka: LocalBroker) -> None:
    from plait.connectors.kafka.client import connect

    topic = kafka.make_topic("holes")
    producer = connect(kafka.connection).producer("holes")
    for n in range(6):
        producer.begin()
        producer.send(topic, None, b'{"n": %d}' % n)
        producer.flush()
        if n % 2:
            producer.commit()
        else:
            producer.abort()
    producer.close()
    source = plait.Kafka(topic, schema={"n": int}, servers=kafka.servers, end="latest")
    assert [row.n for row in plait.stream(source).collect()] == [1, 3, 5]


def test_records_that_are_gone(kafka: LocalBroker) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = filled(kafka, 100, partitions=1)
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.delete_records([TopicPartition(topic, 0, 40)])[TopicPartition(topic, 0)].result()
    source: Any = {"schema": SCHEMA, "servers": kafka.servers, "end": "latest"}
    with pytest.raises(plait.SourceError, match="records of partition 0 are gone"):
        plait.stream(plait.Kafka(topic, start={0: 10}, **source)).collect()
    kept = plait.Kafka(topic, start={0: 10}, on_lost="earliest", **source)
    assert len(plait.stream(kept).collect()) == 60


def test_a_topic_that_was_made_anew_is_refused(kafka: LocalBroker, tmp_path: Path) -> None:
    topic = filled(kafka, 20, partitions=1)
    source = plait.Kafka(topic, schema=SCHEMA, servers=kafka.servers)
    reader = source.open()
    while not isinstance(reader.poll(100), plait.Wait):
        pass
    reader.close()
    with pytest.raises(plait.SourceError, match="made anew"):
        source.open({"next": [[0, 21]]})
    with pytest.raises(plait.SourceError, match="does not have any more"):
        source.open({"next": [[0, 1], [5, 1]]})


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_wrong_is_said(kafka: LocalBroker, client: Any) -> None:
    common: Any = {"schema": SCHEMA, "end": "latest", "client": client}
    with pytest.raises(plait.SourceError, match='there is no topic "absent"'):
        plait.stream(plait.Kafka("absent", servers=kafka.servers, **common)).collect()
    with pytest.raises(plait.SourceError, match="no Kafka broker answers at"):
        plait.stream(plait.Kafka("clicks", servers="127.0.0.1:1", **common)).collect()


def secure(client: str, password: str) -> dict[str, str]:
    named = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": password,
    }
    if client == "confluent-kafka":
        return named
    plain = {"sasl.username": "sasl_plain_username", "sasl.password": "sasl_plain_password"}
    return {plain.get(name, name.replace(".", "_")): value for name, value in named.items()}


@pytest.mark.parametrize("client", CLIENTS)
def test_passwords_are_used_and_never_shown(
    kafka: LocalBroker,
    client: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from tests.integration.kafka.conftest import PASSWORD

    topic = filled(kafka, 50)
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    (tmp_path / "password").write_text(PASSWORD + "\n")

    def source(password: str) -> plait.Kafka:
        return plait.Kafka(
            topic,
            schema=SCHEMA,
            servers=kafka.secure_servers,
            end="latest",
            client=client,
            settings=secure(client, password),
        )

    wrong = "wrong-canary"
    given = (PASSWORD, "env:KAFKA_PASSWORD", f"file:{tmp_path / 'password'}")
    for number, password in enumerate(given):
        job = plait.Job("secret")
        job.source(source(password)).sink(plait.Collect(), "out")
        assert PASSWORD not in repr(source(password)) + repr(job)
        job.explain(checkpoint=str(tmp_path / "ckpt"))
        run = plait.start(job, checkpoint=str(tmp_path / "ckpt" / str(number)))
        result = run.wait()
        assert len(result.outputs["out"]) == 50
        assert PASSWORD not in repr(run) + repr(result) + str(result) + repr(run.rates())
        kept = b"".join(p.read_bytes() for p in (tmp_path / "ckpt").rglob("*") if p.is_file())
        assert kept
        assert PASSWORD.encode() not in kept
    with pytest.raises(plait.SourceError, match="refused us") as refused:
        plait.stream(source(wrong)).collect()
    sink = plait.Kafka(
        topic,
        servers=kafka.secure_servers,
        client=client,
        settings=secure(client, wrong),
        patience="1s",
    )
    with pytest.raises(plait.SinkError) as refused_to_write:
        plait.stream([{"n": 1}]).sink(sink).run()
    printed = capfd.readouterr()
    shown = "".join(traceback.format_exception(refused.value))
    shown += "".join(traceback.format_exception(refused_to_write.value))
    shown += printed.out + printed.err + caplog.text
    assert "secret" in shown  # the name of the job
    assert PASSWORD not in shown
    assert wrong not in shown


@pytest.mark.parametrize("client", CLIENTS)
def test_connections_are_encrypted(kafka: LocalBroker, authority: Authority, client: Any) -> None:
    topic = filled(kafka, 50)
    names = ("security.protocol", "ssl.ca.location")
    if client == "kafka-python":
        names = ("security_protocol", "ssl_cafile")

    def source(known: Path) -> plait.Kafka:
        return plait.Kafka(
            topic,
            schema=SCHEMA,
            servers=kafka.tls_servers,
            end="latest",
            client=client,
            settings=dict(zip(names, ("SSL", str(known)), strict=True)),
        )

    assert len(plait.stream(source(authority.own)).collect()) == 50
    with pytest.raises(plait.SourceError, match=r"refused us|no Kafka broker answers"):
        plait.stream(source(authority.other)).collect()


def test_the_broker_goes_and_comes_back(kafka: LocalBroker) -> None:
    topic = filled(kafka, 200)
    source = plait.Kafka(topic, schema=SCHEMA, servers=kafka.servers)
    seen = threading.Semaphore(0)

    def tell(_: Any) -> None:
        seen.release()

    run = plait.start(plait.stream(source).sink(plait.Call(tell)), limit=400)
    for _ in range(200):
        assert seen.acquire(timeout=60)
    kafka.kill()
    kafka.start()
    kafka.produce(topic, clicks(200, 3, seed=2))
    assert run.wait().account.read == 400


def test_a_broker_that_stays_away_ends_the_run(kafka: LocalBroker) -> None:
    topic = filled(kafka, 100)
    source = plait.Kafka(topic, schema=SCHEMA, servers=kafka.servers, patience="1s")
    began = threading.Event()
    run = plait.start(plait.stream(source).sink(plait.Call(lambda _: began.set())))
    assert began.wait(60)
    kafka.kill()
    try:
        with pytest.raises(plait.SourceError, match="no Kafka broker has answered"):
            run.wait()
    finally:
        kafka.start()
