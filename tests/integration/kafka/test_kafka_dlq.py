"""`plait dlq`: dead letters in a topic, and their records back, each once."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.cli.commands import main
from plait.connectors.kafka.client import Record
from plait.connectors.kafka.kafka_confluent import ConfluentProducer
from plait.connectors.kafka.letters import parse_letter

if TYPE_CHECKING:
    from plait.testing.broker import LocalBroker

pytestmark = pytest.mark.integration

BAD = [b"no JSON", b'{"n": "x"}', b"neither"]


def run_job(kafka: LocalBroker, topic: str, letters: str) -> None:
    """Numbers, of which the source cannot read some and a function not take 0."""
    job = plait.Job("numbers", dead_letters=plait.Kafka(letters, servers=kafka.servers))
    source = plait.Kafka(
        topic,
        schema={"n": int},
        servers=kafka.servers,
        end="latest",
        metadata=("partition", "offset"),
    )
    numbers = job.source(source, "in", on_error="dead_letter")
    numbers.map(one_by, schema={"n": float}, on_error="dead_letter").sink(plait.Discard())
    job.run()


def one_by(row: Any) -> Any:
    return {"n": 1 / row.n}


def make_letters(kafka: LocalBroker) -> tuple[str, str]:
    topic, letters = kafka.make_topic("numbers", 2), kafka.make_topic("letters")
    values = [b'{"n": 5}', BAD[0], b'{"n": 0, "more": 1}', BAD[1], BAD[2]]
    kafka.produce(
        topic,
        [
            Record(n % 2, 0, 0, b"key-%d" % n, value, [("trace", b"%d" % n)])
            for n, value in enumerate(values)
        ],
    )
    run_job(kafka, topic, letters)
    return topic, letters


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["dlq", *arguments]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def records_of(kafka: LocalBroker, topic: str, count: int) -> list[Record]:
    """All records of the topic, those with a number of replays last."""
    found = kafka.read(topic, count=count)
    return [record for record in found if "plait-replayed" in dict(record.headers)]


def test_letters_are_listed_and_shown(
    kafka: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, letters = make_letters(kafka)
    at = ("--servers", kafka.servers)
    table = said(capsys, "ls", letters, *at)
    assert re.search(r"^map +ZeroDivisionError: division by zero +1 +2\d{3}-", table, re.MULTILINE)
    groups = json.loads(said(capsys, "ls", letters, *at, "--json"))
    assert sum(group["letters"] for group in groups) == 4
    (shown,) = json.loads(said(capsys, "show", letters, *at, "--json", "--operator", "map"))
    assert (shown["told"]["topic"], shown["told"]["content"]) == (topic, "json")
    text = said(capsys, "show", letters, *at, "--limit", "1", "--error", "JSON")
    assert re.search(r"  value: +(no JSON|neither)\n", text)
    assert text.endswith("... 1 more\n")
    assert said(capsys, "show", letters, *at, "--since", "2999-01-01") == "no letters\n"
    assert said(capsys, "ls", letters, *at, "--since", "1h") == table


def test_records_go_back_once_as_they_came(
    kafka: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, letters = make_letters(kafka)
    at = ("--servers", kafka.servers)
    would = said(capsys, "replay", letters, *at, "--dry-run")
    assert would == f"4 records would go to {topic}\n"
    # A choice: the others stay, whatever offset is committed.
    assert (
        said(capsys, "replay", letters, *at, "--operator", "map") == f"1 record went to {topic}\n"
    )
    (again,) = records_of(kafka, topic, 6)
    assert (again.key, again.value, again.partition) == (b"key-2", b'{"n": 0, "more": 1}', 0)
    assert dict(again.headers) == {"trace": b"2", "plait-replayed": b"1"}
    assert said(capsys, "replay", letters, *at) == f"3 records went to {topic}\n"
    assert said(capsys, "replay", letters, *at) == "no letters\n"
    assert said(capsys, "ls", letters, *at) == "no letters\n"
    found = records_of(kafka, topic, 9)
    assert sorted(record.value or b"" for record in found) == sorted([again.value or b"", *BAD])
    assert {record.key: record.partition for record in found} == {
        b"key-1": 1,
        b"key-2": 0,
        b"key-3": 1,
        b"key-4": 0,
    }


def test_what_came_back_three_times_stays(
    kafka: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, letters = kafka.make_topic("numbers"), kafka.make_topic("letters")
    kafka.produce(topic, [b"no JSON"])
    at = ("--servers", kafka.servers)
    for there, start in enumerate((0, 1, 3), 1):  # a transaction has a mark of its own in the topic
        kafka.read(topic, count=there)
        job = plait.Job("numbers", dead_letters=plait.Kafka(letters, servers=kafka.servers))
        source = plait.Kafka(
            topic,
            schema={"n": int},
            servers=kafka.servers,
            start={0: start},
            end="latest",
        )
        job.source(source, on_error="dead_letter").sink(plait.Discard())
        job.run()
        assert said(capsys, "replay", letters, *at) == f"1 record went to {topic}\n"
    last = kafka.read(topic, count=4)[-1]
    assert last.headers == [("plait-replayed", b"3")]
    kafka.produce(letters, [last])
    stays = said(capsys, "replay", letters, *at, "--to", topic)
    assert stays == "1 letter stays: it came back 3 times already\n"
    assert parse_letter(kafka.read(letters)[-1]).replayed == 3


def test_to_another_topic(kafka: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    letters, other = kafka.make_topic("letters"), kafka.make_topic("other")
    plain = plait.Job("plain", dead_letters=plait.Kafka(letters, servers=kafka.servers))
    numbers = plain.source([{"n": 0}, {"n": 1}])
    numbers.map(one_by, schema={"n": float}, on_error="dead_letter").sink(plait.Discard())
    plain.run()
    at = ("--servers", kafka.servers)
    stays = said(capsys, "replay", letters, *at)
    assert stays.startswith("1 letter stays: it is not known from which topic it came")
    assert said(capsys, "replay", letters, *at, "--to", other) == f"1 record went to {other}\n"
    (record,) = kafka.read(other, count=1)
    assert (record.value, record.headers) == (b'{"n": 0}', [("plait-replayed", b"1")])


def test_a_replay_that_fails_leaves_nothing(
    kafka: LocalBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever becomes of the commit, the next replay knows."""
    topic, letters = make_letters(kafka)
    at = ("--servers", kafka.servers)
    commit = ConfluentProducer.commit

    def lose_the_request(producer: ConfluentProducer) -> None:
        from plait.connectors.kafka.client import Unsure

        raise Unsure("no answer")

    def lose_the_answer(producer: ConfluentProducer) -> None:
        commit(producer)
        lose_the_request(producer)

    monkeypatch.setattr(ConfluentProducer, "commit", lose_the_request)
    error = said(capsys, "replay", letters, *at, status=1)
    assert "no answer; run it again" in error
    monkeypatch.setattr(ConfluentProducer, "commit", lose_the_answer)
    assert "no answer" in said(capsys, "replay", letters, *at, status=1)
    monkeypatch.setattr(ConfluentProducer, "commit", commit)
    assert said(capsys, "replay", letters, *at) == "no letters\n"
    assert len(records_of(kafka, topic, 9)) == 4
