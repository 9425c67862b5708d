"""The TLS tunnel: bytes go through both ways whole, and only between holders of certificates."""

from __future__ import annotations

import datetime
import hashlib
import pickle
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import plait
from plait.execution.local_run import graph_of
from plait.model.settings import Settings
from plait.node_runtime.host.agent import NodeAgent
from plait.node_runtime.host.strangers import MOST_PER_S, MOST_TRYING, Strangers
from plait.node_runtime.host.tls_tunnel import TlsTunnel
from plait.protocol.messages import EVERYONE, Begin, Done, End, Layout, Prepare
from plait.results.outcomes import merge_outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    cert: Path
    key: Path
    ca: Path

    def tunnel(self) -> TlsTunnel:
        return TlsTunnel(self.cert, self.key, self.ca)


def signed(
    name: str, key: ec.EllipticCurvePrivateKey, by: str, by_key: ec.EllipticCurvePrivateKey
) -> bytes:
    def called(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(called(name))
        .issuer_name(called(by))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=name == by, path_length=None), critical=True)
        .sign(by_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def authority(folder: Path, name: str) -> Files:
    """A new authority, and a node's certificate signed by it."""
    ca_key, node_key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    files = Files(
        cert=folder / f"{name}-node.pem", key=folder / f"{name}-node.key", ca=folder / f"{name}.pem"
    )
    files.ca.write_bytes(signed(name, ca_key, name, ca_key))
    files.cert.write_bytes(signed("node", node_key, name, ca_key))
    files.key.write_bytes(
        node_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return authority(tmp_path_factory.mktemp("tls"), "ours")


@contextmanager
def serving(answer: Callable[[socket.socket], None], connections: int) -> Iterator[int]:
    """A server on loopback that answers so many connections, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            for _ in range(connections):
                accepted, _ = listener.accept()
                with accepted:
                    answer(accepted)

        thread = threading.Thread(target=run)
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join()


def read_all(source: socket.socket) -> bytes:
    """What comes until the other side ends; a broken connection is an end too."""
    parts = []
    try:
        while part := source.recv(1 << 16):
            parts.append(part)
    except OSError:
        pass
    return b"".join(parts)


def heard_after_hello(outer: socket.socket) -> bytes:
    try:
        outer.sendall(b"hello")
    except OSError:
        return b""
    return read_all(outer)


def test_bytes_pass_both_ways(files: Files) -> None:
    size = 8 << 20
    sent = bytes(range(256)) * (size // 256)

    def answer(inner: socket.socket) -> None:
        """Sends as much as it receives while it receives, then the digest of it."""
        digest, left = hashlib.sha256(), size
        while left:
            part = inner.recv(min(left, 1 << 16))
            digest.update(part)
            inner.sendall(part)
            left -= len(part)
        inner.sendall(digest.digest())

    with (
        serving(answer, 2) as inner_port,
        files.tunnel() as there,
        files.tunnel() as here,
    ):
        port = here.dial("127.0.0.1", there.serve("127.0.0.1", 0, inner_port))
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port)) as outer:
                sender = threading.Thread(target=outer.sendall, args=(sent,))
                sender.start()
                received = read_all(outer)
                sender.join()
            assert received[:size] == sent
            assert received[size:] == hashlib.sha256(sent).digest()


def test_what_was_sent_before_the_end_arrives(files: Files) -> None:
    with (
        serving(lambda inner: inner.sendall(b"refused: no"), 3) as inner_port,
        files.tunnel() as there,
        files.tunnel() as here,
    ):
        port = here.dial("localhost", there.serve("127.0.0.1", 0, inner_port))
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as outer:
                assert read_all(outer) == b"refused: no"


def test_strangers_do_not_get_in(files: Files, tmp_path: Path) -> None:
    other = authority(tmp_path, "theirs")

    def unexpected(inner: socket.socket) -> None:
        assert inner.recv(100) == b"hello"
        inner.sendall(b"welcome")

    with (
        serving(unexpected, 1) as inner_port,
        files.tunnel() as there,
        files.tunnel() as here,
        other.tunnel() as stranger,
    ):
        public = there.serve("127.0.0.1", 0, inner_port)
        with socket.create_connection(("127.0.0.1", stranger.dial("127.0.0.1", public))) as outer:
            assert read_all(outer) == b""
        with socket.create_connection(("127.0.0.1", public)) as plain:
            plain.sendall(b"no TLS at all, only text" * 10)
            assert b"welcome" not in read_all(plain)
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname = False
        bare.load_verify_locations(files.ca)
        with (
            socket.create_connection(("127.0.0.1", public)) as plain,
            bare.wrap_socket(plain) as without_certificate,
        ):
            assert heard_after_hello(without_certificate) == b""
        # The only connection that reaches the inside is the right one.
        with socket.create_connection(("127.0.0.1", here.dial("127.0.0.1", public))) as outer:
            assert heard_after_hello(outer) == b"welcome"


def until(holds: Callable[[], bool]) -> None:
    """Waits for it; a minute is far too long."""
    end = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_strangers_are_counted_and_named(files: Files, tmp_path: Path) -> None:
    other = authority(tmp_path, "theirs")
    with files.tunnel() as there, other.tunnel() as stranger:
        public = there.serve("127.0.0.1", 0, 1)
        with socket.create_connection(("127.0.0.1", public)) as plain:
            plain.sendall(b"no TLS at all, only text" * 10)
            read_all(plain)
        until(lambda: there.refusals().count == 1)
        assert there.refusals().source == "127.0.0.1"
        assert "TLS: " in there.refusals().why
        with socket.create_connection(("127.0.0.1", stranger.dial("127.0.0.1", public))) as outer:
            read_all(outer)
        until(lambda: there.refusals().count == 2)
        for _ in range(3):
            socket.create_connection(("127.0.0.1", public)).close()
        until(lambda: there.refusals().left == 3)
        assert there.refusals().count == 2


@pytest.mark.usefixtures("many_descriptors")
def test_strangers_that_say_nothing_keep_nobody_out(files: Files) -> None:
    """Of more than may try at once the oldest have to go, and a node of the job gets in."""
    with (
        serving(lambda inner: inner.sendall(b"welcome"), 1) as inner_port,
        files.tunnel() as there,
        files.tunnel() as here,
        ExitStack() as held,
    ):
        public = there.serve("127.0.0.1", 0, inner_port)
        for _ in range(MOST_TRYING + 20):
            held.enter_context(socket.create_connection(("127.0.0.1", public)))
        with socket.create_connection(("127.0.0.1", here.dial("127.0.0.1", public))) as outer:
            assert read_all(outer) == b"welcome"
        until(lambda: there.refusals().count >= 20)
        assert len(there._strangers.trying) <= MOST_TRYING


def test_so_many_a_second_are_let_in() -> None:
    strangers = Strangers()
    assert [strangers.pause_s(10.0) for _ in range(MOST_PER_S)] == [0.0] * MOST_PER_S
    assert strangers.pause_s(10.0) == pytest.approx(1 / MOST_PER_S)
    assert strangers.pause_s(10.0 + 1.5 / MOST_PER_S) == 0.0
    assert strangers.pause_s(10.0 + 1.5 / MOST_PER_S) > 0.0


def test_a_node_reports_the_strangers_of_its_tunnel(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    graph = graph_of(plait.stream([{"n": 1}]).sink(plait.Discard()).job)
    payload = pickle.dumps((graph, Settings(workers=1), ""))
    agent = NodeAgent(0, payload, "secret", "127.0.0.1", files.tunnel())
    try:
        with socket.create_connection(("127.0.0.1", agent.peer().port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            read_all(plain)
        until(lambda: agent.report().refused_links == 1)
        assert "refused a connection to the data port; the last one came from" in caplog.text
    finally:
        agent.close()


def test_a_dead_end_closes_the_connection(files: Files) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = int(gone.getsockname()[1])
    with files.tunnel() as there, files.tunnel() as here:
        for port in (
            here.dial("127.0.0.1", nobody),
            here.dial("127.0.0.1", there.serve("127.0.0.1", 0, nobody)),
        ):
            with socket.create_connection(("127.0.0.1", port)) as outer:
                assert read_all(outer) == b""


def test_close_ends_everything(files: Files) -> None:
    tunnel = files.tunnel()
    with socket.create_server(("127.0.0.1", 0)) as inner:
        port = tunnel.dial("127.0.0.1", tunnel.serve("127.0.0.1", 0, int(inner.getsockname()[1])))
        with socket.create_connection(("127.0.0.1", port)) as outer:
            accepted, _ = inner.accept()
            with accepted:
                outer.sendall(b"x")
                assert accepted.recv(1) == b"x"
                tunnel.close()
                assert read_all(outer) == b""
                assert read_all(accepted) == b""
    tunnel.close()
    with pytest.raises(RuntimeError, match="closed"):
        tunnel.dial("127.0.0.1", 1)


def test_files_that_do_not_fit_are_refused(files: Files, tmp_path: Path) -> None:
    other = authority(tmp_path, "theirs")
    with pytest.raises(ssl.SSLError):
        TlsTunnel(files.cert, other.key, files.ca)
    with pytest.raises(FileNotFoundError):
        TlsTunnel(files.cert, files.key, tmp_path / "none.pem")


def test_the_nodes_of_a_job_talk_through_tunnels(files: Files) -> None:
    rows = [{"k": i * 7 % 50, "v": i} for i in range(5_000)]
    job = plait.Job("tunnelled")
    job.source(plait.Table(pa.Table.from_pylist(rows))).key_by("k").sum("v").sink(
        plait.Collect(), name="out"
    )
    expected = plait.run(job, workers=1).outputs["out"]
    payload = pickle.dumps((graph_of(job), Settings(workers=1, epoch_records=256)))
    agents = [NodeAgent(rank, payload, "secret", "127.0.0.1", files.tunnel()) for rank in range(2)]
    try:
        owners = tuple(bin % 2 for bin in range(1024))
        layout = Layout(epoch=0, members=(0, 1), owners=owners, readers=(EVERYONE,))
        for agent in agents:
            others = tuple(other.peer() for other in agents if other is not agent)
            agent.apply(Prepare(rank=agent.rank, layout=layout, peers=others, home=0))
        for agent in agents:
            assert agent.apply(Begin(layout=layout)) == Done()
        assert all(agent.engine.wait(60.0) for agent in agents)
        for agent in agents:
            agent.apply(End(good=True))
        made = merge_outcomes(
            "tunnelled", [found for a in agents if (found := a.outcome()) is not None]
        )
        assert made.outputs["out"].combine_chunks() == expected.combine_chunks()
    finally:
        for agent in agents:
            agent.close()
