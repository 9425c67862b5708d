"""The engine as a native program: plain, under ThreadSanitizer, and with address checks.

Each setting of queue, reorder buffer, workers, scheduler and threading model runs a keyed count
with snapshots in flight. No report is suppressed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).with_name("native_build.py")
ROWS = {"plain": 20_000, "thread": 1_500, "address": 1_500}
SETTINGS = 56


@pytest.fixture(scope="module")
def binaries() -> dict[str, str]:
    """The program in all its variants, built together so that the compilers run side by side."""
    wanted = [f"engine_test:{variant}" for variant in ROWS]
    done = subprocess.run(
        [sys.executable, str(BUILD), *wanted], stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(zip(ROWS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("variant", ROWS)
def test_engine_program(binaries: dict[str, str], variant: str) -> None:
    done = subprocess.run(
        [binaries[variant], str(ROWS[variant])],
        capture_output=True,
        text=True,
        timeout=100,
        env={
            "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
            "ASAN_OPTIONS": "detect_stack_use_after_return=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
    )
    assert done.returncode == 0, done.stderr
    assert f"{SETTINGS} settings" in done.stdout
