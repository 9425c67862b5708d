"""The keyed state and its tables as native programs: plain, and under the sanitizers."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("variant", ["plain", "address"])
@pytest.mark.parametrize(("program", "rows"), [("state_test", 20_000), ("table_test", 100_000)])
def test_state_program(program: str, rows: int, variant: str) -> None:
    built = subprocess.run(
        [sys.executable, str(HERE / "native_build.py"), f"{program}:{variant}"],
        check=True,
        capture_output=True,
        text=True,
    )
    seed = random.SystemRandom().randrange(2**32)
    rows = rows if variant == "plain" else rows // 4
    command = [built.stdout.split()[-1], str(rows), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
