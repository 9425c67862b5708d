"""Stages whose batches are worked on outside: plain, under ThreadSanitizer, with address checks.

Threads of their own bring the batches back in random order; some settings fail, die or are
aborted on the way. No report is suppressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import check, programs

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {
    "deferred_test:plain": (4_000,),
    "deferred_test:thread": (800,),
    "deferred_test:address": (800,),
}
"""With so many rows."""


@pytest.mark.parametrize("program", programs(RUNS, "thread"))
def test_deferred_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program], "24 settings")
