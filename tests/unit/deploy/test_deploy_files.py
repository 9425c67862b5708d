"""The cluster files: Ray accepts them, and they keep the promises of the README beside them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from ray.autoscaler._private.util import prepare_config, validate_config

import plait
from plait.deploy import ray_preflight
from plait.deploy.preflight import Needs, numbers

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
FILES = ("cluster.yaml", "cluster-aws.yaml")
COMMANDS = ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands")


@pytest.fixture(params=FILES)
def text(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return (DEPLOY / name).read_text(encoding="utf-8")


@pytest.fixture
def cluster(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def commands(cluster: dict[str, Any]) -> list[str]:
    return [command for name in COMMANDS for command in cluster[name]]


def option(command: str, name: str) -> str:
    found = re.search(rf"{re.escape(name)}[= ](\S+)", command)
    assert found, f"{name} is not in: {command}"
    return found[1]


def only(found: list[str]) -> str:
    assert len(found) == 1
    return found[0]


def test_ray_accepts_the_file(cluster: dict[str, Any]) -> None:
    """By the check that `ray up` itself makes, with Ray's defaults filled in."""
    whole = prepare_config(cluster)
    validate_config(whole)
    # Defaults of Ray must not bring back what the file leaves out.
    assert "0.0.0.0" not in json.dumps(whole)


def test_nothing_listens_everywhere(text: str) -> None:
    assert "0.0.0.0" not in text
    assert "::" not in text


def test_the_dashboard_is_on_loopback(cluster: dict[str, Any]) -> None:
    head = only([c for c in cluster["head_start_ray_commands"] if "ray start" in c])
    assert option(head, "--dashboard-host") == "127.0.0.1"


def test_every_command_that_needs_ray_has_the_token(cluster: dict[str, Any]) -> None:
    started = cluster["head_start_ray_commands"] + cluster["worker_start_ray_commands"]
    assert all(command.startswith(". ~/.plait/env.sh && ") for command in started)
    assert "~/.plait/env.sh" in cluster["file_mounts"]
    assert "~/.plait/token" in cluster["file_mounts"]
    assert "chmod 600 ~/.plait/token" in cluster["setup_commands"][0]


def test_programs_are_found_by_ray_down_exec_and_submit(
    cluster: dict[str, Any], tmp_path: Path
) -> None:
    """Ray calls them in a shell that reads ~/.bashrc: it gets the line once."""
    (line,) = [command for command in cluster["setup_commands"] if ".bashrc" in command]
    for _ in range(2):
        subprocess.run(["bash", "-c", line], env={"HOME": str(tmp_path)}, check=True)
    assert (tmp_path / ".bashrc").read_text(encoding="utf-8") == ". ~/.plait/env.sh\n"


def test_ray_is_told_the_address_of_the_machine(cluster: dict[str, Any]) -> None:
    """Without a default route it would take 127.0.1.1 for it."""
    starts = [command for command in commands(cluster) if "ray start" in command]
    assert len(starts) == 2
    assert {option(command, "--node-ip-address") for command in starts} == {"$PLAIT_ADDRESS"}


def test_every_install_follows_the_environment(cluster: dict[str, Any]) -> None:
    """So that two lines there are enough for machines without an index."""
    installs = [command for command in commands(cluster) if "pip install" in command]
    assert len(installs) == 3
    assert all(command.startswith(". ~/.plait/env.sh && ") for command in installs)


@pytest.mark.parametrize("name", ["join.sh", "down.sh", "env.sh"])
def test_scripts_are_shell(name: str) -> None:
    assert subprocess.run(["sh", "-n", DEPLOY / name], check=False).returncode == 0
    assert name == "env.sh" or os.access(DEPLOY / name, os.X_OK)


def test_versions_are_pinned_to_what_is_tested(cluster: dict[str, Any]) -> None:
    installs = [command for command in commands(cluster) if "pip install" in command]
    ray = only([command for command in installs if "ray[" in command])
    pinned = re.search(r"ray\[default\]==([\d.]+)", ray)
    assert pinned
    assert numbers(pinned[1]) >= Needs().oldest_ray
    wheels = [command for command in installs if ".whl" in command]
    assert wheels
    assert all(f"/plait-{plait.__version__}-*.whl" in command for command in wheels)


