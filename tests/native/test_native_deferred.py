"""Stages whose batches are worked on outside: plain, under ThreadSanitizer, with address checks.

Threads of their own bring the batches back in random order; some settings fail, die or are
aborted on the way. No report is suppressed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).with_name("native_build.py")
ROWS = {"plain": 4_000, "thread": 800, "address": 800}
SETTINGS = 24


@pytest.fixture(scope="module")
def binaries() -> dict[str, str]:
    """The program in all its variants, built together so that the compilers run side by side."""
    wanted = [f"deferred_test:{variant}" for variant in ROWS]
    done = subprocess.run(
        [sys.executable, str(BUILD), *wanted], stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(zip(ROWS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("variant", ROWS)
def test_deferred_program(binaries: dict[str, str], variant: str) -> None:
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
