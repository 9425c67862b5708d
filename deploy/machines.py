"""The machines of a cluster as its head knows them, and commands on them over SSH.

`ray up` leaves the cluster file on the head, with the key, for the autoscaler. What is done to
workers without `ray up` (to bring one in, to end Ray on all) is done from there, with the same
files and the same commands, so that a machine is set up in one way only. Every wait has a limit.
"""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "ray_bootstrap_config.yaml"
"""In the home folder of the head; Ray writes it as JSON."""
JOINED = Path(".plait") / "joined"
"""Machines that came without `ray up`, one address a line."""
CONNECT_S = 20
COMMAND_S = 900.0
"""For one command: the longest installs Ray."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile:
    """What the head knows of its cluster."""

    head: str
    workers: tuple[str, ...]
    """By the cluster file; then those that joined later."""
    user: str
    key: str
    """The file with the private key for SSH; empty: as SSH is configured."""
    folders: tuple[str, ...]
    """Files and folders that every machine has."""
    setup: tuple[str, ...]
    start: tuple[str, ...]
    """Commands that start Ray on a worker; they read RAY_HEAD_IP."""


def read_cluster_file(home: Path) -> ClusterFile:
    """Raises FileNotFoundError where `ray up` left no file: elsewhere than on the head."""
    loaded: dict[str, Any] = json.loads((home / FILE).read_text(encoding="utf-8"))
    provider, auth = loaded["provider"], loaded.get("auth", {})
    listed = provider.get("worker_ips", [])
    return ClusterFile(
        head=provider.get("head_ip", ""),
        workers=tuple(dict.fromkeys([*listed, *read_joined(home)])),
        user=auth.get("ssh_user", ""),
        key=auth.get("ssh_private_key", ""),
        folders=tuple(loaded.get("file_mounts", {})),
        setup=(*loaded.get("initialization_commands", ()), *worker_setup(loaded)),
        start=tuple(loaded["worker_start_ray_commands"]),
    )


def worker_setup(loaded: dict[str, Any]) -> list[str]:
    """Ray puts the common commands into those of the workers before it writes the file."""
    common, own = loaded.get("setup_commands", []), loaded.get("worker_setup_commands", [])
    return own if own[: len(common)] == common else [*common, *own]


def read_joined(home: Path) -> list[str]:
    try:
        return (home / JOINED).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return []


def note_joined(home: Path, host: str) -> None:
    if host not in read_cluster_file(home).workers:
        with (home / JOINED).open("a", encoding="ascii") as file:
            file.write(f"{host}\n")


def address_of(host: str) -> str:
    """The address a name stands for; the name itself if nobody knows it."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def ssh_options(cluster: ClusterFile) -> list[str]:
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}"]
    options += ["-o", "StrictHostKeyChecking=accept-new", "-o", "LogLevel=ERROR"]
    return [*options, "-i", str(Path(cluster.key).expanduser())] if cluster.key else options


def target(cluster: ClusterFile, host: str) -> str:
    return f"{cluster.user}@{host}" if cluster.user else host


def ssh_command(cluster: ClusterFile, host: str, command: str) -> list[str]:
    """As the autoscaler calls it: a login shell that knows the address of the head."""
    whole = f"export RAY_HEAD_IP={shlex.quote(cluster.head)}; {command}"
    shell = f"bash --login -c {shlex.quote(whole)}"
    return ["ssh", *ssh_options(cluster), target(cluster, host), shell]


def copy_command(cluster: ClusterFile, host: str, home: Path, item: str) -> list[str]:
    """Copies a file or folder of the head to the same place on another machine."""
    path = Path(item.replace("~", str(home), 1))
    inside = "/" if path.is_dir() else ""
    there = f"{target(cluster, host)}:{item.removeprefix('~/')}{inside}"
    shell = shlex.join(["ssh", *ssh_options(cluster)])
    return ["rsync", "-a", "-e", shell, f"{path}{inside}", there]


def run(command: list[str]) -> tuple[int, str]:
    """The exit status and all that was said."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end within {COMMAND_S:.0f} s"
    except FileNotFoundError as error:
        return 127, f"{error.filename} is not installed here"
    return done.returncode, done.stdout.strip()
