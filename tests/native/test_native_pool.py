"""The ring of the worker processes as a native program: plain with real processes that are killed,
with thread and address checks with threads in their place. No report is suppressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, check, programs

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {
    "pool_test:plain": (3_000, 3_000, SEED),
    "pool_test:thread": (800, 0, SEED),
    "pool_test:address": (800, 0, SEED),
}


@pytest.mark.parametrize("program", programs(RUNS, "plain", "thread"))
def test_pool_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program], f"seed {SEED}")