def test_the_last_step_of_the_head_is_the_preflight(cluster: dict[str, Any]) -> None:
    """It must ask for as many nodes as the file starts."""
    last = cluster["head_start_ray_commands"][-1]
    assert f"python -m {ray_preflight.__name__} " in last
    local = cluster["provider"]["type"] == "local"
    workers = (
        len(cluster["provider"]["worker_ips"])
        if local
        else sum(kind.get("min_workers", 0) for kind in cluster["available_node_types"].values())
    )
    assert int(option(last, "--nodes")) == 1 + workers
    assert ray_preflight.seconds(option(last, "--wait")) == 600


def test_workers_find_the_head(cluster: dict[str, Any]) -> None:
    head = only([c for c in cluster["head_start_ray_commands"] if "ray start" in c])
    worker = only([c for c in cluster["worker_start_ray_commands"] if "ray start" in c])
    assert option(worker, "--address") == f"$RAY_HEAD_IP:{option(head, '--port')}"


def test_addresses_are_examples() -> None:
    """Of the block that is set aside for documentation: nobody's machine."""
    provider = yaml.safe_load((DEPLOY / "cluster.yaml").read_text(encoding="utf-8"))["provider"]
    for address in (provider["head_ip"], *provider["worker_ips"]):
        assert address.startswith("192.0.2.")


def test_all_commands_are_shell(cluster: dict[str, Any]) -> None:
    for command in commands(cluster):
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0, command


def environment(home: Path, **given: str) -> dict[str, str]:
    """What a shell has after it has read env.sh; `ray up` has asked for autoscaler v2 before."""
    done = subprocess.run(
        ["bash", "-c", f". {DEPLOY}/env.sh && export PLAIT_ADDRESS && env -0"],
        env={"HOME": str(home), "PATH": os.environ["PATH"], "RAY_enable_autoscaler_v2": "1"}
        | given,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


def test_rays_files_are_out_of_reach_of_other_users(tmp_path: Path) -> None:
    assert environment(tmp_path)["RAY_TMPDIR"] == f"{tmp_path}/.plait/tmp"
    assert (tmp_path / ".plait" / "tmp").stat().st_mode & 0o777 == 0o700


def test_on_the_machine_of_the_operator_rays_folder_stays(tmp_path: Path) -> None:
    """`ray up` keeps its notes there, whether or not env.sh was read before."""
    found = environment(tmp_path, PLAIT_HOME=str(tmp_path / "cluster"))
    assert "RAY_TMPDIR" not in found
    assert found["RAY_AUTH_TOKEN_PATH"] == f"{tmp_path}/cluster/token"


def test_the_address_is_the_one_ssh_came_by(tmp_path: Path) -> None:
    there = environment(tmp_path, SSH_CONNECTION="10.0.0.9 50000 10.0.0.2 22")
    assert there["PLAIT_ADDRESS"] == "10.0.0.2"
    assert environment(tmp_path)["PLAIT_ADDRESS"] == ""


def test_the_environment(tmp_path: Path) -> None:
    """Tokens on, quick health checks, autoscaler v1, no open ports for metrics."""
    found = environment(tmp_path)
    assert found["RAY_enable_autoscaler_v2"] == "0"
    assert found["AUTOSCALER_METRIC_PORT"] == found["DASHBOARD_METRIC_PORT"] == "-1"
    assert found["RAY_enable_metrics_collection"] == "0"
    assert found["RAY_AUTH_MODE"] == "token"
    assert found["RAY_AUTH_TOKEN_PATH"] == f"{tmp_path}/.plait/token"
    assert found["PATH"].startswith(f"{tmp_path}/.plait/venv/bin:")
    period, timeout, misses = (
        int(found[f"RAY_health_check_{name}"])
        for name in ("period_ms", "timeout_ms", "failure_threshold")
    )
    assert (period + timeout) * misses <= 5000
