"""Ctrl-C, and SIGTERM, of a real process with checkpoints: it ends at a boundary with a last
checkpoint, all before it is visible, and the next start goes on from there with its state."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from plait.checkpoints.folder_reader import FolderReader
from plait.checkpoints.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

HANG_S = 120.0
JOB = """
import plait

def tell(record):
    if record.count % 50 == 0:
        print("at", record.count, flush=True)

job = plait.Job("numbers")
numbers = job.source(plait.Rate(2000), name="numbers", event_time="ts")
counted = numbers.count()
counted.sink(plait.Call(tell), name="told")
counted.sink(plait.Files("out", format="jsonl"), name="files")
numbers.tumbling("100ms").count().sink(plait.Files("windows", format="jsonl"), name="windows")
"""


def run_until_told(folder: Path, number: int, least: int) -> tuple[int, str, str]:
    """Exit status and output of a run that gets the signal when it says that it is past `least`
    records. No checkpoint is due by itself."""
    command = [sys.executable, "-m", "plait", "run", "job.py", "--workers", "1"]
    command += ["--checkpoint", "saved", "--every", "1h"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            told = "at 0"
            while told.startswith("at") and int(told.split()[1]) <= least:
                told = process.stdout.readline()
            assert told.startswith("at"), process.communicate(timeout=HANG_S)
            process.send_signal(number)
            out, errors = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
    return process.returncode, out, errors


def shown(folder: Path, name: str) -> list[int]:
    """What is visible of an output, in order."""
    return [
        json.loads(line)["count"]
        for path in sorted((folder / name).glob("part-*"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_next_start_goes_on_where_a_signal_ended_the_first(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    seen: list[int] = []
    for start in range(2):
        status, out, errors = run_until_told(tmp_path, number, len(seen) + 100)
        assert status == 128 + number, errors
        assert "Traceback" not in errors
        newest = FolderReader(open_store(str(tmp_path / "saved")), "numbers").manifests()[0]
        assert (newest.number, newest.finished) == (start + 1, False)
        before, seen = seen, shown(tmp_path, "out")
        assert len(seen) > len(before) + 100, out
        assert seen == list(range(1, len(seen) + 1))  # each once, and the count goes on
        hidden = [path.name for path in (tmp_path / "out").rglob(".part-*")]
        assert hidden == []
    # A window that was open when the job ended is not shown then, and whole when it is.
    assert shown(tmp_path, "windows") == [200] * ((len(seen) - 1) // 200)
