"""The settings of a broker: one KRaft node on loopback that starts and restarts in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST = "127.0.0.1"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where a broker listens. `secure` takes users with passwords, `tls` is encrypted; 0: it is not
    there."""

    plain: int
    controller: int
    secure: int = 0
    tls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What may differ between two brokers."""

    ports: Ports
    data: str
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Names and passwords for the secure listener."""
    certificate: str = ""
    """A PEM file with the private key and the certificate of the encrypted listener."""


def properties_of(settings: BrokerSettings) -> dict[str, str]:
    """The settings as Kafka names them."""
    ports = settings.ports
    listeners = {"PLAINTEXT": ports.plain, "CONTROLLER": ports.controller}
    if ports.secure:
        listeners["SASL_PLAINTEXT"] = ports.secure
    if ports.tls:
        listeners["SSL"] = ports.tls
    seen = {name: port for name, port in listeners.items() if name != "CONTROLLER"}
    found = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": addresses(listeners),
        "advertised.listeners": addresses(seen),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL",
        "log.dirs": settings.data,
        "auto.create.topics.enable": "false",
        "log.retention.ms": "-1",  # records of tests may have any time
        "group.initial.rebalance.delay.ms": "0",
        # With the default of 9 s a restart after kill -9 takes 12 to 14 s instead of 3 to 4.
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "2000",
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        "log.index.size.max.bytes": str(1 << 20),
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    if ports.secure:
        known = " ".join(f'user_{name}="{word}"' for name, word in settings.users.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        found["sasl.enabled.mechanisms"] = "PLAIN"
        found["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = f"{module} required {known};"
        # Who comes without a password may do all, a user what no access list keeps to others.
        found["authorizer.class.name"] = AUTHORIZER
        found["super.users"] = "User:ANONYMOUS"
        found["allow.everyone.if.no.acl.found"] = "true"
    if ports.tls:
        found["listener.name.ssl.ssl.keystore.type"] = "PEM"
        found["listener.name.ssl.ssl.keystore.location"] = settings.certificate
    return found


def addresses(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())


def properties_text(properties: Mapping[str, str]) -> str:
    r"""The text of a properties file.

    >>> properties_text({"log.dirs": "/a b"})
    'log.dirs=/a b\n'
    """
    escaped = {name: value.replace("\\", "\\\\") for name, value in properties.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items())
