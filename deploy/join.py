"""Brings a machine into a running cluster, without a restart. Runs on the head.

    python -m plait.deploy.join HOST

A second `ray up` restarts Ray everywhere and `ray up --no-restart` changes nothing, so a new
machine comes in by hand: the head copies its own files to it and runs there what the cluster file
has for a worker. The same brings back a machine that was set up anew at its old address, which the
autoscaler takes for one that has its files already.
"""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from plait.deploy.machines import (
    ClusterFile,
    address_of,
    copy_command,
    note_joined,
    read_cluster_file,
    run,
    ssh_command,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Step = tuple[str, list[str]]
"""A line for people, and a program to call."""
STARTS = 3
"""Ray gives itself 30 seconds to start, which a machine with much to do may not keep."""

LISTED_S = 60.0
"""How long a machine on which Ray has started may take to be in Ray's list."""


def setup_steps(cluster: ClusterFile, host: str, home: Path) -> Iterator[Step]:
    """What has to be done before Ray is started there, in order."""
    parents = sorted({str(Path(item).parent) for item in cluster.folders})
    folders = " ".join(f"~/{quote(one[2:])}" if one[:2] == "~/" else quote(one) for one in parents)
    yield f"make {folders}", ssh_command(cluster, host, f"umask 077 && mkdir -p {folders}")
    for item in cluster.folders:
        yield f"copy {item}", copy_command(cluster, host, home, item)
    for command in cluster.setup:
        yield command, ssh_command(cluster, host, command)


def start_steps(cluster: ClusterFile, host: str) -> Iterator[Step]:
    for command in cluster.start:
        yield command, ssh_command(cluster, host, command)


def carry_out(host: str, steps: Iterable[Step]) -> bool:
    """Whether all went well; the first that does not is told and is the last."""
    for line, command in steps:
        print(f"{host}: {line}", flush=True)
        status, said = run(command)
        if status:
            print(f"{said}\n{host}: that ended with status {status}", flush=True)
            return False
    return True


def join(host: str, home: Path) -> int:
    try:
        cluster = read_cluster_file(home)
    except FileNotFoundError as error:
        print(f"error: {error.filename} is missing: call this on the head of a cluster")
        return 1
    if not carry_out(host, setup_steps(cluster, host, home)):
        print(f"error: {host} could not be set up")
        return 1
    if not any(carry_out(host, start_steps(cluster, host)) for _ in range(STARTS)):
        print(f"error: {host}: Ray could not be started there")
        return 1
    note_joined(home, host)
    from plait.deploy.ray_preflight import wait_for_address

    if not wait_for_address(address_of(host), LISTED_S):
        print(
            f"error: {host}: Ray was started there, but is not in the list of this cluster after "
            f"{LISTED_S:.0f} s; look at ~/.plait/tmp/ray/session_latest/logs/raylet.out there"
        )
        return 1
    print(f"{host} has joined; plait rescale JOB --nodes N lets a job use it")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1:
        print("usage: python -m plait.deploy.join HOST")
        return 2
    return join(given[0], Path.home())


if __name__ == "__main__":
    sys.exit(main())
