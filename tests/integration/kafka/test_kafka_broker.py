"""The broker itself: by the command line, and when its owner dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

import plait.testing.broker
from plait.deploy.broker.ready import is_ready

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
ROOT = Path(__file__).parents[3]
OWNER = """
import sys, time
from pathlib import Path
from plait.testing.broker import broker
with broker(folder=Path(sys.argv[1])) as kafka:
    print(kafka.servers, flush=True)
    time.sleep(600)
"""


def plait_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "plait", "broker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_by_the_command_line(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path / "broker")]
    assert "no broker runs" in plait_command("status", *folder).stdout
    started = plait_command("start", *folder, "--port", "0", "--topic", "clicks:3")
    try:
        assert started.returncode == 0, started.stderr
        servers = started.stdout.split()[1]
        assert f"running: {servers}" in plait_command("status", *folder).stdout
        again = plait_command("start", *folder)
        assert f"is running: {servers}" in again.stdout, again.stderr
        taken = plait_command("start", "--folder", str(tmp_path / "b"), "--port", servers[10:])
        assert "is in use" in taken.stderr
    finally:
        stopped = plait_command("stop", *folder)
    assert stopped.stdout == "stopped\n"
    assert plait_command("status", *folder).returncode == 1
    assert "no broker runs" in plait_command("stop", *folder).stdout


def test_the_fixture_as_its_page_shows_it(tmp_path: Path) -> None:
    lines = (plait.testing.broker.__doc__ or "").splitlines()
    example = [line for line in lines if not line or line.startswith("    ")]
    (tmp_path / "test_example.py").write_text(textwrap.dedent("\n".join(example)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_it_ends_with_its_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    with owner:
        servers = owner.stdout.readline().strip()
        java = psutil.Process(int((tmp_path / "broker" / "java.pid").read_text()))
        assert is_ready("127.0.0.1", int(servers.split(":")[1]))
        os.kill(owner.pid, signal.SIGKILL)
    until = time.monotonic() + PATIENCE_S
    while java.is_running() and java.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until, "the broker outlives its owner"
        time.sleep(0.02)
