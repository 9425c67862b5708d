"""JSON values by the native reader and by a plain parser: same rows, same refusals, no bad read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, VARIANTS, check, parse, programs

if TYPE_CHECKING:
    from pathlib import Path

TRIES = {"plain": 300_000, "thread": 6_000, "address": 20_000}
PROGRAMS = [f"json_test:{variant}" for variant in VARIANTS]


@pytest.mark.parametrize("program", programs(PROGRAMS, "plain", "address"))
def test_values_changed_values_and_planted_ones(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], [TRIES[parse(program).variant], SEED], "seed SEED", "taken")
