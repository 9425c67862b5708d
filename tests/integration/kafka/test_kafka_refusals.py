"""What brokers refuse or leave out: users without permission, huge records, compacted records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import admin as admin_module

import plait
from plait.testing import check
from tests.integration.kafka.conftest import PASSWORD
from tests.integration.kafka.test_kafka_source import CLIENTS, SCHEMA, secure

if TYPE_CHECKING:
    from pathlib import Path

    from plait.testing.broker import LocalBroker

pytestmark = pytest.mark.integration
ROWS = [{"user": "ann", "n": n} for n in range(3)]


def topic_for(kafka: LocalBroker, user: str, *may: str) -> str:
    """A topic with records, where only one user may do anything, and only so much."""
    api: Any = admin_module
    topic = kafka.make_topic("kept")
    kafka.produce(topic, [json.dumps(row).encode() for row in ROWS])
    whole, allow = api.ResourcePatternType.LITERAL, api.AclPermissionType.ALLOW
    lists = [
        api.AclBinding(
            api.ResourceType.TOPIC, topic, whole, f"User:{user}", "*", api.AclOperation[each], allow
        )
        for each in may
    ]
    admin = api.AdminClient({"bootstrap.servers": kafka.servers})
    for answer in admin.create_acls(lists).values():
        answer.result()
    return topic


def as_ann(kafka: LocalBroker, topic: str, client: Any, **more: Any) -> plait.Kafka:
    settings = secure(client, PASSWORD)
    return plait.Kafka(
        topic, servers=kafka.secure_servers, settings=settings, client=client, **more
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_a_user_may_not_see(kafka: LocalBroker, client: Any) -> None:
    topic = topic_for(kafka, "bob", "ALL")
    words = "refused us: .*authorization failed"
    if client == "kafka-python":
        words = "there is no topic .* or we may not see it"
    with pytest.raises(plait.SourceError, match=words):
        plait.stream(as_ann(kafka, topic, client, schema=SCHEMA, end="latest")).collect()
    with pytest.raises(plait.SinkError, match=words):
        plait.stream(ROWS).sink(as_ann(kafka, topic, client)).run()
    assert len(kafka.read(topic)) == len(ROWS)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_a_user_may_see_only(kafka: LocalBroker, client: Any) -> None:
    topic = topic_for(kafka, "ann", "DESCRIBE")
    with pytest.raises(plait.SourceError, match=r"refused us: .*[Aa]uthorization ?[Ff]ailed"):
        plait.stream(as_ann(kafka, topic, client, schema=SCHEMA, end="latest")).collect()
    with pytest.raises(plait.SinkError, match=r"not delivered.*[Aa]uthorization ?[Ff]ailed"):
        plait.stream(ROWS).sink(as_ann(kafka, topic, client)).run()
    assert len(kafka.read(topic)) == len(ROWS)


def test_a_transaction_that_is_refused_says_why(kafka: LocalBroker, tmp_path: Path) -> None:
    topic = topic_for(kafka, "ann", "DESCRIBE")
    job = plait.Job("refused")
    job.source(plait.Items(ROWS), "in").sink(as_ann(kafka, topic, "confluent-kafka"), "out")
    with pytest.raises(plait.SinkError, match="Topic authorization failed"):
        job.run(checkpoint=str(tmp_path))


@pytest.mark.parametrize("client", CLIENTS)
def test_huge_records(kafka: LocalBroker, client: Any, tmp_path: Path) -> None:
    """Larger than any default: read where they are allowed, and refused where they are not."""
    rows = [{"user": "u" * size, "n": n} for n, size in enumerate([1, 3_000_000, 2])]
    sizes = {"max.message.bytes": "8000000"}
    large = "message.max.bytes" if client == "confluent-kafka" else "max_request_size"
    allowed = kafka.make_topic("large", settings=sizes)
    to_large: Any = {"servers": kafka.servers, "client": client, "settings": {large: "8000000"}}
    if client == "kafka-python":
        to_large["settings"] = {large: 8_000_000}
    plait.stream(rows).sink(plait.Kafka(allowed, **to_large)).run()
    source = plait.Kafka(allowed, schema=SCHEMA, servers=kafka.servers, client=client, end="latest")
    assert [(len(row.user), row.n) for row in plait.stream(source).collect()] == [
        (1, 0),
        (3_000_000, 1),
        (2, 2),
    ]
    small = kafka.make_topic("small")
    job = plait.Job("huge")
    sink = plait.Kafka(small, servers=kafka.servers, client=client, delivery="at_least_once")
    job.source(plait.Items(rows), "in").sink(sink, "out")
    with pytest.raises(plait.SinkError, match=r"(?i)message ?size ?too ?large"):
        job.run(checkpoint=str(tmp_path))


@pytest.fixture(scope="module")
def compacted(kafka: LocalBroker) -> str:
    """A topic with offsets without records in the middle of its partitions."""
    quickly = {
        "cleanup.policy": "compact",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    topic = kafka.make_topic("compacted", 2, settings=quickly)
    for turn in range(10):  # each a segment of its own
        values = [json.dumps({"user": f"u{n % 7}", "n": turn * 100 + n}) for n in range(40)]
        kafka.produce(topic, [(b"u%d" % (n % 7), value.encode()) for n, value in enumerate(values)])
    while len(kafka.read(topic)) > 200:  # the cleaner comes twice a second
        continue
    more = [(b"u%d" % (n % 30), b'{"user": "x", "n": %d}' % (5000 + n)) for n in range(300)]
    kafka.produce(topic, more)
    keep_as_it_is(kafka, topic)
    return topic


def keep_as_it_is(kafka: LocalBroker, topic: str) -> None:
    """The cleaner does not come again."""
    api: Any = admin_module
    never = api.ConfigEntry(
        "cleanup.policy", "delete", incremental_operation=api.AlterConfigOpType.SET
    )
    resource = api.ConfigResource(api.ConfigResource.Type.TOPIC, topic, incremental_configs=[never])
    admin = api.AdminClient({"bootstrap.servers": kafka.servers})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result()


@pytest.mark.parametrize("client", CLIENTS)
def test_compacted_records_leave_holes(kafka: LocalBroker, compacted: str, client: Any) -> None:
    source = plait.Kafka(
        compacted, schema=SCHEMA, servers=kafka.servers, end="latest", client=client
    )
    found = {row.n for row in plait.stream(source).collect()}
    assert found >= {*range(5270, 5300)}  # the last of each key is never removed
    assert len(found & set(range(1000))) <= 200


def test_the_oracle_agrees_on_a_compacted_topic(kafka: LocalBroker, compacted: str) -> None:
    source = plait.Kafka(compacted, schema=SCHEMA, servers=kafka.servers, end="latest")

    def build(stream: Any) -> Any:
        return stream.key_by("user").aggregate(n=plait.last("n"), count=plait.count())

    check(build, source, workers=(1, 2), nodes=(2,), crash_at=100, epoch_records=32)
