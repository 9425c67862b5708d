"""The native shedder against a plain loop, and its hash against golden values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, VARIANTS, check, parse, programs

if TYPE_CHECKING:
    from pathlib import Path

TRIES = {"plain": 20_000, "thread": 1_000, "address": 3_000}
PROGRAMS = [f"shed_test:{variant}" for variant in VARIANTS]


@pytest.mark.parametrize("program", programs(PROGRAMS, "plain", "address"))
def test_what_is_kept(binaries: dict[str, Path], program: str) -> None:
    check(
        binaries[program], [TRIES[parse(program).variant], SEED], f"seed {SEED}: ", " batches shed"
    )
