"""A job without an end as the text of a program, and a signal for the process that runs it."""

from __future__ import annotations

import signal
import subprocess

HANG_S = 60.0
ENDLESS = """
import plait

class Endless(plait.Source):
    schema = plait.Schema.of({"n": int})
    bounded = False
    def open(self, position=None):
        return EndlessReader()

class EndlessReader(plait.Reader):
    n = 0
    def poll(self, max_rows):
        EndlessReader.n += 1
        if EndlessReader.n == 20:
            print("reading", flush=True)
        return [{"n": EndlessReader.n}]
    def position(self):
        return self.n
"""
"""A source that counts for ever, and says when it is read."""


def signalled(
    command: list[str], number: int = signal.SIGINT, twice: bool = False
) -> tuple[int, str, str]:
    """Exit status and output of a process that gets a signal when it says that it reads."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "reading"
            process.send_signal(number)
            if twice:
                assert process.stderr is not None
                assert "Ctrl-C again" in process.stderr.readline()
                process.send_signal(number)
            out, errors = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
    return process.returncode, out, errors
