"""The first knock at a cluster: an address that is wrong is said so before Ray is asked."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from plait.cluster import ray_link
from plait.cluster.ray_link import knock
from plait.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
