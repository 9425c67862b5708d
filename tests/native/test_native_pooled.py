"""Stages with their state in the pool, in a running engine: plain, under ThreadSanitizer, with
address checks. Threads stand in for the worker processes, C++ for Python. No report is suppressed.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).with_name("native_build.py")
BUDGET_MS = {"plain": 4_000, "thread": 12_000, "address": 6_000}
ENVIRONMENT = {
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
    "ASAN_OPTIONS": "detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@pytest.fixture(scope="module")
def binaries() -> dict[str, str]:
    """The program in all its variants, built together so that the compilers run side by side."""
    wanted = [f"pooled_stage_test:{variant}" for variant in BUDGET_MS]
    done = subprocess.run(
        [sys.executable, str(BUILD), *wanted], stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(zip(BUDGET_MS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("variant", BUDGET_MS)
def test_pooled_program(binaries: dict[str, str], variant: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    done = subprocess.run(
        [binaries[variant], str(BUDGET_MS[variant]), str(seed)],
        capture_output=True,
        text=True,
        timeout=200,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    assert f"seed {seed}" in done.stdout
    assert " rounds" in done.stdout
