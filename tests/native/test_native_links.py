"""Frames and links between nodes as native programs: plain, with thread and address checks.

`frame_test` sends random batches through encoding and decoding; `links_test` runs three nodes over
loopback while their connections break, and meets peers that must not be let in; `fuzz_frames`
decodes changed frames and noise, and may allocate no more than its limits allow. No report is
suppressed; every program prints its seed.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).with_name("native_build.py")
RUNS = {
    "frame_test:plain": ["10000"],
    "frame_test:address": ["1500"],
    "links_test:plain": ["2000", "200"],
    "links_test:thread": ["300", "200"],
    "links_test:address": ["300", "200"],
    "fuzz_frames:address": ["200000"],
}
ENVIRONMENT = {
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
    "ASAN_OPTIONS": "detect_stack_use_after_return=0:max_allocation_size_mb=64",
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
def test_links_program(binaries: dict[str, str], program: str) -> None:
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
