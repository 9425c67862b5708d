"""Ends Ray on all machines of a cluster. Runs on the head.

    python -m plait.deploy.stop

`ray down` ends Ray on the head only when machines are yours: the raylets of the workers wait for
the head to come back. The head comes first here, because its autoscaler would start workers again.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from plait.deploy.machines import (
    JOINED,
    ClusterFile,
    read_cluster_file,
    run,
    ssh_command,
)

AT_ONCE = 32
STOP = ". ~/.plait/env.sh && ray stop --grace-period 10 && ! pgrep -u $(id -u) -x raylet"
"""Fails if a raylet of this user is left."""


def stop_worker(cluster: ClusterFile, host: str) -> tuple[int, str]:
    return run(ssh_command(cluster, host, STOP))


def stop_all(home: Path) -> int:
    try:
        cluster = read_cluster_file(home)
    except FileNotFoundError as error:
        print(f"error: {error.filename} is missing: call this on the head of a cluster")
        return 1
    found = {cluster.head or "the head": run(["bash", "-c", STOP])}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ended = pool.map(lambda host: stop_worker(cluster, host), cluster.workers)
        found |= dict(zip(cluster.workers, ended, strict=True))
    for host, (status, said) in found.items():
        print(f"{host}: Ray has ended" if status == 0 else f"error: {host}: {said}", flush=True)
    if any(status for status, _ in found.values()):
        print("  run there: . ~/.plait/env.sh && ray stop --force")
        return 1
    (home / JOINED).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(stop_all(Path.home()))
