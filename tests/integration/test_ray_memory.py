"""What a job costs the machines of a real Ray before it owns anything: a large payload, and nodes
that die while they join."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import plait
from tests.integration.conftest import PATIENCE_S, until
from tests.integration.test_ray_changes import check_whole, endless, members, stopped
from tests.integration.test_ray_control import folder_of, size_of

if TYPE_CHECKING:
    from pathlib import Path

    from plait.errors import JobError

pytestmark = pytest.mark.integration

TABLE_BYTES = 200_000_000
PLAIN_BYTES = 350_000_000
"""More than a process of Ray with plait loaded has by itself."""
LARGE = f"""
import psutil
import numpy as np
import pyarrow as pa
import plait
from plait import col

numbers = np.arange({TABLE_BYTES} // 8)
table = pa.table({{"n": numbers}})
job = plait.Job("broad")
job.source(plait.Table(table, rate_per_s=1000)).filter(col("n") < 0).sink(plait.Discard())
plait.submit(job, nodes=2, workers=1, wait="running")
print(psutil.Process().memory_full_info().uss)
"""


def own_bytes(pid: int) -> int:
    """Memory of a process that it shares with no other."""
    return int(psutil.Process(pid).memory_full_info().uss)


def test_a_large_table_is_held_once_by_whoever_made_it(
    cluster: str, cluster_environment: dict[str, str], tmp_path: Path
) -> None:
    """The others read it where Ray's store or the file has it."""
    script = tmp_path / "broad.py"
    script.write_text(LARGE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**cluster_environment, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    driver = int(done.stdout.split()[-1])
    handle = plait.attach("broad", cluster)
    link: Any = handle._link
    folder = folder_of(handle)
    held = {
        "driver": driver - TABLE_BYTES,
        "manager": own_bytes(link.ask("pid")),
        **{f"node-{node.rank}": own_bytes(node.pid) for node in handle.status().nodes},
    }
    assert {who: size for who, size in held.items() if size > PLAIN_BYTES} == {}
    assert TABLE_BYTES <= size_of(folder / "payloads") < 1.01 * TABLE_BYTES
    assert size_of(folder / "journal") < 1_000_000
    handle.cancel()
    handle.wait(PATIENCE_S)
    until(lambda: size_of(folder / "payloads") < 0.01 * TABLE_BYTES)  # other jobs have theirs
    handle.forget()


def test_a_joiner_that_dies_before_it_owns_anything_does_not_end_the_job(cluster: str) -> None:
    """The others cannot answer while one of them is stopped, so the new node is about to join when
    it is killed."""
    handle = plait.submit(
        endless("joined"), address=cluster, nodes=2, workers=1, silence="100s", wait="running"
    )
    until(lambda: handle.metrics()["delivered"] > 0, handle)
    stopped_pid = handle.status().nodes[1].pid
    told: list[JobError] = []

    def rescale() -> None:
        try:
            handle.rescale(3).wait(PATIENCE_S)
        except plait.JobError as error:
            told.append(error)

    os.kill(stopped_pid, signal.SIGSTOP)
    try:
        thread = threading.Thread(target=rescale)
        thread.start()
        until(lambda: any(node.rank == 2 and node.pid for node in handle.status().nodes), handle)
        (joiner,) = [node for node in handle.status().nodes if node.rank == 2]
        assert joiner.bins == 0
        os.kill(joiner.pid, signal.SIGKILL)
        until(lambda: handle.status().nodes[-1].phase == "lost", handle)
    finally:
        os.kill(stopped_pid, signal.SIGCONT)
    thread.join()
    assert "node 2 was lost before it took over" in str(told[0])
    assert handle.status().phase == "running"
    handle.rescale(3).wait(PATIENCE_S)
    assert members(handle) == [0, 1, 3]
    result = stopped(handle)
    check_whole(result)
    assert result.without == ()
    handle.forget()
