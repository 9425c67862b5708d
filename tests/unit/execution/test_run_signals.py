"""SIGTERM and SIGHUP end a run as Ctrl-C does: what was delivered is kept, under its final name.

What gets a signal runs in a process of its own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import plait
from plait.execution.signals import Presses, raising_interrupt
from tests.endless_job import ENDLESS, HANG_S, signalled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ASKING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
JOB = f"""
import signal, sys
{ENDLESS}
job = plait.Job("endless")
stream = job.source(Endless())
stream.sink(plait.Files(sys.argv[1] if __name__ == "__main__" else OUT), name="file")
"""


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """SIGHUP as it is by default, here and in the processes of a test: a run that was started by
    nohup ignores it, as it should."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def rows_of(path: Path) -> list[int]:
    if path.suffix == ".parquet":
        return [row["n"] for row in pq.read_table(path).to_pylist()]
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("number", ASKING)
@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl"])
def test_what_was_delivered_has_its_final_name(tmp_path: Path, number: int, name: str) -> None:
    told = """
    try:
        job.run()
    except KeyboardInterrupt as error:
        assert isinstance(error, plait.Interrupted)
        unhandled = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        print(error.signal, error.result.account.delivered, unhandled, flush=True)
    """
    body = JOB + textwrap.dedent(told)
    path = tmp_path / name
    code, out, errors = signalled([sys.executable, "-c", body, str(path)], number)
    assert (code, errors) == (0, "")
    caught, delivered, restored = out.split()
    assert (int(caught), restored) == (number, "True")
    assert rows_of(path) == list(range(1, int(delivered) + 1))
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("number", ASKING)
def test_the_command_line(tmp_path: Path, number: int) -> None:
    path = tmp_path / "out.parquet"
    job = tmp_path / "job.py"
    job.write_text(f"OUT = {str(path)!r}\n" + JOB)
    code, out, errors = signalled([sys.executable, "-m", "plait", "run", str(job)], number)
    assert code == 128 + number
    assert "Traceback" not in out + errors
    assert "Interrupted: interrupted: " in errors
    rows = rows_of(path)
    assert rows == list(range(1, len(rows) + 1))


def test_a_worker_process_outlives_a_signal_to_the_group(tmp_path: Path) -> None:
    """A terminal that closes, or a service manager, tells all processes: the pool is needed until
    what was read is delivered."""
    told = """
    import os
    def same(record):
        return record
    stream.map(same, route="pool").sink(plait.Discard(), name="mapped")
    try:
        job.run(pool=2)
    except plait.Interrupted as error:
        account = error.result.account
        print(account.delivered == account.read + account.copied, flush=True)
    """
    body = JOB + textwrap.dedent(told)
    command = [sys.executable, "-c", body, str(tmp_path / "out.jsonl")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "reading"
            signal_group(process.pid)
            out, errors = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "True\n"), errors
    notes = errors.replace("\r", "\n").split("\n")
    assert [line for line in notes if line and "stopping: waiting for " not in line] == []


def signal_group(pid: int) -> None:
    import os

    os.killpg(os.getpgid(pid), signal.SIGHUP)


def test_handlers_of_the_user_stay() -> None:
    def mine(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with Presses():
            assert signal.getsignal(signal.SIGTERM) is mine
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        with raising_interrupt():
            assert signal.getsignal(signal.SIGTERM) is not mine
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Presses(), raising_interrupt():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_leaves_them_alone() -> None:
    found: list[Any] = []
    before = signal.getsignal(signal.SIGTERM)

    def look() -> None:
        plait.stream([1, 2]).map(seen).collect()

    def seen(n: int) -> int:
        found.append(signal.getsignal(signal.SIGTERM))
        return n

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert set(found) == {before}
