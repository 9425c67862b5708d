"""A Ray cluster of three nodes on this machine, for all tests that need one, and a Spark session.

The cluster is a process of its own with its own token and temp folder, each node on a loopback
address of its own; tests attach to it for the time of a module. Threads of Ray in the tests'
process come and go as Ray likes, so here only threads of plait must be gone after a test.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import plait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.cluster.job_handle import JobHandle

PATIENCE_S = 120.0
"""What has not happened after so long does not happen."""

CLUSTER = """
import socket, sys
from ray.cluster_utils import Cluster

def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]

common = dict(num_cpus=2, object_store_memory=200_000_000)
cluster = Cluster()
try:
    head = cluster.add_node(
        node_ip_address="127.0.0.2", include_dashboard=True, dashboard_host="127.0.0.1",
        dashboard_port=free_port(), dashboard_agent_listen_port=free_port(),
        ray_client_server_port=free_port(), **common,
    )
    for number in (3, 4):
        cluster.add_node(
            node_ip_address=f"127.0.0.{number}", include_dashboard=False,
            dashboard_agent_listen_port=free_port(), **common,
        )
    client = head._ray_params.ray_client_server_port
    print("address", cluster.address, head.webui_url, client, flush=True)
    sys.stdin.read()
finally:
    cluster.shutdown()
"""


def until(true: Callable[[], bool], handle: JobHandle | None = None) -> None:
    """Waits until something is true; fails when the job of `handle` is over before."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        view = handle.status() if handle is not None else None
        assert view is None or not view.over, str(view)
        assert time.monotonic() < end, str(view)
        time.sleep(0.05)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where a module names tests that are quick, its other ones are slow."""
    for item in items:
        quick = getattr(getattr(item, "module", None), "QUICK", None)
        if quick is not None and item.name not in quick:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Fails a test that leaves a thread of plait behind."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("plait")]
    assert not left


CLUSTERS: list[subprocess.Popen[str]] = []


def stop(cluster: subprocess.Popen[str]) -> None:
    if cluster.poll() is None:
        cluster.communicate()  # the end of its input is its end


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """The cluster is not idle when nobody uses it: it ends with its last test."""
    if nextitem is None or not nextitem.path.name.startswith("test_ray"):
        while CLUSTERS:
            stop(CLUSTERS.pop())


@pytest.fixture(scope="session")
def cluster_environment() -> Iterator[dict[str, str]]:
    """What a process needs to attach; the cluster itself ends with the tests."""
    # A short path: Ray puts sockets into it, whose names may not be long.
    with tempfile.TemporaryDirectory(prefix="pl", dir="/tmp") as name:
        folder = Path(name)
        token = folder / "token"
        token.write_text("0123456789abcdef" * 4 + "\n", encoding="ascii")
        token.chmod(0o600)
        ours = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_raylet_start_wait_time_s": "300",
        }
        log = (folder / "cluster.log").open("w+b")
        process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            env={**os.environ, **ours},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        CLUSTERS.append(process)
        try:
            assert process.stdout is not None
            said = next((line for line in process.stdout if line.startswith("address ")), "")
            log.seek(0)
            assert said, log.read().decode(errors="replace")
            _, address, dashboard, client = said.split()
            yield {
                **ours,
                "RAY_ADDRESS": address,
                "RAY_API_SERVER_ADDRESS": f"http://{dashboard}",
                "CLIENT_ADDRESS": f"ray://127.0.0.2:{client}",
            }
        finally:
            stop(process)
            log.close()


@pytest.fixture(scope="module")
def cluster(cluster_environment: dict[str, str]) -> Iterator[str]:
    """Attaches this process; gives the address."""
    before = {name: os.environ.get(name) for name in cluster_environment}
    os.environ.update(cluster_environment)
    try:
        address = cluster_environment["RAY_ADDRESS"]
        from plait.cluster.ray_link import connect

        # A busy machine must not look like a lost one.
        connect(address).start_manager(silence_s=60.0)
        yield address
    finally:
        ray = sys.modules.get("ray")
        if ray is not None:
            ray.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session on one thread; its process ends with the tests."""
    from benchmarks.support.spark_session import spark_session

    with spark_session(cores=1, memory="512m") as session:
        yield session


NUMBERS = itertools.count()


@pytest.fixture
def entry_point(cluster: str) -> Callable[..., Any]:
    """Runs a job on two nodes of the cluster; elsewhere `entry_point` runs it here."""

    def on_ray(job: Any, **settings: Any) -> Any:
        name = f"entry-{next(NUMBERS)}"
        handle = plait.submit(job, address=cluster, nodes=2, name=name, workers=1, **settings)
        try:
            return handle.result(timeout=120)
        finally:
            handle.forget()

    return on_ray
