"""Frames and links between nodes as native programs: plain, with thread and address checks.

`frame_test` sends random batches through encoding and decoding; `links_test` runs three nodes over
loopback while their connections break, and meets peers that must not be let in; `fuzz_frames`
decodes changed frames and noise, and may allocate no more than its limits allow. No report is
suppressed; every program prints its seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import ENVIRONMENT, SEED, check, programs

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {
    "frame_test:plain": (10_000, SEED),
    "frame_test:address": (1_500, SEED),
    "links_test:plain": (2_000, 200, SEED),
    "links_test:thread": (300, 200, SEED),
    "links_test:address": (300, 200, SEED),
    "fuzz_frames:address": (200_000, SEED),
}
LIMIT = f"{ENVIRONMENT['ASAN_OPTIONS']}:max_allocation_size_mb=64"


@pytest.mark.parametrize(
    "program", programs(RUNS, "frame_test:address", "links_test:thread", "fuzz_frames:address")
)
def test_links_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program], f"seed {SEED}", ASAN_OPTIONS=LIMIT)


HEARTS = {
    "heart_test:plain": (200,),
    "heart_test:thread": (100,),
    "heart_test:address": (100,),
}


@pytest.mark.parametrize("program", programs(HEARTS, *HEARTS))
def test_hearts_beat(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], HEARTS[program], "hearts beat")
