"""The background build of the test programs ends with the tests, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import ROOT, parse

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "endless:plain"
TESTS = f"""
from tests.native.native_build import start_builder, stop_builder
builder = start_builder(["{PROGRAM}"])
input()
stop_builder(builder)
print(builder.returncode)
"""
"""What pytest does, without the tests."""
TIMEOUT_S = 60.0


@pytest.mark.parametrize(("how", "said"), [("finish", f"{-signal.SIGTERM}\n"), ("kill", "")])
def test_the_build_ends_with_the_tests(how: str, said: str, tmp_path: Path) -> None:
    """The builder and the compiler inherit the output: it ends when the last of them has ended."""
    os.mkfifo(tmp_path / "never")
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho $PPID\nexec cat '{tmp_path / 'never'}'\n")
    compiler.chmod(0o700)
    tests = subprocess.Popen(
        [sys.executable, "-c", TESTS],
        cwd=ROOT,
        env={**os.environ, "CXX": str(compiler)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tests.stdout is not None
    builder = int(tests.stdout.readline())
    try:
        if how == "kill":
            tests.kill()
        assert tests.communicate("\n", timeout=TIMEOUT_S)[0] == said
    finally:
        tests.kill()
        with suppress(ProcessLookupError):
            os.killpg(builder, signal.SIGKILL)
        parse(PROGRAM).binary.with_suffix(".lock").unlink()
