"""Joins and spans as a native program: plain, and under the address and undefined checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, check, programs

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {"timed_joins_test:plain": (600, SEED), "timed_joins_test:address": (80, SEED)}


@pytest.mark.parametrize("program", programs(RUNS, "address"))
def test_joins_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program])
