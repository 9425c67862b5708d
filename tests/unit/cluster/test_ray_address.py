"""The first knock at a cluster: an address that is wrong is said so before Ray is asked."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from plait.cluster import ray_link
from plait.cluster.ray_link import NOT_MEANT, join, knock, running_here
from plait.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = b"\0\0\0\4\0\0\0\0\0"


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "host:0", "host:99999", "a:b"])
def test_what_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match="is not the address of a cluster: give auto"):
        knock(address)


def test_where_nobody_listens_no_cluster_answers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"no cluster answers at 127.0.0.1:{port}: "):
            knock(f"127.0.0.1:{port}")


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[int]:
    """Answers whoever comes with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(1000)
                line.sendall(request.param)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    "server", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0\0"], indirect=True
)
def test_another_server_is_not_ray(server: int) -> None:
    with pytest.raises(ClusterError, match=f"what listens at ray://127.0.0.1:{server} is not Ray"):
        knock(f"ray://127.0.0.1:{server}")


@pytest.mark.parametrize("server", [SETTINGS], indirect=True)
def test_a_server_of_http_2_is_let_through(server: int) -> None:
    knock(f"127.0.0.1:{server}")


def test_one_that_says_nothing_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_link, "REACH_S", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ClusterError, match="no cluster answers"),
    ):
        knock(f"127.0.0.1:{silent.getsockname()[1]}")


@pytest.fixture
def current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file with the address of a cluster, where something listens."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    file = tmp_path / "ray" / "ray_current_cluster"
    file.parent.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        file.write_text(f"127.0.0.1:{listener.getsockname()[1]}\n", encoding="ascii")
        yield file


def test_the_cluster_of_this_machine_is_found(current: Path) -> None:
    assert running_here() == current.read_text(encoding="ascii").strip()
    knock("auto")


def test_a_file_of_another_user_is_not_believed(
    current: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who listens at the address in it is sent the token."""
    if os.geteuid() == 0:
        os.chown(current, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: current.stat().st_uid + 1)
    assert running_here() is None
    with pytest.raises(ClusterError, match="ray_current_cluster belongs to another user"):
        knock("auto")


def test_several_nodes_are_not_started_here_if_there_is_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(ClusterError) as refused:
        join(None, start=True, nodes=2)
    assert str(refused.value) == NOT_MEANT


@pytest.mark.parametrize("server", [SETTINGS], indirect=True)
def test_a_cluster_of_other_machines_says_so_at_once(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_link, "has_raylet", lambda: False)
    with pytest.raises(ClusterError, match="this machine is not one of its machines"):
        join(f"127.0.0.1:{server}", start=False)


def test_the_trace_of_another_machine_is_told_by_its_end() -> None:
    """Ray says what went wrong at a server of clients with a trace, after a line without words."""
    trace = "Initialization failure from server:\nTraceback:\n  File x\nRuntimeError: no server\n"
    words = ray_link.no_cluster("ray://head:10001", ConnectionAbortedError(trace))
    assert words == (
        "no cluster answers at ray://head:10001: Initialization failure from server: "
        "RuntimeError: no server"
    )
    assert ray_link.no_cluster("head:1", OSError("gone\nmore")).endswith(": gone")


@pytest.mark.parametrize("failures", [1, 2])
def test_a_client_whose_process_could_not_be_started_tries_again(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: what fails twice is an error."""
    import ray

    left = [failures]

    def init(**given: object) -> None:
        if left[0]:
            left[0] -= 1
            raise ConnectionError("RuntimeError: Starting Ray client server failed. See a log")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_link, "knock", lambda address: None)
    monkeypatch.setattr(ray_link.Attached, "by", None)
    if failures == 1:
        join("ray://10.0.0.1:10001", start=False)
        assert ray_link.Attached.by == "ray://10.0.0.1:10001"
    else:
        with pytest.raises(ClusterError, match=r"no cluster answers at ray://10\.0\.0\.1:10001"):
            join("ray://10.0.0.1:10001", start=False)
