"""Stages with their state in the pool, in a running engine: plain, under ThreadSanitizer, with
address checks. Threads stand in for the worker processes, C++ for Python. No report is suppressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, check, programs

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {
    "pooled_stage_test:plain": (4_000, SEED),
    "pooled_stage_test:thread": (5_000, SEED),
    "pooled_stage_test:address": (6_000, SEED),
}
"""For so many ms."""


@pytest.mark.parametrize("program", programs(RUNS, "thread"))
def test_pooled_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program], f"seed {SEED}", " rounds")
