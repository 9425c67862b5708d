"""Machines that should be in the cluster and are not, and what the head says of each.

The cluster file that `ray up` left on the head lists them; the autoscaler, which sets them up over
SSH, writes what went wrong into the logs of its monitor. Elsewhere than on the head nothing is
known of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.deploy.machines import address_of, read_cluster_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

LOGS = ("monitor.err", "monitor.out", "monitor.log")
LINES = 3
"""Of the log, for each machine."""
TAIL_BYTES = 1 << 20
NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours and other control characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """What is known of machines that did not come."""

    said: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each of them, by its address in the cluster file, the last lines about it."""
    logs: str = ""
    """The folder with Ray's logs on this machine."""


def absent_machines(alive: Collection[str], home: Path, logs: Path) -> Absent:
    """Machines of the cluster file that are not among the addresses in Ray's list."""
    try:
        cluster = read_cluster_file(home)
    except (OSError, ValueError, KeyError):
        return Absent(logs=str(logs))
    wanted = [host for host in (cluster.head, *cluster.workers) if host]
    missing = [host for host in wanted if not {host, address_of(host)} & set(alive)]
    return Absent(said={host: last_lines(logs, host) for host in missing}, logs=str(logs))


def last_lines(logs: Path, host: str) -> tuple[str, ...]:
    """The end of the first log that has anything on a machine."""
    for name in LOGS:
        about = lines_about(tail(logs / name), host)
        if about:
            return tuple(about[-LINES:])
    return ()


def lines_about(text: str, host: str) -> list[str]:
    """Lines that name a machine, each once, in the order of their last appearance."""
    names = re.compile(rf"(?<![\w.]){re.escape(host)}(?![\w]|\.\w)")
    clean = (NOISE.sub("", line).strip() for line in text.splitlines())
    found = [line for line in clean if names.search(line)]
    return list(dict.fromkeys(reversed(found)))[::-1]


def tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
