"""What the head does to the other machines: the commands it calls, in which order."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from plait.deploy import join, machines, stop
from plait.deploy.machines import FILE, copy_command, note_joined, read_cluster_file, ssh_command

if TYPE_CHECKING:
    from pathlib import Path

LEFT_BY_RAY = {
    "provider": {"head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2", "10.0.0.3"]},
    "auth": {"ssh_user": "plait", "ssh_private_key": "~/ray_bootstrap_key.pem"},
    "file_mounts": {"~/.plait/env.sh": "~/.plait/env.sh", "~/.plait/wheels": "~/.plait/wheels"},
    "initialization_commands": [],
    "setup_commands": ["setup"],
    "worker_setup_commands": ["setup", "own setup"],
    "worker_start_ray_commands": ["ray stop", "ray start --address=$RAY_HEAD_IP:6379"],
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".plait" / "wheels").mkdir(parents=True)
    (tmp_path / ".plait" / "env.sh").touch()
    (tmp_path / FILE).write_text(json.dumps(LEFT_BY_RAY), encoding="utf-8")
    return tmp_path


def test_the_file_that_ray_up_left(home: Path) -> None:
    cluster = read_cluster_file(home)
    assert (cluster.head, cluster.workers) == ("10.0.0.1", ("10.0.0.2", "10.0.0.3"))
    assert cluster.setup == ("setup", "own setup")  # Ray has put the common ones in already
    note_joined(home, "10.0.0.4")
    note_joined(home, "10.0.0.2")
    note_joined(home, "10.0.0.4")
    assert read_cluster_file(home).workers == ("10.0.0.2", "10.0.0.3", "10.0.0.4")


def test_a_command_knows_the_head_and_survives_two_shells(home: Path) -> None:
    *ssh, target, shell = ssh_command(read_cluster_file(home), "10.0.0.4", 'echo "$RAY_HEAD_IP \'"')
    assert (ssh[0], target) == ("ssh", "plait@10.0.0.4")
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "10.0.0.1 '"


def test_folders_are_copied_into_folders(home: Path) -> None:
    cluster = read_cluster_file(home)
    *_, source, target = copy_command(cluster, "10.0.0.4", home, "~/.plait/env.sh")
    assert (source, target) == (f"{home}/.plait/env.sh", "plait@10.0.0.4:.plait/env.sh")
    *_, source, target = copy_command(cluster, "10.0.0.4", home, "~/.plait/wheels")
    assert (source, target) == (f"{home}/.plait/wheels/", "plait@10.0.0.4:.plait/wheels/")


def test_a_machine_is_set_up_as_ray_up_does_it(home: Path) -> None:
    cluster = read_cluster_file(home)
    assert [line for line, _ in join.setup_steps(cluster, "10.0.0.4", home)] == [
        "make ~/.plait",
        "copy ~/.plait/env.sh",
        "copy ~/.plait/wheels",
        "setup",
        "own setup",
    ]
    assert [line for line, _ in join.start_steps(cluster, "10.0.0.4")] == [
        "ray stop",
        "ray start --address=$RAY_HEAD_IP:6379",
    ]


def test_a_step_that_fails_is_the_last(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machines, "CONNECT_S", 1)
    (home / FILE).write_text(
        json.dumps({**LEFT_BY_RAY, "auth": {"ssh_user": "nobody-of-that-name"}}), encoding="utf-8"
    )
    assert join.join("127.0.0.1:1 is no host", home) == 1
    said = capsys.readouterr().out
    assert "could not be set up" in said
    assert "copy" not in said
    assert read_cluster_file(home).workers == ("10.0.0.2", "10.0.0.3")


def test_elsewhere_than_on_the_head_nothing_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert join.join("10.0.0.4", tmp_path) == stop.stop_all(tmp_path) == 1
    assert capsys.readouterr().out.count("call this on the head of a cluster") == 2


def test_the_head_is_stopped_before_its_workers(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its autoscaler would start them again. A worker that is left is named."""
    called: list[str] = []

    def run(command: list[str]) -> tuple[int, str]:
        called.append(command[-2] if command[0] == "ssh" else "head")
        return (1, "no answer") if "plait@10.0.0.3" in command else (0, "")

    monkeypatch.setattr(stop, "run", run)
    note_joined(home, "10.0.0.4")
    assert stop.stop_all(home) == 1
    assert called[0] == "head"
    assert sorted(called[1:]) == ["plait@10.0.0.2", "plait@10.0.0.3", "plait@10.0.0.4"]
    said = capsys.readouterr().out
    assert "error: 10.0.0.3: no answer" in said
    assert "10.0.0.4: Ray has ended" in said
    assert "10.0.0.4" in read_cluster_file(home).workers  # for the next try
