"""The ring of the worker processes as a native program: plain with real processes that are killed,
with thread and address checks with threads in their place. No report is suppressed.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).with_name("native_build.py")
RUNS = {
    "pool_test:plain": ["3000", "3000"],
    "pool_test:thread": ["800", "0"],
    "pool_test:address": ["800", "0"],
}
ENVIRONMENT = {
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
    "ASAN_OPTIONS": "detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@pytest.fixture(scope="module")
def binaries() -> dict[str, str]:
    """All programs, built together so that the compilers run side by side."""
    done = subprocess.run(
        [sys.executable, str(BUILD), *RUNS], stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(zip(RUNS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("program", RUNS)
def test_pool_program(binaries: dict[str, str], program: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    done = subprocess.run(
        [binaries[program], *RUNS[program], str(seed)],
        capture_output=True,
        text=True,
        timeout=200,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    assert f"seed {seed}" in done.stdout
