"""The preflight on a real Ray: on one node, and on two of which one has another plait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# Not 127.0.0.1: Ray puts the address of the machine in its place when a driver connects.
pytestmark = pytest.mark.integration

ONE_NODE = """
import json, socket, sys
import ray
from plait.deploy.preflight import Needs, check, report
from plait.deploy.ray_preflight import gather, preflight

ray.init(
    address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
    _node_ip_address="127.0.0.2", configure_logging=False,
)
taken = socket.create_server(("127.0.0.2", 0))
port = taken.getsockname()[1]
try:
    gathered = gather("local", 1, (0, 0), 0.0)
    node, here = gathered.hosts
    told = {
        "findings": [[f.severity, f.what] for f in check(gathered.hosts, Needs(cores=1))],
        "report": report(check(gathered.hosts, Needs(cores=1)), gathered.hosts),
        "silent": dict(gathered.silent),
        "python": node.python, "plait": node.plait_version, "here": here.plait_version,
        "native": node.native_error, "mode": node.token_mode, "file": node.token_file_mode,
        "offset": abs(node.clock_offset_ms) <= node.clock_error_ms + 1.0,
        "too few": [f.what for f in preflight(needs=Needs(nodes=2, cores=1))],
        "taken": [f.what for f in preflight(ports=(port, port), needs=Needs(cores=1))],
    }
finally:
    taken.close()
    ray.shutdown()
print(json.dumps(told))
"""
TWO_NODES = """
import json, os, sys
import ray
from ray.cluster_utils import Cluster
from plait.deploy.ray_preflight import gather
from plait.deploy.preflight import check

one = dict(num_cpus=1, include_dashboard=False)
cluster = Cluster()
try:
    cluster.add_node(node_ip_address="127.0.0.2", **one)
    os.environ["PYTHONPATH"] = sys.argv[1]
    cluster.add_node(node_ip_address="127.0.0.3", **one)
    del os.environ["PYTHONPATH"]
    ray.init(
        address=cluster.address, _node_ip_address="127.0.0.2",
        log_to_driver=False, configure_logging=False,
    )
    gathered = gather(cluster.address, 2, (0, 0), 60.0)
    first, second, here = gathered.hosts
    told = {
        "findings": [[f.severity, f.what] for f in check(gathered.hosts)],
        "silent": dict(gathered.silent),
        "versions": sorted((first.plait_version, second.plait_version)),
        "here": here.plait_version,
        "labels": len({first.host, second.host}),
        "reach": [dict(first.reach) == {second.host: ""}, dict(second.reach) == {first.host: ""}],
    }
finally:
    ray.shutdown()
    cluster.shutdown()
print(json.dumps(told))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: Ray puts sockets into it, whose names may not be long."""
    with tempfile.TemporaryDirectory(prefix="pf", dir="/tmp") as name:
        yield Path(name)


HIDE = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if "Redirecting" not in type(one).__name__]
"""
"""Run when Python starts there: an editable install of plait would be found before the path."""


def run(script: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """A driver in a process of its own, with its own home, token and temp folder."""
    token = folder / "token"
    token.write_text("0123456789abcdef" * 4 + "\n", encoding="ascii")
    token.chmod(0o640)
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env={
            **kept,
            "HOME": str(folder),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.slow
def test_one_real_node(folder: Path) -> None:
    told = run(ONE_NODE, folder)
    assert told["silent"] == {}
    assert told["findings"] == [["warning", "other users may read the token file (mode 640)"]]
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))
    assert told["plait"] == told["here"] != ""
    assert told["native"] == ""
    assert told["mode"] == "token"
    assert told["offset"]
    assert "1 of 2 nodes are there" in told["too few"]
    assert any("no free port" in what for what in told["taken"])


def test_two_nodes_of_which_one_has_another_plait(folder: Path) -> None:
    """The second node finds an empty package of that name first: the probe must not need it."""
    other = folder / "other" / "plait"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text('__version__ = "0.0.9"\n', encoding="ascii")
    (other.parent / "sitecustomize.py").write_text(HIDE, encoding="ascii")
    told = run(TWO_NODES, folder, str(other.parent))
    assert told["silent"] == {}
    assert told["versions"] == sorted(["0.0.9", told["here"]])
    assert told["labels"] == 2
    assert told["reach"] == [True, True]
    errors = [what for severity, what in told["findings"] if severity == "error"]
    assert any(what.startswith("plait differs between the machines: 0.0.9 on") for what in errors)
    assert any(what.startswith("a native module cannot be loaded: node_runtime") for what in errors)
    assert len(errors) == 2
