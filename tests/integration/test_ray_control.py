"""The control plane on a real Ray cluster: mistakes, silence, large payloads, processes that go."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.errors import ClusterError, JobError
from tests.integration.conftest import PATIENCE_S, until
from tests.integration.test_ray_changes import (
    check_whole,
    endless,
    members,
    started,
    stopped,
)

if TYPE_CHECKING:
    from plait.cluster.job_handle import JobHandle

pytestmark = pytest.mark.integration

MISTAKES: list[dict[str, Any]] = [
    {"nodes": 2.5},
    {"nodes": "3"},
    {"nodes": True},
    {"nodes": 0},
    {"nodes": 10**6},
    {"nodes": 3, "strategy": "flud"},
    {"nodes": 3, "strategy": "flud", "dry_run": True},
    {"nodes": 3, "gap": 10**30},
    {"nodes": 3, "gap": -1},
    {"nodes": 3, "gap": 1.5},
    {"nodes": 3, "throttle": float("nan")},
    {"nodes": 3, "throttle": True},
    {"nodes": 3, "throttle": 1e-300},
    {"nodes": 3, "balance": "yes"},
    {"nodes": 3, "dry_run": 1},
]


def folder_of(handle: JobHandle) -> Path:
    """Where the manager keeps its journal, on this machine."""
    link: Any = handle._link
    pid = link.ask("pid")
    opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    return next(Path(path).parents[1] for path in opened if path.endswith("/journal/lock"))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] == "Z"
    except OSError:
        return True


def test_mistakes_are_refused_at_once_and_a_full_disk_for_a_moment_hurts_nobody(
    cluster: str,
) -> None:
    handle = started(cluster, "mistaken", 2)
    for given in MISTAKES:
        with pytest.raises(JobError):
            handle.rescale(**given)
    with pytest.raises(JobError, match="strategy is 'flud'; it must be one of \"all_at_once\""):
        handle.drain("node-1", strategy="flud")  # type: ignore[arg-type]
    link: Any = handle._link
    pid = link.ask("pid")
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, limits[1]))  # no file may grow
    with pytest.raises(JobError, match="cannot write its journal"):
        handle.rescale(3)
    assert "cannot write its journal" in str(handle.status())
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    handle.rescale(3).wait(PATIENCE_S)
    assert members(handle) == [0, 1, 2]
    assert link.ask("pid") == pid
    check_whole(stopped(handle))
    handle.forget()


def holds_the_interpreter(record: Any) -> dict[str, int]:
    if record.n == 100:
        ctypes.PyDLL(None).usleep(6_000_000)  # without giving up the interpreter's lock
    return {"n": record.n}


def test_a_call_that_holds_the_interpreter_is_not_the_loss_of_its_node(cluster: str) -> None:
    job = plait.Job("holding")
    given = job.source(plait.Items([{"n": n} for n in range(200)]))
    given.map(holds_the_interpreter, schema={"n": int}).sink(plait.Collect(), name="out")
    handle = plait.submit(
        job, address=cluster, nodes=2, workers=1, silence="2s", epoch_records=16, pool=0
    )
    assert handle.result(PATIENCE_S).outputs["out"].num_rows == 200


def test_a_process_that_is_stopped_for_a_moment_is_not_lost_and_one_for_longer_is(
    cluster: str,
) -> None:
    job = endless("stopped")
    handle = plait.submit(job, address=cluster, nodes=2, workers=1, silence="8s", wait="running")
    until(lambda: handle.metrics()["delivered"] > 0, handle)
    victim = handle.status().nodes[1].pid
    os.kill(victim, signal.SIGSTOP)
    until(lambda: handle.status().nodes[1].age_s > 3.0, handle)
    os.kill(victim, signal.SIGCONT)
    before = handle.metrics()["delivered"]
    until(lambda: handle.metrics()["delivered"] > before, handle)
    os.kill(victim, signal.SIGSTOP)
    with pytest.raises(ClusterError, match="no heartbeat and no report; silence is 8 s"):
        handle.result(PATIENCE_S)


def test_a_large_payload_is_not_in_the_journal_and_outlives_its_driver_and_the_manager(
    cluster: str, cluster_environment: dict[str, str], tmp_path: Path
) -> None:
    """Submitted by a process that ends; the manager is killed; then a node joins."""
    script = tmp_path / "large.py"
    script.write_text(LARGE, encoding="utf-8")
    subprocess.run(
        [sys.executable, str(script)],
        env={**cluster_environment, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        check=True,
        timeout=PATIENCE_S,
    )
    handle = plait.attach("large", cluster)
    link: Any = handle._link
    folder = folder_of(handle)
    assert size_of(folder / "payloads") > 8_000_000
    assert size_of(folder / "journal") < 1_000_000
    first = link.ask("pid")
    os.kill(first, signal.SIGKILL)
    handle.rescale(3).wait(PATIENCE_S)
    assert link.ask("pid") != first
    assert members(handle) == [0, 1, 2]
    handle.stop()
    assert handle.result(PATIENCE_S).account.read > 0
    until(lambda: size_of(folder / "payloads") == 0)
    handle.forget()


LARGE = """
import pyarrow as pa
import plait
from plait import col

