"""A wrong --address: every command that takes one says so, and soon."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from plait.cli import main
from plait.cli.cluster_commands import COMMANDS
from plait.cluster import ray_link

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "submit": ("job.py",),
    "ls": (),
    "status": ("carts",),
    "logs": ("carts",),
    "top": ("--once",),
    "rescale": ("carts", "--nodes", "2"),
    "drain": ("carts", "node-1"),
    "shed": ("carts", "out", "0.5"),
    "checkpoint": ("carts",),
    "savepoint": ("carts", "evening"),
    "cancel": ("carts",),
    "forget": ("carts",),
    "preflight": (),
    "why": ("carts",),
    "explain": ("carts",),
}
JOB = """
import plait

job = plait.Job("carts")
job.source(plait.Items([{"n": 1}])).sink(plait.Collect())
"""


def test_all_commands_of_clusters_are_tried() -> None:
    assert set(ARGUMENTS) == {*COMMANDS, "explain"}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster is attached or runs here, and a job is in this folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "job.py").write_text(JOB)


@pytest.mark.parametrize("command", ARGUMENTS)
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no cluster answers at 127.0.0.1:1: "),
        ("ray://127.0.0.1:1", "no cluster answers at ray://127.0.0.1:1: "),
        ("nonsense", "'nonsense' is not the address of a cluster: give auto, host:port or"),
        ("", "'' is not the address of a cluster"),
    ],
)
def test_a_wrong_address_is_said_so(
    command: str, address: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *ARGUMENTS[command], "--address", address]) == 2
    assert words in capsys.readouterr().err


@pytest.fixture
def dripping() -> Iterator[int]:
    """A server that answers with a byte now and then, for as long as anybody listens."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                while not over.wait(0.05):
                    try:
                        line.sendall(b"\0")
                    except OSError:
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        over.set()
        thread.join()


def test_a_server_that_drips_is_not_waited_for(
    dripping: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limit holds for all bytes of its greeting, not for each."""
    monkeypatch.setattr(ray_link, "REACH_S", 0.2)
    monkeypatch.setattr(ray_link, "FRAME_HEAD_BYTES", 1_000_000)
    assert main(["ls", "--address", f"127.0.0.1:{dripping}"]) == 2
    assert f"no cluster answers at 127.0.0.1:{dripping}: timed out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--nodes", "0"), "--nodes is 0"), (("--ports", "x"), "--ports is 'x'; it must be A-B")],
)
def test_a_preflight_of_nothing_is_refused(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", *arguments]) == 2
    assert words in capsys.readouterr().err
