"""The engine as a native program: plain, under ThreadSanitizer, and with address checks.

Each setting of queue, reorder buffer, workers, scheduler and threading model runs a keyed count
with snapshots in flight. No report is suppressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import check, programs

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {
    "engine_test:plain": (20_000,),
    "engine_test:thread": (1_500,),
    "engine_test:address": (1_500,),
}
"""With so many rows."""


@pytest.mark.parametrize("program", programs(RUNS, "thread"))
def test_engine_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program], "56 settings")
