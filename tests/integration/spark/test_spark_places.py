"""Frames, streams and the format "plait" where Spark is elsewhere: behind Spark Connect, and with
executors in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("spark_places.py")


@pytest.mark.parametrize(
    ("where", "session"),
    [("connect", "pyspark.sql.connect.session"), ("cluster", "pyspark.sql.session")],
)
def test_frames_go_in_and_out(where: str, session: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), where, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("session") == session
    assert found.pop("cluster") == (where == "cluster")
    assert found == {
        "batch": list(range(20)),
        "stream": list(range(300)),
        "read": list(range(50)),
        "read_stream": list(range(50)),
    }
