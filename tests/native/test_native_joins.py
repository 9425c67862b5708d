"""Joins and spans as a native program: plain, and under the address and undefined checks."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("variant", ["plain", "address"])
def test_joins_program(variant: str) -> None:
    built = subprocess.run(
        [sys.executable, str(HERE / "native_build.py"), f"timed_joins_test:{variant}"],
        check=True,
        capture_output=True,
        text=True,
    )
    seed = random.SystemRandom().randrange(2**32)
    runs = 600 if variant == "plain" else 80
    command = [built.stdout.split()[-1], str(runs), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