table = pa.table({"n": range(1_100_000)})
job = plait.Job("large")
rows = job.source(plait.Table(table, rate_per_s=20_000))
rows.with_columns(k=col("n") % 10).key_by("k").count().sink(plait.Collect(), name="out")
plait.submit(job, nodes=2, workers=1, wait="running")
"""


def test_a_job_outlives_a_driver_that_ends_before_its_nodes_are_made(
    cluster: str, cluster_environment: dict[str, str], tmp_path: Path
) -> None:
    """As `plait submit` does. Nodes that could not be made would be lost, and their hosts avoided:
    two nodes would be on one host while another has none."""
    script = tmp_path / "short.py"
    script.write_text(LARGE.replace(', wait="running"', "").replace("nodes=2", "nodes=3"), "utf-8")
    subprocess.run(
        [sys.executable, str(script)],
        env={**cluster_environment, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        check=True,
        timeout=PATIENCE_S,
    )
    handle = plait.attach("large", cluster)
    until(lambda: handle.status().phase == "running", handle)
    nodes = handle.status().nodes
    assert [(node.phase, node.error) for node in nodes] == [("member", "")] * 3
    assert len({node.host for node in nodes}) == 3
    handle.cancel()
    handle.wait()
    handle.forget()


def test_a_host_that_does_not_answer_is_asked_once(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each probe is a process: many of them would keep a busy machine from ever answering."""
    import ray

    from plait.coordinator.shell import ray_hosts

    begun, gate = tmp_path / "begun", tmp_path / "gate"
    begun.mkdir()

    def slow_probe() -> float:
        (begun / str(os.getpid())).touch()
        while not gate.exists():
            threading.Event().wait(0.01)
        return 0.5

    monkeypatch.setattr(ray_hosts, "PROBE", ray.remote(num_cpus=0, max_retries=0)(slow_probe))
    monkeypatch.setattr(ray_hosts, "PROBE_S", 0.05)
    hosts = ray_hosts.RayHosts()
    others = {host.name for host in hosts.alive() if host.node_id != hosts.here}
    for _ in range(5):
        seen = {view.host for view in hosts.views() if view.cpu_ratio is not None}
        assert not seen & others
    until(lambda: len(list(begun.iterdir())) == len(others))
    hosts.views()
    gate.touch()
    until(lambda: all(view.cpu_ratio is not None for view in hosts.views()))
    assert len(list(begun.iterdir())) == len(others) >= 2


