"""The lane operators of windows as a native program: plain, and under the address checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, check, programs

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {"timed_windows_test:plain": (1_000, SEED), "timed_windows_test:address": (100, SEED)}


@pytest.mark.parametrize("program", programs(RUNS, "address"))
def test_windows_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program])
