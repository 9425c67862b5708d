"""The keyed state and its tables as native programs: plain, and under the sanitizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, check, programs

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {
    "state_test:plain": (20_000, SEED),
    "state_test:address": (5_000, SEED),
    "saved_bins_test:plain": (200, SEED),
    "saved_bins_test:address": (8, SEED),
    "table_test:plain": (100_000, SEED),
    "table_test:address": (25_000, SEED),
}


@pytest.mark.parametrize("program", programs(RUNS, "address"))
def test_state_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program])