def test_processes_end_with_their_part_and_the_result_stays(cluster: str) -> None:
    handle = started(cluster, "leaving", 3)
    pids = {node.rank: node.pid for node in handle.status().nodes}
    handle.rescale(2).wait(PATIENCE_S)
    (left,) = {0, 1, 2} - set(members(handle))
    until(lambda: gone(pids[left]))
    assert [node.links_down for node in handle.status().members] == [(), ()]
    result = stopped(handle)
    check_whole(result)
    until(lambda: all(map(gone, pids.values())))
    again = handle.result()
    assert again.outputs["out"].equals(result.outputs["out"])
    assert "Rate" in handle.explain()
    assert handle.logs() == ""
    folder = folder_of(handle)
    assert list((folder / "outcomes").iterdir())
    other = plait.submit(endless("leaving"), address=cluster, workers=1, wait="running")
    assert other.status().phase == "running"
    with pytest.raises(JobError, match="there is a job leaving already: cancel it first"):
        plait.submit(endless("leaving"), address=cluster, workers=1)
    newer = plait.submit(
        endless("leaving"), address=cluster, workers=1, replace=True, wait="running"
    )
    newer.cancel()
    assert newer.wait(PATIENCE_S).phase == "cancelled"


def test_a_rescale_right_after_submit_waits_until_the_job_runs(cluster: str) -> None:
    handle = plait.submit(
        endless("early"), address=cluster, workers=1, epoch_records=512, bin_bits=6
    )
    handle.rescale(2).wait(PATIENCE_S)
    assert members(handle) == [0, 1]
    check_whole(stopped(handle))


def test_files_are_named_from_where_the_job_was_submitted(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("n\n1\n2\n")
    job = plait.Job("relative")
    job.source(plait.Files("in.csv")).with_columns(m=col("n") + 1).sink(plait.Files("out.csv"))
    plait.submit(job, address=cluster, nodes=2, workers=1).result(PATIENCE_S)
    assert Path("out.csv").read_text() == '"n","m"\n1,2\n2,3\n'


def test_a_table_goes_to_the_nodes_as_it_is(cluster: str) -> None:
    table = pa.table({"n": pa.array(range(200_000))})
    job = plait.Job("as-it-is")
    job.source(plait.Table(table)).filter(col("n") % 2 == 0).sink(plait.Collect(), name="out")
    result = plait.submit(job, address=cluster, nodes=2, workers=1).result(PATIENCE_S)
    assert result.outputs["out"].column("n").to_pylist() == list(range(0, 200_000, 2))


def test_a_cluster_without_jobs_has_an_empty_list_and_a_wrong_address_is_said_so(
    cluster: str,
) -> None:
    assert plait.jobs(cluster, namespace="nobody") == ()
    with pytest.raises(JobError, match="it has no jobs"):
        plait.attach("x", cluster, namespace="nobody")
    for address, words in (
        ("127.0.0.1:1", "no cluster answers at 127.0.0.1:1: "),
        ("nonsense", "'nonsense' is not the address of a cluster"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "plait", "ls", "--address", address],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 2
        assert words in done.stderr


def test_a_manager_that_cannot_go_on_ends_its_process_and_says_why() -> None:
    code = "from plait.coordinator.shell.ray_manager import end_process; end_process('no journal')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "plait: the coordinator ends and is started anew: no journal" in done.stderr


def test_silence_is_what_the_cluster_says_or_what_ray_waits_and_at_most_ten_seconds() -> None:
    from plait.coordinator.shell.ray_manager import silence_here

    ray = {
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }
    assert silence_here({}) == 10.0
    assert silence_here(ray) == 4.5
    assert silence_here({**ray, "RAY_health_check_timeout_ms": "10000"}) == 10.0
    assert silence_here({**ray, "RAY_health_check_timeout_ms": "soon"}) == 10.0
    assert silence_here({**ray, "PLAIT_SILENCE": "20s"}) == 20.0
    with pytest.raises(JobError, match="PLAIT_SILENCE is 'soon'"):
        silence_here({"PLAIT_SILENCE": "soon"})
